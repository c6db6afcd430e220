"""Runs the stages of one batch; the tasks of a stage depend on the results of earlier stages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeVar

from mirrorlake.apply.runner import Runner
from mirrorlake.apply.stages.division import (
    GivenUp,
    keys_with_one_row,
    resulting_rows,
    stretches,
)
from mirrorlake.apply.stages.own_fold import FoundReport, fold_and_take, write_found
from mirrorlake.apply.stages.shares import InputShare, shares
from mirrorlake.apply.stages.tasks import (
    Folded,
    KeysRead,
    ReadTask,
    Taken,
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

T = TypeVar("T")

_Results = tuple[Sequence[KeysRead], Sequence[Taken], Sequence[WrittenRows], int]
"""Of the stages, and the number of resulting rows."""


class StagePlan:
    """The stages of one batch. tasks: maximum number of tasks per stage; exchange: tasks send each
    other keys, and do not fold all of them for themselves."""

    def __init__(
        self,
        batch: BatchTask,
        runner: Runner,
        tasks: int,
        reached: CrashHook,
        *,
        exchange: bool = True,
    ) -> None:
        self._batch, self._runner, self._tasks, self._reached = batch, runner, tasks, reached
        self._bare, self._exchange = without_files(batch), exchange

    def run(self) -> BatchResult:
        """Run all stages. Raises GivenUp, TasksDied."""
        runs = shares(self._batch.landed, self._tasks)
        if self._exchange:
            read, taken, written, rows = self._exchanged(runs)
        else:
            read, taken, written, rows = self._folded_by_each(runs)
        self._reached(CrashPoint.STAGE_WRITTEN)
        _check_sizes(written, self._batch.rows.row_checks.file_bytes)
        if rows != sum(result.rows for result in written):
            raise GivenUp("stages that do not fit together")
        return _result(self._batch, runs, read, taken, written)

    def _exchanged(self, runs: Sequence[tuple[InputShare, ...]]) -> _Results:
        """In two jobs; the tasks of the first one send each other keys."""
        read, folded, taken = self._read_fold_take(runs)
        self._reached(CrashPoint.STAGE_WRITTEN)
        left = resulting_rows(folded, keys_with_one_row(folded, taken))
        groups = stretches(runs, read, left, self._tasks)
        images = any(result.rows for result in taken)
        tasks = [WriteTask(self._bare, group, images) for group in groups]
        written = _done(self._runner.run(write_rows, tasks))
        return read, taken, written, sum(len(rows) for rows, _updated in left)

    def _folded_by_each(self, runs: Sequence[tuple[InputShare, ...]]) -> _Results:
        """In one job, each of whose tasks folds all keys."""
        first = partial(fold_and_take, self._batch, runs, self._tasks)
        later = partial(write_found, self._bare, runs, self._tasks)
        found = self._runner.chain(first, range(self._tasks), [later], self._tasks)
        reports: list[FoundReport] = _done(found[0])
        _check_whole(reports[0].read)
        written = []
        for result in _done(found[1]):
            if isinstance(result, str):
                raise GivenUp(result)
            written.append(result)
        return reports[0].read, [one.taken for one in reports], written, reports[0].rows

    def _read_fold_take(
        self, runs: Sequence[tuple[InputShare, ...]]
    ) -> tuple[Sequence[KeysRead], list[Folded], list[Taken]]:
        tasks = [ReadTask(self._bare, run, self._tasks) for run in runs]
        later = [partial(work, self._batch, self._tasks) for work in (fold_partition, take_rows)]
        found = self._runner.chain(read_keys, tasks, later, self._tasks)
        read: list[KeysRead] = _done(found[0])
        _check_whole(read)
        if len({keys.hasher for keys in read}) > 1:
            raise GivenUp("executors with different releases of DuckDB")
        folded, taken = _done(found[1]), _done(found[2])
        _check_lengths(folded, taken, len(runs), self._tasks)
        return read, folded, taken


def _check_whole(read: Sequence[KeysRead]) -> None:
    """Give up if there are unchanged values."""
    if any(keys.partial for keys in read):
        raise GivenUp("values that the source did not send")


def _done(results: Sequence[T | MirrorlakeError]) -> list[T]:
    """The results of a stage. Raises GivenUp if one is an error, which the batch in one task
    will report with all details."""
    done: list[T] = []
    for result in results:
        if isinstance(result, MirrorlakeError):
            raise GivenUp(result.code)
        done.append(result)
    return done


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
