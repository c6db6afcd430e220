"""The number of rows of a Parquet file that can be decoded at once, based on its page headers.

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
    """The pages of a column in a row group. first: number of rows in the row groups read before;
    rows: of this row group."""

    first: int
    rows: int
    headers: Sequence[PageHeader]


def sizes(columns: Iterable[ColumnPages]) -> dict[int, int]:
    """Maximum bytes of the pages of one block, by the number of rows per block (`STEPS`)."""
    found = [page for column in columns for page in _pages(column)]
    pages = np.array(found or [(0, 1, 0)], dtype=np.float64)  # no sum of sizes overflows
    return {step: _largest(pages, step) for step in STEPS}


def _pages(column: ColumnPages) -> Iterable[tuple[int, int, int]]:
    """First row, number of rows and bytes of each page; a dictionary page covers all rows."""
    first = column.first
    for page in column.headers:
        if page.kind == page_headers.DICTIONARY:
            yield column.first, column.rows, page.unpacked
        else:
            yield first, page.values, page.unpacked
            first += page.values


def _largest(pages: np.ndarray, step: int) -> int:
    """The largest total of pages in one block; a page is in the blocks of its first to last
    row."""
    first, rows, size = pages.T
    begin, end = first // step, (first + np.maximum(rows, 1) - 1) // step + 1
    at = np.concatenate([begin, end])
    change = np.concatenate([size, -size])
    order = np.lexsort((change, at))  # what ends is subtracted before what begins is added
    return int(np.cumsum(change[order]).max())
