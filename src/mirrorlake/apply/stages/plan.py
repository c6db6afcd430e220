"""The stages of one batch, one after another; which tasks a stage has follows from the batch and
from what the stages before it returned."""

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

WRITING = 3
"""What it takes to write a row and its image, where to read it takes one."""

T = TypeVar("T")


class GivenUp(Exception):
    """The batch is for one task; the reason is for the log."""


class StagePlan:
    """One batch on its way. tasks: of each stage, at most."""

    def __init__(self, batch: BatchTask, runner: Runner, tasks: int, reached: CrashHook) -> None:
        self._batch, self._runner, self._tasks, self._reached = batch, runner, tasks, reached
        self._bare = without_files(batch)

    def run(self) -> BatchResult:
        """Do all stages. Raises GivenUp, TasksDied."""
        runs = shares(self._batch.landed, self._tasks)
        read, folded = self._read_and_fold(runs)
        taken = self._take(folded)
        found = [
            FoundKeys(one.left, one.sought, once)
            for one, once in zip(folded, _once(folded, taken), strict=True)
        ]
        written = self._write(runs, read, folded, found, images=any(one.rows for one in taken))
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
        if any(one.partial for one in read):
            raise GivenUp("values that the source did not send")
        if len({one.hasher for one in read}) > 1:
            raise GivenUp("executors with different releases of DuckDB")
        return read, folded

    def _take(self, folded: Sequence[Folded]) -> list[Taken]:
        """From the files that may hold one of the keys, in groups of about the same size."""
        wanted = sorted({index for one in folded for index in one.candidates})
        files = [self._batch.files[index] for index in wanted]
        sizes = [int(add["size"]) for add in files]
        tasks = [TakeTask(self._bare, group) for group in balanced(files, sizes, self._tasks)]
        keys = [one.keys for one in folded if one.keys]
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
        """The results of a stage. Raises GivenUp for an error, which one task will tell in full."""
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
    """All that was read, in groups that take about as long to read and to write: of the rows of a
    batch the last ones are left more often."""
    found, weights = [], []
    for run, (some, one) in enumerate(zip(runs, read, strict=True)):
        begin = 0
        for index, (share, end) in enumerate(zip(some, one.ends, strict=True)):
            left = sum(fold.count[run][index] for fold in folded)
            found.append(Stretch(run, begin, end, share))
            weights.append(end - begin + WRITING * left)
            begin = end
    groups = balanced(found, weights, count)
    return [tuple(sorted(group, key=_in_order)) for group in groups]


def _in_order(one: Stretch) -> tuple[int, int, int]:
    return one.run, one.begin, one.end


def _check_sizes(written: Sequence[WrittenRows], most: int) -> None:
    """Give up on a file that one task might refuse: its shares are smaller than it."""
    sizes: dict[int, int] = {}
    for number, size in (each for one in written for each in one.size):
        sizes[number] = sizes.get(number, 0) + size
    if max(sizes.values(), default=0) > most // 2:
        raise GivenUp("a file near the limit of its size")


def _check_rows(folded: Sequence[Folded], written: Sequence[WrittenRows]) -> None:
    """Give up unless exactly those rows were written that the fold had left."""
    left = sum(rows for one in folded for run in one.count for rows in run)
    if left != sum(one.rows for one in written):
        raise GivenUp("stages that do not fit together")


def _once(folded: Sequence[Folded], taken: Sequence[Taken]) -> list[tuple[bytes, ...]]:
    """For each partition the bitmaps of its keys that had one row in the table."""
    once: list[tuple[bytes, ...]] = []
    looked = itertools.count()  # what was taken tells only of partitions that looked for something
    for one in folded:
        if not one.keys or not taken:
            once.append(())
            continue
        index = next(looked)
        found = [some.once[index] for some in taken] + [some.several[index] for some in taken]
        bitmaps = [BitMap.deserialize(some) for some in found]
        if len(BitMap.union(*bitmaps)) != sum(map(len, bitmaps)):
            raise GivenUp("a key with rows in files of several tasks")
        once.append(tuple(some.once[index] for some in taken))
    return once


def _result(
    batch: BatchTask,
    runs: Sequence[Sequence[InputShare]],
    read: Sequence[KeysRead],
    taken: Sequence[Taken],
    written: Sequence[WrittenRows],
) -> BatchResult:
    count, found = sum(one.rows for one in written), sum(one.rows for one in taken)
    updated = sum(one.updated for one in written)
    counted = [(0, 0, 0, 0) for _ in batch.landed]
    for some, one in zip(runs, read, strict=True):
        for share, rows in zip(some, one.rows, strict=True):
            a, b, c, d = counted[share.number]
            counted[share.number] = (a + rows[0], b + rows[1], c + rows[2], d + rows[3])
    return BatchResult(
        (*(a for one in taken for a in one.actions), *(a for one in written for a in one.actions)),
        Counts(count - updated, updated, found - updated, sum(one.beyond for one in taken)),
        read=tuple(counted),
        again=True,
    )
