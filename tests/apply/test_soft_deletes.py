"""Soft deletes: deleted rows stay and are marked, in every way in which rows are found."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from mirrorlake.mirror.engine import MirrorEngine
from mirrorlake.model import types
from mirrorlake.model.change import ROW_COMMIT_TIME, ROW_DELETED, ROW_POSITION, Marker
from mirrorlake.model.keys import KeyRange
from mirrorlake.model.landed import BackfillChunk
from mirrorlake.model.table import Column, Schema
from mirrorlake.storage.local import LocalStore
from tests.conformance.mirrored import Mirrored, Reader
from tests.delta.lookup_ways import Way, forced
from tests.doubles.handmade_engine import HandmadeReader, by_plain_columns, in_process_engine
from tests.histories import KEYLESS, SHAPES, Shape, as_file, counted, histories
from tests.profiles import some, tries
from tests.reference import UNCHANGED, Change, Row, Table, plain

TOLD = Shape.of(
    ["id"], id=types.LONG, v=types.STRING, **{ROW_POSITION: types.STRING}
)  # with a metadata column
_numbers = itertools.count(1)


KINDS = {"alone": {}, "partitioned": {"partitioned": True}, "merge": {"merges": True}}
"""How the engine is made: for batches in one task, into partitions, and by the merge strategy."""


def softly(shape: Shape) -> Shape:
    """The shape of the table, which has a column more than its files."""
    deleted = Column(ROW_DELETED, types.BOOLEAN)
    return Shape(Schema.of([*shape.schema, deleted]), shape.key)


class SoftTable:
    """A table with soft deletes, and its model."""

    def __init__(
        self,
        store: LocalStore,
        shape: Shape,
        *,
        partitioned: bool = False,
        merges: bool = False,
        engine: MirrorEngine | None = None,
        reader: Reader | None = None,
    ) -> None:
        partitions = by_plain_columns if partitioned else lambda _schema: ()
        engine = engine or in_process_engine(store, partitions=partitions, merges=merges)
        path = f"Tables/soft{next(_numbers)}"
        self.shape, whole = shape, softly(shape)
        self.mirrored = Mirrored(engine, store, reader or HandmadeReader(store), whole, path)
        self.mirrored.create(soft=True)
        names = shape.schema.names
        said = tuple(names.index(name) for name in names if name == ROW_POSITION)
        self.model = Table(whole.indexes, metadata=said, soft=len(names))

    def truncate(self) -> None:
        unknown = dict.fromkeys(self.model.metadata)
        self._check(self.mirrored.step(truncated=True, soft=True), self.model.truncate(unknown))

    def apply(self, *files: list[Change], **more: Any) -> None:
        changes = [Change(c.marker, (*c.row, False)) for file in files for c in file]
        landed = [as_file(self.shape, file) for file in files]
        step = self.mirrored.step(*landed, soft=True, **more)
        self._check(step, self.model.apply(changes))

    def backfill(self, *rows: Row) -> None:
        """A chunk of all keys has these rows."""
        changes = [Change(Marker.UPSERT, row) for row in rows]
        landed = as_file(self.shape, changes)
        step = self.mirrored.step(landed, soft=True, backfill=BackfillChunk("b", 1, KeyRange()))
        marked = [Change(one.marker, (*one.row, False)) for one in changes]
        self._check(step, self.model.backfill(marked, None, None, is_closed=False))

    def with_key(self, *key: str) -> SoftTable:
        """The same table with another key from now on, which its deleted rows do not have."""
        shape = Shape(self.shape.schema, key)
        self.shape, self.mirrored.shape = shape, softly(shape)
        self.model.key = shape.indexes
        return self

    def _check(self, step: Any, feed: Counter[tuple[str, Row]]) -> None:
        outcome = self.mirrored.run(step)
        assert counted(self.mirrored.rows()) == counted(self.model.rows)
        assert self.mirrored.feed(outcome.version) == feed  # type: ignore[union-attr]


@pytest.mark.full
@pytest.mark.parametrize("kind", ["alone", "partitioned", "merge"])
@pytest.mark.parametrize("way", some(list(Way), 2))
@settings(max_examples=tries(40), suppress_health_check=list(HealthCheck))
@given(history=histories([TOLD, TOLD, *SHAPES.values(), KEYLESS], batches=4))
def test_rows_and_feed_are_those_of_the_model(
    store: LocalStore, way: Way, kind: str, history: Any
) -> None:
    shape, landings = history
    table, hard = SoftTable(store, shape, **KINDS[kind]), shape.table()
    with forced(way):
        for landing in landings:
            if landing.truncate:
                table.truncate()
                hard.truncate()
            if landing.files:
                table.apply(*landing.files)
                hard.apply(landing.changes)
            live = [row[:-1] for row in table.model.rows if not row[-1]]
            assert Counter(map(plain, live)) == Counter(map(plain, hard.rows))


ORDERS = Shape.of(["id"], id=types.LONG, name=types.STRING)
INS, UPD, DEL = Marker.INSERT, Marker.UPDATE, Marker.DELETE


def rows_after(store: LocalStore, kind: str, *batches: list[tuple[Marker, Row]]) -> Counter[Row]:
    table = SoftTable(store, ORDERS, **KINDS[kind])
    for batch in batches:
        table.apply([Change(marker, row) for marker, row in batch])
    return Counter(table.mirrored.rows())


ONE, OTHER, GONE = (1, "a"), (1, "b"), (1, None)
LIVES: dict[str, tuple[list[list[tuple[Marker, Row]]], list[Row]]] = {
    "deleted": ([[(INS, ONE)], [(DEL, GONE)]], [(1, "a", True)]),
    "deleted at once": ([[(INS, ONE), (DEL, GONE)]], [(1, "a", True)]),
    "deleted after an update": ([[(INS, ONE)], [(UPD, OTHER), (DEL, GONE)]], [(1, "b", True)]),
    "inserted again": ([[(INS, ONE)], [(DEL, GONE)], [(INS, OTHER)]], [(1, "b", False)]),
    "inserted again at once": ([[(INS, ONE)], [(DEL, GONE), (INS, OTHER)]], [(1, "b", False)]),
    "again and again": ([[(INS, ONE), (DEL, GONE)], [(INS, OTHER), (DEL, GONE)]], [(1, "b", True)]),
    "deleted twice": ([[(INS, ONE)], [(DEL, GONE)], [(DEL, GONE), (DEL, GONE)]], [(1, "a", True)]),
    "never there": ([[(DEL, GONE)]], []),
    "twins": (
        [[(INS, ONE), (INS, OTHER)], [(DEL, GONE)]],
        [(1, "a", True), (1, "b", True)],
    ),
    "twins, then one": (
        [[(INS, ONE), (INS, OTHER)], [(DEL, GONE)], [(INS, ONE)]],
        [(1, "a", False)],
    ),
}


@pytest.mark.parametrize("kind", ["alone", "merge"])
@pytest.mark.parametrize("name", LIVES)
def test_rows_are_marked_as_deleted_and_restored(store: LocalStore, name: str, kind: str) -> None:
    batches, expected = LIVES[name]
    assert rows_after(store, kind, *batches) == Counter(expected)


def check_another_key(table: SoftTable) -> None:
    """Of the keys that it gets, "a" has a deleted row beside another one, "c" deleted rows alone.

    table: of TOLD, without rows.
    """
    rows = [(1, "a", "1:1"), (2, "a", "1:2"), (3, "b", "1:3"), (4, "c", "1:4"), (5, "c", "1:5")]
    table.apply([Change(INS, row) for row in rows])
    table.apply([Change(DEL, (n, None, "2:1")) for n in (1, 4, 5)])
    table.with_key("v")
    table.apply([Change(UPD, (UNCHANGED, "a", "3:1")), Change(INS, (6, "c", "3:2"))])
    assert counted(table.mirrored.rows()) == counted(
        [
            (1, "a", "2:1", True),
            (2, "a", "3:1", False),
            (3, "b", "1:3", False),
            (6, "c", "3:2", False),
        ]
    )
    table.apply([Change(DEL, (None, "a", "4:1")), Change(UPD, (7, "c", "4:2"))])
    assert counted(table.mirrored.rows()) == counted(
        [
            (1, "a", "2:1", True),
            (2, "a", "4:1", True),
            (3, "b", "1:3", False),
            (7, "c", "4:2", False),
        ]
    )
    table.apply([Change(INS, (8, "a", "5:1"))])  # takes the place of both


@pytest.mark.parametrize("kind", KINDS)
def test_with_another_key_deleted_rows_stay_beside_others(store: LocalStore, kind: str) -> None:
    check_another_key(SoftTable(store, TOLD, **KINDS[kind]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_backfill_leaves_deleted_rows_beside_others(store: LocalStore, kind: str) -> None:
    """Of the keys that the table gets, "a" has a deleted row beside another one, "c" deleted rows
    alone."""
    table = SoftTable(store, TOLD, **KINDS[kind])
    rows = [(1, "a", "1:1"), (2, "a", "1:2"), (3, "b", "1:3"), (4, "c", "1:4"), (5, "c", "1:5")]
    table.apply([Change(INS, row) for row in rows])
    table.apply([Change(DEL, (n, None, "2:1")) for n in (1, 4, 5)])
    table.with_key("v")
    table.backfill((2, "a", "1:2"), (3, "b", "1:3"))
    table.backfill((9, "a", "3:1"), (6, "c", "3:2"))
    assert counted(table.mirrored.rows()) == counted(
        [
            (1, "a", "2:1", True),
            (9, "a", "3:1", False),
            (3, "b", None, True),
            (6, "c", "3:2", False),
        ]
    )


def test_a_truncation_marks_all_rows_with_its_time(store: LocalStore) -> None:
    shape = Shape.of(
        ["id"], id=types.LONG, **{ROW_POSITION: types.STRING, ROW_COMMIT_TIME: types.TIMESTAMP}
    )
    table = SoftTable(store, shape)
    table.apply([Change(INS, (n, f"{n}:1", None)) for n in range(3)])
    table.apply([Change(DEL, (0, "5:1", None))])
    step = table.mirrored.step(truncated=True, soft=True, positions=("7:1", "7:1"))
    table._check(step, table.model.truncate({1: "7:1"}))
    found = {row[0]: row[1:] for row in table.mirrored.rows()}
    assert found == {
        0: ("5:1", None, True),
        1: ("7:1", None, True),
        2: ("7:1", None, True),
    }


def test_a_load_is_appended_without_a_lookup(store: LocalStore) -> None:
    table = SoftTable(store, ORDERS)
    table.apply([Change(INS, (n, "a")) for n in range(5)], is_load=True, appends=True)
    assert not any(row[-1] for row in table.mirrored.rows())
