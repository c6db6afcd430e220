"""Selects the files of a table to cluster: those whose key ranges overlap much.

A lookup opens each file whose bounds of the first key column contain a key. Files that compaction
joined in the order of their size may all have the same bounds, and then all of them are opened. A
step rewrites files that have a range in common into files that follow each other by key. What it
rewrites is limited, and it is only chosen if a key is in the bounds of at least `WORTH` of its
files on average, so that what was clustered once is not clustered again.

Files without bounds, those of one key, small ones, which are cached or joined, and those that are
larger than a step of compaction stay as they are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mirrorlake.mirror.compaction.small_files import (
    CLASSES,
    MOST_BYTES,
    MOST_ROWS,
    File,
    by_partition,
)

WORTH = 3.0
"""Average number of files of a step, in whose bounds a key is, from which on clustering pays."""

LEAST = 4
"""Smallest number of files with a range in common that are clustered."""

STEP_ROWS, STEP_BYTES = 4 * MOST_ROWS, 4 * MOST_BYTES
"""What a step rewrites at most. It is written to disk in between, and not held in memory."""

FILE_ROWS, FILE_BYTES = 3 * MOST_ROWS // 4, 3 * CLASSES[-1] // 2
"""Size of the new files: so large that compaction does not join them."""

TRIED = 64
"""Number of ranges per partition, beginning with those in the bounds of most files, that are
considered."""

_ALIKE = 32
"""Length to which the bounds of texts are cut. Files that differ only after it always overlap."""


@dataclass(frozen=True, slots=True)
class Clustering:
    """files: the add actions of the files of a step; rows: number of their live rows; into: number
    of new files; depth: average number of these files in whose bounds a key is; overlap: the same
    for all files with bounds of the table."""

    files: tuple[Mapping[str, Any], ...]
    rows: int
    into: int
    depth: float
    overlap: float


def choose(files: Sequence[Mapping[str, Any]], column: str) -> Clustering | None:
    """The next step for a table with these files; None if none pays. column: the name of the first
    key column in the data files that is not one of the partition."""
    parts = [
        part for group in by_partition(files) if (part := _Ranges.of(group, column)) is not None
    ]
    rows = sum(float(part.rows.sum()) for part in parts)
    covered = sum(float((part.rows * part.depth).sum()) for part in parts)
    found = [step for part in parts if (step := part.step(covered / rows)) is not None]
    return max(found, key=lambda step: step.depth, default=None)


class _Ranges:
    """The ranges between adjacent bounds of the files of a partition. low, high: the first range of
    each file, and the one after its last; widths: of the ranges; depth: number of files whose
    bounds contain a range; rows: number of rows in it, if each file has its keys evenly within its
    bounds."""

    def __init__(
        self, files: Sequence[File], lows: np.ndarray, highs: np.ndarray, widths: np.ndarray
    ) -> None:
        self._files, self._lows, self._highs = files, lows, highs
        before = np.concatenate([[0.0], np.cumsum(widths)])
        rows = np.array([file.left for file in files]) / (before[highs] - before[lows])
        self.depth = self._sums(np.ones(len(files)))
        self.rows = self._sums(rows) * widths

    @classmethod
    def of(cls, files: Sequence[File], column: str) -> _Ranges | None:
        known = [
            (file, bounds)
            for file in files
            if 0 < file.left <= MOST_ROWS
            and CLASSES[0] <= file.size <= MOST_BYTES
            and (bounds := _bounds(file, column))
        ]
        if len(known) < LEAST or len({isinstance(low, str) for _file, (low, _high) in known}) > 1:
            return None
        ends = sorted({bound for _file, bounds in known for bound in bounds})
        number = {bound: index for index, bound in enumerate(ends)}
        lows, highs = (
            np.array([number[bounds[side]] for _file, bounds in known]) for side in (0, 1)
        )
        return cls([file for file, _bounds in known], lows, highs, _widths(ends))

    def step(self, overlap: float) -> Clustering | None:
        """The first step that pays, among those for the ranges in the bounds of most files."""
        ranges = np.argsort(-self.depth, kind="stable")[:TRIED]
        for index in ranges[self.depth[ranges] >= LEAST]:
            chosen = np.fromiter(self._limited(int(index)), int)
            if len(chosen) < LEAST:
                continue
            depth = self._sums(np.ones(len(chosen)), chosen)
            mean = float((self.rows * depth).sum() / self.rows[depth > 0].sum())
            if mean >= WORTH:
                return self._step([self._files[file] for file in chosen], mean, overlap)
        return None

    def _step(self, files: Sequence[File], depth: float, overlap: float) -> Clustering:
        rows, size = sum(file.left for file in files), sum(file.size for file in files)
        into = max(1, rows // FILE_ROWS, size // FILE_BYTES)
        return Clustering(tuple(file.action for file in files), rows, into, depth, overlap)

    def _limited(self, index: int) -> Iterator[int]:
        """The files whose bounds contain a range, those with most rows within theirs first, as many
        as a step rewrites."""
        before = np.concatenate([[0.0], np.cumsum(self.rows)])
        width = before[self._highs] - before[self._lows]
        covering = np.flatnonzero((self._lows <= index) & (index < self._highs))
        rows = size = 0
        for number in covering[np.argsort(-width[covering], kind="stable")]:
            file = self._files[number]
            rows, size = rows + file.left, size + file.size
            if rows > STEP_ROWS or size > STEP_BYTES:
                return
            yield int(number)

    def _sums(self, values: np.ndarray, files: np.ndarray | slice = slice(None)) -> np.ndarray:
        """For each range, the sum of a value of the files whose bounds contain it."""
        changes = np.zeros(int(self._highs.max()) + 1)
        np.add.at(changes, self._lows[files], values)
        np.add.at(changes, self._highs[files], -values)
        return np.cumsum(changes)[:-1].clip(min=0)


def _bounds(file: File, column: str) -> tuple[Any, Any] | None:
    """The bounds of a column in a file, as in the log; None if they are unknown or one value."""
    stats = json.loads(file.action.get("stats") or "{}")
    low, high = (stats.get(side, {}).get(column) for side in ("minValues", "maxValues"))
    if isinstance(low, str) and isinstance(high, str):
        return (low, high) if low[:_ALIKE] < high[:_ALIKE] else None
    is_number = all(
        type(bound) is int or (type(bound) is float and math.isfinite(bound))
        for bound in (low, high)
    )
    return (low, high) if is_number and low < high else None


def _widths(ends: Sequence[Any]) -> np.ndarray:
    """The distances between adjacent bounds, of texts by the bytes after their common beginning."""
    if isinstance(ends[0], str):
        pairs = zip(ends[0], ends[-1], strict=False)
        skipped = next((at for at, (a, b) in enumerate(pairs) if a != b), len(ends[0]))
        texts = [end[skipped:].encode(errors="replace")[:8].ljust(8, b"\0") for end in ends]
        ends = [int.from_bytes(text) for text in texts]
    places = np.array([float(end) for end in ends])
    least = max((places[-1] - places[0]) * 1e-9, np.finfo(float).tiny)
    widths: np.ndarray = np.diff(places).clip(min=least)
    return widths
