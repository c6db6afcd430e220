"""What a batch means for a `MERGE`: the keys whose rows have to be known, and the merge actions.

A batch is folded twice. First its keys are needed, so that the rows which the table has of them can
be looked up, in whatever way the table is written; then the batch is compared with those rows. To
fold takes less than to send what was folded from one task to the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from mirrorlake.apply.commit_metadata import Rows, by_marker
from mirrorlake.apply.fold import LandedBatch, fold
from mirrorlake.apply.merge_actions import MergeAction, MergeActions, inserts_of, merge_actions
from mirrorlake.apply.task.errors import fault, missing_base_row, null_text
from mirrorlake.apply.task.gone_before import gone_before
from mirrorlake.apply.task.landed_rows import LandedPath, LandedRows
from mirrorlake.delta.partitions import NullText, check_texts
from mirrorlake.delta.write.rewrite import NoBaseRow, NoSuchRow
from mirrorlake.errors import MirrorlakeError, RowNotFound
from mirrorlake.mirror.engine import Counts
from mirrorlake.model.net import NetChanges


@dataclass(frozen=True, slots=True)
class MergeTask:
    """A batch, or a part of a load. deleted: how many rows a truncation removes, once they are
    counted; present: of a chunk of a backfill the keys that the table has in its range."""

    rows: LandedRows
    landed: tuple[LandedPath, ...]
    truncate: bool = False
    deleted: int | None = None
    present: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class MergeReport:
    """What a task did, or why it did nothing.

    needs: what has to be known before there are merge actions; whole: whether all columns of the
    rows that are looked up are needed, because values are missing; kinds: of the merge actions;
    read: rows of each landed file.
    """

    needs: str = ""
    whole: bool = False
    counts: Counts = field(default_factory=Counts)
    kinds: frozenset[MergeAction] = frozenset()
    read: tuple[Rows, ...] = ()
    error: MirrorlakeError | None = None


KEYS, COUNT = "the rows of its keys", "the number of rows"
"""What a report can need."""


@dataclass(frozen=True, slots=True)
class FoundRows:
    """The rows that the table has of the keys of a batch. code: int64, the number of the key of
    each; rows: with all columns, where these are needed."""

    code: np.ndarray
    rows: pa.Table | None


Read = tuple[NetChanges, tuple[Rows, ...]]


def first_look(task: MergeTask) -> tuple[MergeReport, pa.Table | None]:
    """The merge actions of a batch, when nothing of the table matters for them; otherwise what is
    needed, and for KEYS the keys, each with its number as the last column."""

    def look() -> tuple[MergeReport, pa.Table | None]:
        net, read = _read(task)
        if net.truncate and task.deleted is None:
            return MergeReport(COUNT, read=read), None
        if net.truncate or net.is_append:
            return _reported(task, inserts_of(net, task.deleted or 0), read)
        wanted = np.flatnonzero(net.reset)
        keys = net.keys.take(pa.array(wanted))
        columns = [*keys.columns, pa.array(wanted, pa.int64())]
        numbered = pa.table(columns, names=[str(i) for i in range(len(columns))])
        whole = net.missing is not None or task.present is not None
        return MergeReport(KEYS, whole=whole, read=read), numbered

    return _guarded(task, look)


def second_look(task: MergeTask, found: FoundRows) -> tuple[MergeReport, pa.Table | None]:
    """The merge actions of a batch, given the rows of its keys."""

    def look() -> tuple[MergeReport, pa.Table | None]:
        net, read = _read(task)
        spares_equal = task.present is not None
        actions = merge_actions(net, found.code, found.rows, spares_equal=spares_equal)
        return _reported(task, actions, read)

    return _guarded(task, look)


def _guarded(
    task: MergeTask, look: Callable[[], tuple[MergeReport, pa.Table | None]]
) -> tuple[MergeReport, pa.Table | None]:
    table = task.rows.table
    try:
        return look()
    except NoBaseRow:
        error: MirrorlakeError = missing_base_row(table, task.landed[0].name)
    except NoSuchRow:
        error = RowNotFound.of(table, task.landed[0].name)
    except NullText as found:
        error = null_text(table, found)
    except MirrorlakeError as found:
        error = found
    except Exception as found:  # noqa: BLE001  (it becomes the table's error)
        error = fault(table, found)
    return MergeReport(error=error), None


def _read(task: MergeTask) -> Read:
    schema = task.rows.schema.schema
    files = [(landed.name, task.rows.read(landed)) for landed in task.landed]
    whole = task.rows.whole_rows
    batch = LandedBatch(task.rows.table, schema, task.rows.key, files, task.truncate, whole)
    if task.present is not None:
        batch = replace(batch, files=[gone_before(batch, task.present), *files])
    net = fold(batch)
    return net, tuple(by_marker(rows.marker) for _name, rows in files)


def _reported(
    task: MergeTask, actions: MergeActions, read: tuple[Rows, ...]
) -> tuple[MergeReport, pa.Table]:
    """The merge actions: the columns of the table, and the action (int8) as the last one."""
    if partitions := task.rows.schema.partitions:
        written = np.isin(actions.action, [int(MergeAction.INSERT), int(MergeAction.UPDATE)])
        check_texts(actions.rows.filter(pa.array(written)), partitions)
    columns = [*actions.rows.columns, pa.array(actions.action)]
    rows = pa.table(columns, names=[str(i) for i in range(len(columns))])
    kinds = frozenset(MergeAction(int(kind)) for kind in np.unique(actions.action))
    return MergeReport(counts=actions.counts, kinds=kinds, read=read), rows
