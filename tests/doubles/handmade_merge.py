"""The plain way without Spark: its tasks are the true ones, and the `MERGE` is one by the book.

What Spark looks up, counts and merges is done row by row, as the documentation of Delta says it.
The fence, the words for Delta and what it refuses are not here: tests on Spark are for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlake.apply.merge_actions import MergeAction
from mirrorlake.delta.write import rewrite
from mirrorlake.delta.write.data_files import removed
from mirrorlake.mirror.engine import Applied, Conflicted, Counts, Outcome
from mirrorlake.model.seams import CrashHook
from mirrorlake.spark.merge.merge_strategy import Merge
from mirrorlake.spark.merge.statements import Source
from mirrorlake.spark.merge.task import ACTION, CODE, MergeResult, column
from mirrorlake.spark.strategy import Begun
from mirrorlake.storage.store import Store
from tests.delta.handmade import HandmadeTable
from tests.histories import Shape, rows_of
from tests.reference import Row, identity

Image = tuple[str, Row]
Acted = tuple[int, Row]
"""An act, and its row."""


def merged(
    key: Sequence[int], source: Sequence[Acted], rows: Iterable[Row], *, truncate: bool
) -> tuple[list[Row], list[Image]]:
    """The rows after a `MERGE` of these acts, and its change images. key: the places of the key;
    truncate: rows that nothing of the source matches are deleted."""
    images: list[Image] = []
    left: list[Row] = []
    for row in rows:
        own = _key(key, row)
        matching = [
            (action, new)
            for action, new in source
            if action in {MergeAction.UPDATE, MergeAction.DELETE} and _key(key, new) == own
        ]
        assert len(matching) <= 1, "MERGE refuses several source rows for one row"
        if not matching and not truncate:
            left.append(row)
        elif matching and matching[0][0] == MergeAction.UPDATE:
            left.append(matching[0][1])
            images += [("update_preimage", row), ("update_postimage", matching[0][1])]
        else:
            images.append(("delete", row))
    new = [row for action, row in source if action == MergeAction.INSERT]
    return left + new, images + [("insert", row) for row in new]


class HandmadeMerge(Merge):
    """A `Merge` that needs neither Spark nor Delta."""

    def __init__(self, jobs: Any, store: Store, reached: CrashHook) -> None:
        super().__init__(jobs, SimpleNamespace(), store, reached)  # type: ignore[arg-type]
        self._sessions: Any = SimpleNamespace(active=nullcontext)

    def _count(self, session: Any, batch: Begun) -> int:
        return len(HandmadeTable(batch.location).rows())

    def _look_up(self, session: Any, batch: Begun, wanted: MergeResult, target: str) -> None:
        *keys, code = pq.read_table(wanted.keys).columns
        known = rows_of(pa.table(keys, [column(index) for index in range(len(keys))]))
        pairs = zip(known, code.to_pylist(), strict=True)
        numbers = {identity(key): number for key, number in pairs}
        rows = HandmadeTable(batch.location).rows()
        found = [(numbers.get(_key(_places(batch), row)), row) for row in rows]
        there = [(number, row) for number, row in found if number is not None]
        table = pa.table({CODE: pa.array([number for number, _row in there], pa.int64())})
        if wanted.whole:
            whole = _shape(batch).arrow(row for _number, row in there)
            for index, values in enumerate(whole.columns):
                table = table.append_column(column(index), values)
        Path(target).mkdir(parents=True)
        pq.write_table(table, Path(target, "found.parquet"))

    def _committed(
        self, session: Any, batch: Begun, source: Source, said: str, counts: Counts
    ) -> Outcome:
        table = HandmadeTable(batch.location)
        if table.log.snapshot().version != batch.version:
            return Conflicted("another writer was faster")
        acted = [one for path in source.files for one in _acted(path, batch)]
        assert {action for action, _row in acted} == source.does, "of others no clause is written"
        actions = _rewritten(table, batch, acted)
        number = {"version": batch.step.last, "lastUpdated": 0}
        actions.append({"txn": {"appId": batch.progress.application, **number}})
        return Applied(table.commit(actions, userMetadata=said), counts)


def _rewritten(table: HandmadeTable, batch: Begun, acted: Sequence[Acted]) -> list[dict[str, Any]]:
    """What it takes to carry acts out, and to tell their images: files in which nothing changes
    stay, as with Delta."""
    shape, schema, truncate = _shape(batch), batch.schema, batch.step.truncated
    changes = [one for one in acted if one[0] != MergeAction.INSERT]
    inserts = [one for one in acted if one[0] == MergeAction.INSERT]
    actions: list[dict[str, Any]] = []
    new, images = merged(shape.indexes, inserts, [], truncate=False)
    for add in table.files:
        rows = table.rows_in(table.path, add)
        left, changed = merged(shape.indexes, changes, rows, truncate=truncate)
        if changed:
            actions.append({"remove": removed(add)})
            actions += rewrite.written(table.path, schema, shape.arrow(left), list(shape.key))
            images += changed
    actions += rewrite.written(table.path, schema, shape.arrow(new), list(shape.key))
    told = shape.arrow(row for _kind, row in images)
    kinds = pa.array([kind for kind, _row in images], pa.string())
    return actions + (rewrite.told(table.path, told, kinds, schema) if images else [])


def _acted(path: str, batch: Begun) -> list[Acted]:
    """The rows of a source."""
    file = pq.read_table(path)
    acts = file[ACTION].to_pylist()
    names = [column(index) for index in range(len(batch.schema.schema))]
    return list(zip(acts, rows_of(file.select(names)), strict=True))


def _shape(batch: Begun) -> Shape:
    return Shape(batch.schema.schema, tuple(batch.step.key))


def _places(batch: Begun) -> tuple[int, ...]:
    return _shape(batch).indexes


def _key(indexes: Sequence[int], row: Row) -> tuple[Any, ...]:
    return identity(tuple(row[index] for index in indexes))
