"""The ways in which the probe can find rows, each forced on small files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

import pytest

from mirrorlake.lake import datafile, keyindex, probe


class Way(StrEnum):
    WHOLE = "keys joined with whole files"
    KEYS_PAGES = "key columns, then pages"
    KEYS_WHOLE = "key columns, then whole files"
    INDEX_PAGES = "indexes, then pages"
    INDEX_WHOLE = "indexes, then whole files"


@contextmanager
def forced(way: Way) -> Iterator[pytest.MonkeyPatch]:
    """Search in one way, whatever would be fastest; pages that are written have two rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datafile, "PAGE_ROWS", 2)
        patch.setattr(probe, "DENSE", sys.maxsize if way is Way.WHOLE else 0)
        indexed = way in {Way.INDEX_PAGES, Way.INDEX_WHOLE}
        patch.setattr(keyindex, "LEAST_ROWS", 0 if indexed else sys.maxsize)
        paged = way in {Way.KEYS_PAGES, Way.INDEX_PAGES}
        patch.setattr(probe, "MOST_PAGES", 1.0 if paged else -1.0)
        yield patch
