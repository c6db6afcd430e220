"""The plain way without Spark: its tasks are the true ones, and the `MERGE` is one by the book.

What Spark looks up, counts and merges is done row by row, as the documentation of Delta says it.
The fence, the words for Delta and what it refuses are not here: tests on Spark are for them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from mirrorlake.apply.commit_metadata import commit_metadata
from mirrorlake.apply.committer import BatchCommit, Committer, CompactionCommit
from mirrorlake.apply.in_process.committer import LogCommitter
from mirrorlake.apply.merge_actions import MergeAction
from mirrorlake.apply.runner import Runner
from mirrorlake.apply.strategy import OpenBatch
from mirrorlake.apply.task.batch import as_texts
from mirrorlake.apply.task.compact import CompactTask, run_compact
from mirrorlake.apply.task.landed_rows import landed_paths
from mirrorlake.apply.task.merge import (
    COUNT,
    KEYS,
    FoundRows,
    MergeReport,
    MergeTask,
    first_fold,
    second_fold,
)
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.delta.schema import TableSchema
from mirrorlake.delta.write import rewrite
from mirrorlake.delta.write.data_files import removed
from mirrorlake.errors import MirrorlakeError
from mirrorlake.landing.file_identity import Identity, first_changed
from mirrorlake.mirror.compaction import small_files as compaction
from mirrorlake.mirror.compaction.optimize import Join, Purge
from mirrorlake.mirror.engine import Conflicted, Failed, Outcome
from mirrorlake.mirror.table.progress import KEY_COLUMNS
from mirrorlake.model.change import ROW_DELETED
from mirrorlake.model.crash_points import CrashHook, CrashPoint
from mirrorlake.model.keys import KeyRange
from mirrorlake.storage.store import Store
from tests.delta.handmade import HandmadeTable
from tests.histories import Shape, rows_of
from tests.reference import Row, identity

Image = tuple[str, Row]
Acted = tuple[int, Row]
"""An act, and its row."""


UPDATES = {MergeAction.UPDATE, MergeAction.UPDATE_OF_DELETED}
DELETES = {MergeAction.DELETE, MergeAction.DELETE_OF_DELETED}


def merged(
    key: Sequence[int],
    source: Sequence[Acted],
    rows: Iterable[Row],
    *,
    truncate: bool,
    soft: int | None = None,
) -> tuple[list[Row], list[Image]]:
    """The rows after a `MERGE` of these acts, and its change images. key: the places of the key;
    truncate: rows that nothing of the source matches are deleted; soft: the place of what marks
    rows as deleted."""
    images: list[Image] = []
    left: list[Row] = []
    for row in rows:
        own = _key(key, row)
        matching = [
            (action, new)
            for action, new in source
            if action in UPDATES | DELETES and _key(key, new) == own and _reaches(action, row, soft)
        ]
        assert len(matching) <= 1, "MERGE refuses several source rows for one row"
        if not matching and not truncate:
            left.append(row)
        elif matching and matching[0][0] in UPDATES:
            left.append(matching[0][1])
            images += [("update_preimage", row), ("update_postimage", matching[0][1])]
        else:
            images.append(("delete", row))
    new = [row for action, row in source if action == MergeAction.INSERT]
    return left + new, images + [("insert", row) for row in new]


def _reaches(action: int, row: Row, soft: int | None) -> bool:
    if soft is None:
        return True
    of_deleted = action in {MergeAction.UPDATE_OF_DELETED, MergeAction.DELETE_OF_DELETED}
    return of_deleted == bool(row[soft])


class HandmadeMerge:
    """A `Strategy` by the merge actions of the true tasks, and a `MERGE` by the book."""

    def __init__(self, store: Store, reached: CrashHook) -> None:
        self._store, self._reached = store, reached

    def apply(
        self, batches: Sequence[OpenBatch], before_commit: Callable[[], None]
    ) -> Sequence[Outcome]:
        return [self._apply(batch, before_commit) for batch in batches]

    def _apply(self, batch: OpenBatch, before_commit: Callable[[], None]) -> Outcome:
        step = batch.step
        landed = tuple(landed_paths(self._store, step.files))
        task = MergeTask(
            batch.rows(), landed, step.truncated, skip_equal=step.skip_equal, soft=batch.soft
        )
        if step.backfill:
            task = replace(task, present=_present(batch, step.backfill.keys))
        report, source = self._look(batch, task)
        if report.error is not None:
            return Failed(report.error)
        assert source is not None
        self._reached(CrashPoint.BATCH_WRITTEN)
        if step.names and (file := first_changed(self._store, step.files)):
            return Conflicted(f"{file.name} changed while it was read")
        try:
            before_commit()
        except MirrorlakeError as error:
            return Failed(error)
        self._reached(CrashPoint.COMMIT_BEGUN)
        outcome = self._committed(batch, source, report)
        self._reached(CrashPoint.COMMITTED)
        return outcome

    def _look(self, batch: OpenBatch, task: MergeTask) -> tuple[MergeReport, pa.Table | None]:
        report, rows = first_fold(task)
        table = HandmadeTable(batch.location)
        if report.needs == COUNT:
            gone = [row for row in table.rows() if not (task.soft and _is_deleted(batch, row))]
            return first_fold(replace(task, gone=len(gone)))
        if report.needs != KEYS:
            return report, rows
        assert rows is not None
        *keys, code = rows.columns
        known = rows_of(pa.table(keys, [str(n) for n in range(len(keys))]))
        numbers = {identity(k): n for k, n in zip(known, code.to_pylist(), strict=True)}
        found = [(numbers.get(_key(_shape(batch).indexes, row)), row) for row in table.rows()]
        there = [(number, row) for number, row in found if number is not None]
        whole = _shape(batch).arrow(row for _number, row in there) if report.whole else None
        codes = np.array([number for number, _row in there], np.int64)
        return second_fold(task, FoundRows(codes, whole))

    def _committed(self, batch: OpenBatch, source: pa.Table, report: MergeReport) -> Outcome:
        acted = _acted(source, batch)
        assert {action for action, _row in acted} == report.kinds, "of others no clause is written"
        table = HandmadeTable(batch.location)
        if report.marks is None:
            actions = _rewritten(table, batch, acted)
        else:
            assert not acted
            actions = _all_marked(table, batch, report.marks)
        said = commit_metadata(
            batch.step,
            batch.progress,
            report.counts,
            report.read,
            lambda file: Identity.of(self._store, file),
        )
        return LogCommitter().commit(
            BatchCommit(
                str(batch.step.table),
                batch.location,
                batch.version,
                batch.progress.application,
                batch.step.last,
                as_texts(actions),
                report.counts,
                said,
            )
        )


class HandmadeOptimizer:
    """An `Optimizer` whose commands are carried out by our own tasks: to the merge strategy that is
    work of others."""

    def __init__(self, runner: Runner, committer: Committer) -> None:
        self._runner, self._committer = runner, committer

    def run(
        self, table: str, location: str, schema: TableSchema, command: Join | Purge
    ) -> Outcome | None:
        snapshot = TableLog(location).snapshot()
        chosen = compaction.choose(list(snapshot.files.values()))
        if not chosen:
            return None
        key = tuple(json.loads(snapshot.properties.get(KEY_COLUMNS, "[]")))
        (result,) = self._runner.run(
            run_compact, [CompactTask(table, location, schema, key, chosen)]
        )
        if result.error is not None:
            return Failed(result.error)
        return self._committer.compact(
            CompactionCommit(table, location, snapshot.version, result.actions)
        )


def _rewritten(
    table: HandmadeTable, batch: OpenBatch, acted: Sequence[Acted]
) -> list[dict[str, Any]]:
    """What it takes to carry acts out, and to tell their images: files in which nothing changes
    stay, as with Delta."""
    shape, schema, truncate = _shape(batch), batch.schema, batch.step.truncated
    soft = schema.schema.names.index(ROW_DELETED) if batch.soft else None
    changes = [one for one in acted if one[0] != MergeAction.INSERT]
    inserts = [one for one in acted if one[0] == MergeAction.INSERT]
    actions: list[dict[str, Any]] = []
    new, images = merged(shape.indexes, inserts, [], truncate=False)
    for add in table.files:
        rows = table.rows_in(table.path, add)
        left, changed = merged(shape.indexes, changes, rows, truncate=truncate, soft=soft)
        if changed:
            actions.append({"remove": removed(add)})
            actions += rewrite.write_data_files(
                table.path, schema, shape.arrow(left), list(shape.key)
            )
            images += changed
    actions += rewrite.write_data_files(table.path, schema, shape.arrow(new), list(shape.key))
    told = shape.arrow(row for _kind, row in images)
    kinds = pa.array([kind for kind, _row in images], pa.string())
    return actions + (rewrite.write_changes(table.path, told, kinds, schema) if images else [])


def _all_marked(table: HandmadeTable, batch: OpenBatch, marks: pa.Table) -> list[dict[str, Any]]:
    """What it takes to update every row that is not marked as deleted."""
    shape, schema, actions = _shape(batch), batch.schema, list[dict[str, Any]]()
    (values,) = marks.to_pylist()
    before: list[Row] = []
    after: list[Row] = []
    for add in table.files:
        rows = table.rows_in(table.path, add)
        live = [row for row in rows if not _is_deleted(batch, row)]
        new = [
            tuple(values.get(n, v) for n, v in zip(shape.schema.names, row, strict=True))
            for row in live
        ]
        left = [row for row in rows if _is_deleted(batch, row)] + new
        before, after = before + live, after + new
        if live:
            actions.append({"remove": removed(add)})
            actions += rewrite.write_data_files(
                table.path, schema, shape.arrow(left), list(shape.key)
            )
    kinds = ["update_preimage"] * len(before) + ["update_postimage"] * len(after)
    told = shape.arrow([*before, *after])
    return actions + (
        rewrite.write_changes(table.path, told, pa.array(kinds, pa.string()), schema)
        if kinds
        else []
    )


def _is_deleted(batch: OpenBatch, row: Row) -> bool:
    return bool(row[batch.schema.schema.names.index(ROW_DELETED)])


def _present(batch: OpenBatch, keys: KeyRange) -> pa.Table:
    """The keys of the table within a range."""
    shape = _shape(batch)
    held = shape.arrow(HandmadeTable(batch.location).rows()).select(list(shape.key))
    return held.filter(pa.array(keys.contains(held)))


def _acted(source: pa.Table, batch: OpenBatch) -> list[Acted]:
    """The merge actions, each with its row."""
    *columns, actions = source.columns
    rows = pa.table(columns, [str(n) for n in range(len(batch.schema.schema))])
    return list(zip(actions.to_pylist(), rows_of(rows), strict=True))


def _shape(batch: OpenBatch) -> Shape:
    return Shape(batch.schema.schema, tuple(batch.key))


def _places(batch: OpenBatch) -> tuple[int, ...]:
    return _shape(batch).indexes


def _key(indexes: Sequence[int], row: Row) -> tuple[Any, ...]:
    return identity(tuple(row[index] for index in indexes))
