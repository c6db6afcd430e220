"""Runs the stages of one batch; the tasks of a stage depend on the results of earlier stages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeVar

import numpy as np
from pyroaring import BitMap

from mirrorlake.apply.runner import Runner
from mirrorlake.apply.stages.shares import InputShare, balanced, shares
from mirrorlake.apply.stages.tasks import (
    Folded,
    KeysRead,
    ReadTask,
    Stretch,
    Taken,
    WriteTask,
    WrittenRows,
    bitmap,
    fold_partition,
    numbers,
    read_keys,
    take_rows,
    without_files,
    write_rows,
)
from mirrorlake.apply.task.batch import BatchResult, BatchTask
from mirrorlake.errors import MirrorlakeError
from mirrorlake.mirror.engine import Counts
from mirrorlake.model.crash_points import CrashHook, CrashPoint

WRITE_COST = 3
"""The cost of writing a row with its image, relative to reading it."""

T = TypeVar("T")


class GivenUp(Exception):
    """The batch has to be applied in one task; the argument is the reason, for the log."""


class StagePlan:
    """The stages of one batch. tasks: maximum number of tasks per stage."""

    def __init__(self, batch: BatchTask, runner: Runner, tasks: int, reached: CrashHook) -> None:
        self._batch, self._runner, self._tasks, self._reached = batch, runner, tasks, reached
        self._bare = without_files(batch)

    def run(self) -> BatchResult:
        """Run all stages. Raises GivenUp, TasksDied."""
        runs = shares(self._batch.landed, self._tasks)
        read, folded, taken = self._read_fold_take(runs)
        self._reached(CrashPoint.STAGE_WRITTEN)
        left = resulting_rows(folded, _keys_with_one_row(folded, taken))
        groups = stretches(runs, read, left, self._tasks)
        images = any(result.rows for result in taken)
        tasks = [WriteTask(self._bare, group, images) for group in groups]
        written = _done(self._runner.run(write_rows, tasks))
        self._reached(CrashPoint.STAGE_WRITTEN)
        _check_sizes(written, self._batch.rows.row_checks.file_bytes)
        _check_rows(left, written)
        return _result(self._batch, runs, read, taken, written)

    def _read_fold_take(
        self, runs: Sequence[tuple[InputShare, ...]]
    ) -> tuple[list[KeysRead], list[Folded], list[Taken]]:
        tasks = [ReadTask(self._bare, run, self._tasks) for run in runs]
        later = [partial(work, self._batch, self._tasks) for work in (fold_partition, take_rows)]
        found = self._runner.chain(read_keys, tasks, later, self._tasks)
        read: list[KeysRead] = _done(found[0])
        if any(keys.partial for keys in read):
            raise GivenUp("values that the source did not send")
        if len({keys.hasher for keys in read}) > 1:
            raise GivenUp("executors with different releases of DuckDB")
        folded, taken = _done(found[1]), _done(found[2])
        _check_lengths(folded, taken, len(runs), self._tasks)
        return read, folded, taken


def _done(results: Sequence[T | MirrorlakeError]) -> list[T]:
    """The results of a stage. Raises GivenUp if one is an error, which the batch in one task
    will report with all details."""
    done: list[T] = []
    for result in results:
        if isinstance(result, MirrorlakeError):
            raise GivenUp(result.code)
        done.append(result)
    return done


def resulting_rows(
    folded: Sequence[Folded], once: Sequence[np.ndarray]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The row numbers of each run's resulting rows, and of those of them that replace exactly one
    row of the table; ascending. once: for each partition, the keys that had one row."""
    left = [[fold.left[run][0] for fold in folded] for run in range(len(folded[0].left))]
    updated: list[list[bytes]] = [[] for _ in left]
    for fold, single in zip(folded, once, strict=True):
        start = 0
        for run, (_rows, replacing) in enumerate(fold.left):
            number = numbers(replacing)
            end = start + len(number)
            section = slice(*np.searchsorted(single, [start, end]).tolist())
            updated[run].append(bitmap(number[single[section] - start]))
            start = end
    return [
        (numbers(_union(rows)), numbers(_union(replacing)))
        for rows, replacing in zip(left, updated, strict=True)
    ]


