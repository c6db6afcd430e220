"""The ways in which the probe can find rows, each forced on small files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

import pytest

from mirrorlake.delta.lookup import key_index, key_lookup, pages, row_cache
from mirrorlake.delta.write import data_files


class Way(StrEnum):
    MEMORY = "whole files, kept in memory"
    WHOLE = "keys joined with whole files"
    KEYS_PAGES = "key columns, then pages"
    HUGE = "key columns, then each file by itself"
    INDEX_PAGES = "indexes, then pages"
    INDEX_SOME = "indexes, then pages, or files of which most pages are wanted"
    INDEX_WHOLE = "indexes, then files without a page index"


@contextmanager
def forced(way: Way) -> Iterator[pytest.MonkeyPatch]:
    """Search in one way, whatever would be fastest; pages that are written have two rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_files, "PAGE_ROWS", 2)
        is_whole = way in {Way.WHOLE, Way.HUGE}
        patch.setattr(key_lookup, "MIN_ROWS_PER_KEY", sys.maxsize if is_whole else 0)
        patch.setattr(row_cache, "SMALL", sys.maxsize if way is Way.MEMORY else 0)
        patch.setattr(key_lookup, "MAX_PAGE_SHARE", 0.5 if way is Way.INDEX_SOME else 1)
        if way is Way.HUGE:
            patch.setattr(key_lookup, "HUGE_ROW", 0)
            patch.setattr(key_lookup, "MAX_PAGE_SHARE", -1)
        indexed = way.name.startswith("INDEX")
        patch.setattr(key_index, "MIN_ROWS", 0 if indexed else sys.maxsize)
        if way is Way.INDEX_WHOLE:
            patch.setattr(pages, "layout", _none)
        yield patch


def _none(path: Path) -> pages.PageLayout:
    raise pages.NoPageIndex(str(path))
