"""How many rows of a Parquet file may be decoded at once, according to its page headers.

The footer states sizes that nobody verifies; a page never decompresses to more than its header
states. The rows of a block lie in certain pages, whose sizes bound the size of the block.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from mirrorlake.landing.parquet import page_headers
from mirrorlake.landing.parquet.page_headers import PageHeader

STEPS = (65_536, 16_384, 4_096, 1_024, 256, 64, 16, 4, 1)


@dataclass(frozen=True, slots=True)
class ColumnPages:
    """The pages of a column in a row group. first, rows: the rows of the group, counted over all
    that is read."""

    first: int
    rows: int
    headers: Sequence[PageHeader]


def sizes(columns: Iterable[ColumnPages]) -> dict[int, int]:
    """For blocks of so many rows: the bytes of all pages with a row of the block, at most."""
    found = [page for column in columns for page in _pages(column)]
    pages = np.array(found or [(0, 1, 0)], dtype=np.float64)  # no sum of sizes overflows
    return {step: _largest(pages, step) for step in STEPS}


def _pages(column: ColumnPages) -> Iterable[tuple[int, int, int]]:
    """First row, rows and bytes of each page; a dictionary is needed for all rows."""
    first = column.first
    for page in column.headers:
        if page.kind == page_headers.DICTIONARY:
            yield column.first, column.rows, page.unpacked
        else:
            yield first, page.values, page.unpacked
            first += page.values


def _largest(pages: np.ndarray, step: int) -> int:
    """A page counts from the block of its first row to that of its last one."""
    first, rows, size = pages.T
    begin, end = first // step, (first + np.maximum(rows, 1) - 1) // step + 1
    at = np.concatenate([begin, end])
    change = np.concatenate([size, -size])
    order = np.lexsort((change, at))  # what ends is subtracted before what begins is added
    return int(np.cumsum(change[order]).max())
