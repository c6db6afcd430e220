"""Computes the merge actions of a batch, for the strategy `merge`.

A batch is folded twice: first to get the keys whose existing rows have to be looked up, then to
compare it with these rows. Folding twice takes less time than sending the folded rows to another
task.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from mirrorlake.apply.commit_metadata import Rows, by_marker
from mirrorlake.apply.fold import LandedBatch, SoftDeletes, fold
from mirrorlake.apply.merge_actions import MergeAction, MergeActions, inserts_of, merge_actions
from mirrorlake.apply.task.errors import fault, missing_base_row, null_text
from mirrorlake.apply.task.existing_deletes import check_chunk, fold_chunk
from mirrorlake.apply.task.landed_rows import LandedPath, LandedRows
from mirrorlake.delta.partitions import NullText, check_texts
from mirrorlake.delta.write.rewrite import NoBaseRow, NoSuchRow
from mirrorlake.errors import MirrorlakeError, RowNotFound
from mirrorlake.mirror.engine import Counts
from mirrorlake.model.keys import KeyRange
from mirrorlake.model.net_changes import NetChanges


@dataclass(frozen=True, slots=True)
class MergeTask:
    """A batch, or a part of a load. gone: the number of rows that a truncation removes or marks, if
    it is known; keys, present: for a backfill chunk, its range and the existing keys in it;
    skip_equal: do not rewrite rows whose values do not change; soft: set with soft deletes."""

    rows: LandedRows
    landed: tuple[LandedPath, ...]
    truncate: bool = False
    gone: int | None = None
    keys: KeyRange | None = None
    present: pa.Table | None = None
    skip_equal: bool = False
    soft: SoftDeletes | None = None


@dataclass(frozen=True, slots=True)
class MergeReport:
    """The report of a task.

    needs: KEYS or COUNT if more has to be known before the merge actions can be computed; whole:
    whether all columns of the existing rows are needed; kinds: of the merge actions; read: rows of
    each landed file, by marker; marks: the values, one row, that a truncation with soft deletes
    gives to all rows that are not marked as deleted.
    """

    needs: str = ""
    whole: bool = False
    counts: Counts = field(default_factory=Counts)
    kinds: frozenset[MergeAction] = frozenset()
    read: tuple[Rows, ...] = ()
    error: MirrorlakeError | None = None
    marks: pa.Table | None = None


KEYS, COUNT = "the rows of its keys", "the number of rows"
"""Values of `MergeReport.needs`."""


@dataclass(frozen=True, slots=True)
class FoundRows:
    """The existing rows of the keys of a batch. code: int64, the number of the key of each; rows:
    with all columns, if these are needed."""

    code: np.ndarray
    rows: pa.Table | None


Read = tuple[NetChanges, tuple[Rows, ...]]


def first_fold(task: MergeTask) -> tuple[MergeReport, pa.Table | None]:
    """The merge actions of a batch if they do not depend on existing rows; otherwise a report of
    what is needed, and for KEYS the keys, with their numbers as the last column."""

    def fold_() -> tuple[MergeReport, pa.Table | None]:
        net, read = _read(task)
        if net.truncate and task.gone is None:
            return MergeReport(COUNT, read=read), None
        if net.truncate or net.is_append:
            report, rows = _reported(task, inserts_of(net, task.gone or 0), read)
            return replace(report, marks=net.marks), rows
        reset = np.flatnonzero(net.reset | (net.deleted is not None))
        keys = net.keys.take(pa.array(reset))
        columns = [*keys.columns, pa.array(reset, pa.int64())]
        numbered = pa.table(columns, names=[str(i) for i in range(len(columns))])
        kept = net.take is not None and net.rows.num_columns > net.keys.num_columns
        whole = kept or net.missing is not None or task.skip_equal or net.deleted is not None
        return MergeReport(KEYS, whole=whole, read=read), numbered

    return _guarded(task, fold_)


def second_fold(task: MergeTask, found: FoundRows) -> tuple[MergeReport, pa.Table | None]:
    """The merge actions of a batch, given the existing rows of its keys."""

    def fold_() -> tuple[MergeReport, pa.Table | None]:
        net, read = _read(task)
        actions = merge_actions(net, found.code, found.rows, skip_equal=task.skip_equal)
        return _reported(task, actions, read)

    return _guarded(task, fold_)


def _guarded(
    task: MergeTask, fold_: Callable[[], tuple[MergeReport, pa.Table | None]]
) -> tuple[MergeReport, pa.Table | None]:
    table = task.rows.table
    try:
        return fold_()
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
    if task.keys is not None:
        ((name, rows),) = files
        check_chunk(task.rows.table, name, task.keys, rows.data, task.rows.key)
    batch = LandedBatch(
        task.rows.table, schema, task.rows.key, files, task.truncate, whole, task.soft
    )
    net = fold(batch) if task.present is None else fold_chunk(batch, task.present)
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
