"""The ways in which the probe can find rows, each forced on small files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

import pyarrow as pa
import pytest

from mirrorlake.delta.lookup import key_index, key_lookup, pages, row_cache
from mirrorlake.delta.schema import TableSchema
from mirrorlake.delta.write import data_files


class Way(StrEnum):
    MEMORY = "whole files, kept in memory"
    WHOLE = "keys joined with whole files"
    KEYS_PAGES = "key columns, then pages"
    INDEX_PAGES = "indexes, then pages"
    INDEX_SOME = "indexes, then pages, or files of which most pages are wanted"
    INDEX_WHOLE = "indexes, then files without a page index"
    INDEX_HELD = "indexes, then files that were read often"
    HELD = "many keys, and files that were read often"


@contextmanager
def forced(way: Way) -> Iterator[pytest.MonkeyPatch]:
    """Search in one way, whatever would be fastest; pages that are written have two rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_files, "PAGE_ROWS", 2)
        patch.setattr(key_lookup, "DENSE", sys.maxsize if way in {Way.WHOLE, Way.HELD} else 0)
        patch.setattr(row_cache, "SMALL", sys.maxsize if way is Way.MEMORY else 0)
        patch.setattr(key_lookup, "MOST_PAGES", 0.5 if way is Way.INDEX_SOME else 1)
        held = way in {Way.INDEX_HELD, Way.HELD}
        patch.setattr(row_cache, "again", _held if held else _forgotten)
        patch.setattr(row_cache, "_often", row_cache.BoundedCache(0, row_cache._cost))
        indexed = way.name.startswith("INDEX")
        patch.setattr(key_index, "LEAST_ROWS", 0 if indexed else sys.maxsize)
        if way is Way.INDEX_WHOLE:
            patch.setattr(pages, "layout", _none)
        yield patch


def _held(path: Path, schema: TableSchema, _part: float) -> pa.Table | None:
    return row_cache.held(path, schema)


def _forgotten(_path: Path, _schema: TableSchema, _part: float) -> None:
    return None


def _none(path: Path) -> pages.PageLayout:
    raise pages.NoPageIndex(str(path))
