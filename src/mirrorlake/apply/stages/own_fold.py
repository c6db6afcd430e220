"""Stages of a batch of few rows, in which each task reads and folds all keys for itself.

That takes less time than two more stages, whose tasks send each other keys, and the driver need not
divide the resulting rows: each task that writes does so, in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from mirrorlake.apply.stages.division import (
    GivenUp,
    keys_with_one_row,
    resulting_rows,
    stretches,
)
from mirrorlake.apply.stages.shares import InputShare
from mirrorlake.apply.stages.tasks import (
    Failed,
    Folded,
    KeysRead,
    Taken,
    WriteTask,
    WrittenRows,
    candidates_of,
    files_of,
    fold_keys,
    guarded,
    keys_and_markers,
    nothing_taken,
    take_from,
    write_rows,
)
from mirrorlake.apply.task.batch import BatchTask
from mirrorlake.errors import MirrorlakeError

NOTHING = WrittenRows((), 0, 0, ())


@dataclass(frozen=True, slots=True)
class FoundReport:
    """The report of a task. read: of each run of landed rows; rows: the number of resulting rows of
    the batch; taken: without row numbers."""

    read: tuple[KeysRead, ...]
    rows: int
    taken: Taken


@dataclass(frozen=True, slots=True)
class FoundBlock:
    """What the tasks that write get from each task. folded: with the row numbers from the first one
    only, because those of all are the same; taken: without actions."""

    read: tuple[KeysRead, ...]
    folded: Folded
    taken: Taken


def fold_and_take(
    batch: BatchTask, runs: Sequence[Sequence[InputShare]], tasks: int, task: int
) -> tuple[FoundReport | Failed, Sequence[FoundBlock | None]]:
    """Fold all keys, and delete their rows in the files of the table that are those of this one of
    `tasks` tasks. The blocks are None after an error, or with unchanged values."""
    done = guarded(batch, lambda: _fold_and_take(batch, runs, tasks, task))
    if isinstance(done, MirrorlakeError):
        return done, [None] * tasks
    report, block = done
    return report, [block] * tasks


def _fold_and_take(
    batch: BatchTask, runs: Sequence[Sequence[InputShare]], tasks: int, task: int
) -> tuple[FoundReport, FoundBlock | None]:
    found = [keys_and_markers(batch.rows, run) for run in runs]
    read = tuple(keys_read for keys_read, _keys, _marker in found)
    if any(keys_read.partial for keys_read in read):
        return FoundReport(read, 0, Taken()), None
    rows = [(keys, pa.array(marker), np.arange(len(marker))) for _read, keys, marker in found]
    folded, keys, replaced = fold_keys(batch, rows)
    group = files_of(batch, candidates_of(batch, keys), tasks, task)
    taken = take_from(batch, group, [(keys, replaced)]) if group else nothing_taken(1)
    return (
        FoundReport(read, folded.rows, replace(taken, once=(), several=())),
        FoundBlock(
            read, folded if task == 0 else replace(folded, left=()), replace(taken, actions=())
        ),
    )


def write_found(
    batch: BatchTask,
    runs: Sequence[Sequence[InputShare]],
    tasks: int,
    task: int,
    blocks: Sequence[FoundBlock | None],
) -> tuple[WrittenRows | Failed | str, Sequence[None]]:
    """Write those of the resulting rows that are those of this one of `tasks` tasks. Returns the
    reason, as text, if the batch has to be given up; nothing is written if a block is None."""
    given = [block for block in blocks if block is not None]
    if len(given) < len(blocks):
        return NOTHING, ()
    first, taken = given[0], [block.taken for block in given]
    if any((one.read, one.folded.sought) != (first.read, first.folded.sought) for one in given):
        return "stages that do not fit together", ()
    try:
        once = keys_with_one_row([first.folded], taken)
    except GivenUp as reason:
        return str(reason), ()
    groups = stretches(runs, first.read, resulting_rows([first.folded], once), tasks)
    if task >= len(groups):
        return NOTHING, ()
    return write_rows(WriteTask(batch, groups[task], any(one.rows for one in taken))), ()
