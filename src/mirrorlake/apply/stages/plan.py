"""Runs the stages of one batch; the tasks of a stage depend on the results of earlier stages."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import TypeVar

from pyroaring import BitMap

from mirrorlake.apply.runner import Runner
from mirrorlake.apply.stages.shares import InputShare, balanced, shares
from mirrorlake.apply.stages.tasks import (
    Folded,
    FoundKeys,
    KeysRead,
    ReadTask,
    Stretch,
    Taken,
    TakeTask,
    WriteTask,
    WrittenRows,
    fold_partition,
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
        read, folded = self._read_and_fold(runs)
        taken = self._take(folded)
        found = [
            FoundKeys(fold.left, fold.sought, once)
            for fold, once in zip(folded, _single_row_bitmaps(folded, taken), strict=True)
        ]
        written = self._write(
            runs, read, folded, found, images=any(result.rows for result in taken)
        )
        _check_sizes(written, self._batch.rows.row_checks.file_bytes)
        _check_rows(folded, written)
        return _result(self._batch, runs, read, taken, written)

    def _read_and_fold(
        self, runs: Sequence[tuple[InputShare, ...]]
    ) -> tuple[list[KeysRead], list[Folded]]:
        tasks = [ReadTask(self._bare, run, self._tasks) for run in runs]
        fold = partial(fold_partition, self._batch)
        found = self._runner.shuffle(read_keys, tasks, fold, self._tasks)
        read, folded = self._done(found[0]), self._done(found[1])
        if any(keys.partial for keys in read):
            raise GivenUp("values that the source did not send")
        if len({keys.hasher for keys in read}) > 1:
            raise GivenUp("executors with different releases of DuckDB")
        return read, folded

    def _take(self, folded: Sequence[Folded]) -> list[Taken]:
        """Run the stage take, on the files that may contain one of the keys."""
        indexes = sorted({index for fold in folded for index in fold.candidates})
        files = [self._batch.files[index] for index in indexes]
        sizes = [int(add["size"]) for add in files]
        tasks = [TakeTask(self._bare, group) for group in balanced(files, sizes, self._tasks)]
        keys = [fold.keys for fold in folded if fold.keys]
        return self._done(self._runner.broadcast(take_rows, tasks, keys)) if tasks else []

    def _write(
        self,
        runs: Sequence[tuple[InputShare, ...]],
        read: Sequence[KeysRead],
        folded: Sequence[Folded],
        found: list[FoundKeys],
        *,
        images: bool,
    ) -> list[WrittenRows]:
        groups = stretches(runs, read, folded, self._tasks)
        tasks = [WriteTask(self._bare, group, images) for group in groups]
        return self._done(self._runner.broadcast(write_rows, tasks, found))

    def _done(self, results: Sequence[T | MirrorlakeError]) -> list[T]:
        """The results of a stage. Raises GivenUp if one is an error, which the batch in one task
        will report with all details."""
        done: list[T] = []
        for result in results:
            if isinstance(result, MirrorlakeError):
                raise GivenUp(result.code)
            done.append(result)
        self._reached(CrashPoint.STAGE_WRITTEN)
        return done


def stretches(
    runs: Sequence[Sequence[InputShare]],
    read: Sequence[KeysRead],
    folded: Sequence[Folded],
    count: int,
) -> list[tuple[Stretch, ...]]:
    """Group all that was read by tasks of about equal cost to read and write: later rows of a batch
    are more often resulting rows."""
    found, weights = [], []
    for run, (shares_, keys) in enumerate(zip(runs, read, strict=True)):
        begin = 0
        for index, (share, end) in enumerate(zip(shares_, keys.ends, strict=True)):
            left = sum(fold.count[run][index] for fold in folded)
            found.append(Stretch(run, begin, end, share))
            weights.append(end - begin + WRITE_COST * left)
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


def _check_rows(folded: Sequence[Folded], written: Sequence[WrittenRows]) -> None:
    """Give up unless the number of written rows equals that of the fold."""
    left = sum(rows for fold in folded for run in fold.count for rows in run)
    if left != sum(result.rows for result in written):
        raise GivenUp("stages that do not fit together")


def _single_row_bitmaps(
    folded: Sequence[Folded], taken: Sequence[Taken]
) -> list[tuple[bytes, ...]]:
    """For each partition, the bitmaps of its keys that had one row in the table."""
    once: list[tuple[bytes, ...]] = []
    numbers = itertools.count()  # `taken` has entries only for partitions with keys to look up
    for fold in folded:
        if not fold.keys or not taken:
            once.append(())
            continue
        index = next(numbers)
        several = [result.several[index] for result in taken]
        single = [result.once[index] for result in taken]
        bitmaps = [BitMap.deserialize(encoded) for encoded in single + several]
        if len(BitMap.union(*bitmaps)) != sum(map(len, bitmaps)):
            raise GivenUp("a key with rows in files of several tasks")
        once.append(tuple(single))
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