def _union(encoded: Sequence[bytes]) -> bytes:
    return BitMap.union(*map(BitMap.deserialize, encoded)).serialize()


def stretches(
    runs: Sequence[Sequence[InputShare]],
    read: Sequence[KeysRead],
    left: Sequence[tuple[np.ndarray, np.ndarray]],
    count: int,
) -> list[tuple[Stretch, ...]]:
    """Group all that was read by tasks of about equal cost to read and write: later rows of a batch
    are more often resulting rows. left: as of `resulting_rows`."""
    found, weights = [], []
    for run, (shares_, keys, numbers_) in enumerate(zip(runs, read, left, strict=True)):
        begin = 0
        for share, end in zip(shares_, keys.ends, strict=True):
            rows, updated = (
                number[slice(*np.searchsorted(number, [begin, end]).tolist())] - begin
                for number in numbers_
            )
            found.append(Stretch(run, begin, end, share, bitmap(rows), bitmap(updated)))
            weights.append(end - begin + WRITE_COST * len(rows))
            begin = end
    groups = balanced(found, weights, count)
    return [tuple(sorted(group, key=_in_order)) for group in groups]


def _in_order(stretch: Stretch) -> tuple[int, int, int]:
    return stretch.run, stretch.begin, stretch.end


def _check_sizes(written: Sequence[WrittenRows], most: int) -> None:
    """Give up if a file is so large that one task might reject it: shares of it are smaller."""
    sizes: dict[int, int] = {}
    for number, size in (file for result in written for file in result.size):
        sizes[number] = sizes.get(number, 0) + size
    if max(sizes.values(), default=0) > most // 2:
        raise GivenUp("a file near the limit of its size")


def _check_lengths(folded: Sequence[Folded], taken: Sequence[Taken], runs: int, tasks: int) -> None:
    """Give up if a task got nothing from another one, whose report says no error: a task may fail
    when its lost blocks are computed again, after the report of its first attempt was passed on."""
    if any(len(fold.left) != runs for fold in folded) or any(
        len(result.once) != tasks for result in taken
    ):
        raise GivenUp("stages that do not fit together")


def _check_rows(
    left: Sequence[tuple[np.ndarray, np.ndarray]], written: Sequence[WrittenRows]
) -> None:
    """Give up unless the number of written rows equals that of the fold."""
    if sum(len(rows) for rows, _updated in left) != sum(result.rows for result in written):
        raise GivenUp("stages that do not fit together")


def _keys_with_one_row(folded: Sequence[Folded], taken: Sequence[Taken]) -> list[np.ndarray]:
    """For each partition, the numbers of its keys that had one row in the table, ascending."""
    once = []
    for index in range(len(folded)):
        found = [of[index] for result in taken for of in (result.once, result.several)]
        bitmaps = [BitMap.deserialize(encoded) for encoded in found]
        if len(BitMap.union(*bitmaps)) != sum(map(len, bitmaps)):
            raise GivenUp("a key with rows in files of several tasks")
        once.append(numbers(_union([result.once[index] for result in taken])))
    return once


def _result(
    batch: BatchTask,
    runs: Sequence[Sequence[InputShare]],
    read: Sequence[KeysRead],
    taken: Sequence[Taken],
    written: Sequence[WrittenRows],
) -> BatchResult:
    count, found = sum(r.rows for r in written), sum(r.rows for r in taken)
    updated = sum(r.updated for r in written)
    counted = [(0, 0, 0, 0) for _ in batch.landed]
    for shares_, keys in zip(runs, read, strict=True):
        for share, rows in zip(shares_, keys.rows, strict=True):
            a, b, c, d = counted[share.number]
            counted[share.number] = (a + rows[0], b + rows[1], c + rows[2], d + rows[3])
    return BatchResult(
        (*(a for r in taken for a in r.actions), *(a for r in written for a in r.actions)),
        Counts(count - updated, updated, found - updated, sum(r.beyond for r in taken)),
        read=tuple(counted),
        again=True,
    )
