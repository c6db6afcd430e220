"""Columns of a table change at a live source, and the mirror lives through it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import psycopg
import pytest

from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.storage.local import LocalStore
from tests.app.conftest import in_turn
from tests.app.evolving_database import Dying, EvolvingDatabase
from tests.conftest import Database
from tests.doubles.memory_store import Crash
from tests.profiles import some

pytestmark = pytest.mark.postgres

APPLES = (
    "create table apples (id int primary key, size int, weight int, note text)",
    "insert into apples values (1, 10, 100, 'a'), (2, null, 200, null), (3, 30, null, 'c')",
    "create table log (id int primary key)",
)
BEFORE = "insert into apples (id, weight) values (11, 1); delete from apples where id = 3"
COUNT = "insert into log select count(*) from log"
AFTER = "insert into apples (id, weight) values (21, 2); update apples set weight = 7 where id = 1"
TEXT = "x" * 10_000
EXCHANGE = """
    alter table apples rename size to other;
    alter table apples rename weight to size;
    alter table apples rename other to weight
"""
RING = """
    alter table apples rename size to other;
    alter table apples rename weight to size;
    alter table apples rename c to weight;
    alter table apples rename other to c
"""
TOGETHER = """
    insert into apples (id, weight, note) values (5, 5, 'old');
    alter table apples rename note to remark;
    update apples set remark = 'new' where id = 1;
    alter table apples add column c int default 7;
    insert into apples (id, weight, remark, c) values (6, 6, 'x', 8)
"""

CHANGES: dict[str, Sequence[str]] = {
    "constant default": ["alter table apples add column c int default 7"],
    "default of its time": ["alter table apples add column c timestamptz default now()"],
    "text default": ["alter table apples add column c text not null default 'it''s, {\"x\"}'"],
    "numeric default": ["alter table apples add column c numeric(9, 2) default 1.5"],
    "no default": ["alter table apples add column c int"],
    "default that was changed": [
        "alter table apples add column c int default 7",
        "alter table apples alter column c set default 8",
    ],
    "renamed": ["alter table apples rename note to remark"],
    "renamed and back": [
        "alter table apples rename note to remark",
        "insert into apples (id, weight, remark) values (5, 5, 'x')",
        "alter table apples rename remark to note",
    ],
    "exchanged": [EXCHANGE],
    "in a ring": [
        "alter table apples add column c int default 9",
        RING,
    ],
    "name used again": [
        "alter table apples rename note to remark",
        "alter table apples add column note text",
    ],
    "name used again, with a default": [
        "alter table apples drop column note",
        "insert into apples (id, weight) values (5, 5)",
        "alter table apples add column note text default 'new'",
    ],
    "dropped": ["alter table apples drop column note"],
    "several": [
        "alter table apples rename note to remark",
        "alter table apples add column c int default 7",
        "update apples set size = size + 1, c = 8 where id = 1",
        "alter table apples rename c to d",
        "alter table apples drop column remark",
    ],
    "in one transaction with rows": [
        TOGETHER,
    ],
    "with a value that is not sent": [
        f"insert into apples (id, weight, note) values (5, 5, repeat('{TEXT}', 3))",
        "alter table apples alter column note set storage external",
        f"update apples set note = repeat('{TEXT}', 3) where id = 2",
        "alter table apples rename note to remark",
        "update apples set size = 1 where id in (2, 5)",
    ],
    "emptied": [
        "alter table apples rename note to remark",
        "truncate apples",
        "insert into apples (id, weight) values (1, 1)",
    ],
}


@pytest.mark.full
@pytest.mark.parametrize("statements", some(CHANGES.values(), 5), ids=CHANGES)
def test_a_table_is_equal_after_its_columns_have_changed(
    evolving: EvolvingDatabase, statements: Sequence[str]
) -> None:
    evolving.run(*APPLES)
    evolving.capture()
    evolving.run(BEFORE, *statements, AFTER)
    evolving.capture()
    evolving.apply()
    evolving.check("apples")
    evolving.run("update apples set weight = 8", "insert into log values (1)")
    evolving.capture()
    evolving.apply()
    evolving.check("apples")


AT_ONCE = {
    "another name": "alter table apples drop note, add c int default 7",
    "its name": "alter table apples drop note, add note text default 'new'",
    "its name, taken": """
        alter table apples rename note to remark; alter table apples drop size, add note text;
        alter table apples rename weight to size; alter table apples rename remark to weight
    """,
}


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "is_last"), some([(name, is_last) for is_last in (False, True) for name in AT_ONCE], 2)
)
def test_a_transaction_with_rows_that_drops_and_adds_a_column_is_lived_through(
    evolving: EvolvingDatabase, name: str, *, is_last: bool
) -> None:
    evolving.begin(*APPLES)
    change = AT_ONCE[name]
    rows = "insert into apples (id) values (6); update apples set size = null where id = 1"
    evolving.run(f"{BEFORE}; {change}" if is_last else f"{BEFORE}; {change}; {rows}")
    evolving.capture()  # which has not seen a row of the table before
    evolving.apply()
    evolving.run("delete from apples where id = 2")
    evolving.capture()
    evolving.apply()
    evolving.check("apples")
    assert evolving.read_again()


@pytest.mark.full
@pytest.mark.parametrize("statements", some(CHANGES.values(), 2), ids=CHANGES)
def test_a_table_is_equal_when_every_statement_is_seen_at_once(
    evolving: EvolvingDatabase, statements: Sequence[str]
) -> None:
    evolving.run(*APPLES)
    evolving.live([BEFORE, *statements, AFTER], each=True, beside=[COUNT])
    evolving.check("apples")


POINTS = [
    CrashPoint.CHANGES_STAGED,
    CrashPoint.CHANGES_PUBLISHED_ONE,
    CrashPoint.CHANGES_PUBLISHED,
    CrashPoint.CUT_WRITTEN,
    CrashPoint.ACKNOWLEDGED,
]
APPLYING = [
    CrashPoint.COLUMNS_ADDED,
    CrashPoint.COLUMNS_WRITTEN,
    CrashPoint.COLUMNS_ALTERED,
    CrashPoint.COMMIT_BEGUN,
    CrashPoint.COMMITTED,
]
EXCHANGED = (
    "insert into apples (id, weight) values (11, 1)",
    *CHANGES["in a ring"],
    "insert into apples (id, weight, size) values (12, 1, 2); insert into log values (1)",
    "alter table apples rename weight to mass",
    "insert into apples (id, mass, size) values (13, 1, 2)",
)


@pytest.mark.full
@pytest.mark.parametrize(("point", "times"), some([(p, n) for p in POINTS for n in (1, 2)], 3))
def test_columns_are_altered_once_when_capture_dies(
    evolving: EvolvingDatabase, point: CrashPoint, times: int
) -> None:
    evolving.run(*APPLES)
    evolving.capture()
    dying = Dying(point, times)
    with suppress(Crash), evolving.capturing(dying) as capture:
        for statement in EXCHANGED:
            evolving.run(statement)
            capture.once()
    assert dying.left == 0
    evolving.run(
        "insert into log values (100)",
        "insert into apples (id, size) values (100, 1)",
    )
    evolving.capture()
    evolving.apply()
    evolving.check("apples")


@pytest.mark.full
@pytest.mark.parametrize(("point", "times"), some([(p, n) for p in APPLYING for n in (1, 2)], 3))
def test_columns_are_altered_once_when_apply_dies(
    evolving: EvolvingDatabase, point: CrashPoint, times: int
) -> None:
    evolving.run(*APPLES)
    evolving.capture()
    evolving.apply()
    evolving.run(*EXCHANGED)
    evolving.capture()
    assert evolving.apply(Dying(point, times))
    evolving.apply()
    evolving.check("apples")


@pytest.mark.full
@pytest.mark.parametrize(
    ("source_database", "name"), in_turn([*CHANGES]), indirect=["source_database"]
)
def test_columns_that_are_dropped_in_the_source_are_dropped_in_the_table(
    evolving: EvolvingDatabase, name: str
) -> None:
    evolving.drops = True
    evolving.begin(*APPLES)
    evolving.live([BEFORE, *CHANGES[name], AFTER], each=True, beside=[COUNT])
    evolving.check("apples")
    with psycopg.connect(evolving.database.url) as connection:
        described = connection.execute("select * from apples").description or ()
    assert set(evolving.columns("apples")) == {column.name for column in described}


DROPPED = (
    "alter table apples drop column note, add column c int default 7",
    "insert into apples (id, c) values (11, 1); update apples set weight = 7 where id = 1",
    "alter table apples rename size to width",
    "alter table apples add column note int",
    "insert into apples (id, note) values (12, 1); insert into log values (1)",
)


@pytest.mark.full
@pytest.mark.parametrize(
    ("source_database", "point"),
    in_turn([*APPLYING, CrashPoint.PROPERTIES_SET]),
    indirect=["source_database"],
)
def test_a_column_is_dropped_after_a_crash(evolving: EvolvingDatabase, point: CrashPoint) -> None:
    evolving.drops = True
    evolving.begin(*APPLES)
    evolving.run(*DROPPED)
    evolving.capture()
    assert evolving.apply(Dying(point))
    evolving.apply()
    evolving.check("apples")
    assert set(evolving.columns("apples")) == {"id", "width", "weight", "c", "note"}


IGNORED = (
    "alter table apples add column c int default 7",
    "insert into apples (id, c) values (11, 1); update apples set c = 3, size = 1 where id = 2",
    "alter table apples rename size to width",
    "update apples set width = 5 where id = 1; insert into log values (1)",
    "alter table apples rename c to d",
    "insert into apples (id, d) values (12, 1); insert into log values (2)",
    "alter table apples rename note to d_; alter table apples rename d to note",
    "delete from apples where id = 3; insert into log values (3)",
    "update apples set d_ = 'x' where id = 1",
)


@pytest.mark.full
@pytest.mark.parametrize("each", [True, False])
def test_columns_that_are_added_may_be_ignored(
    database: Database, store: LocalStore, *, each: bool
) -> None:
    evolving = EvolvingDatabase(database, store, ignores=True)
    evolving.begin(*APPLES)
    evolving.live(IGNORED, each=each)
    evolving.check("apples", columns="id, width, weight, d_")
    assert evolving.columns("apples") == ["id", "size", "weight", "note", "width", "d_"]


STOPS = {
    SchemaChangeKind.TYPE_WIDENED: "alter table apples alter column weight type bigint",
    SchemaChangeKind.TYPE_CHANGED: "alter table apples alter column price type text",
    SchemaChangeKind.KEY_CHANGED: "alter table apples drop constraint apples_pkey, "
    "replica identity full",
    SchemaChangeKind.COLUMN_ADDED: "alter table apples add column c int",
    SchemaChangeKind.COLUMN_DROPPED: "alter table apples drop column note",
    SchemaChangeKind.COLUMN_RENAMED: "alter table apples rename size to width",
}


@pytest.mark.parametrize("kind", some(list(STOPS)))
def test_a_project_may_want_a_table_to_stop(
    database: Database, store: LocalStore, kind: SchemaChangeKind
) -> None:
    evolving = EvolvingDatabase(database, store, stops_at=frozenset({kind}))
    evolving.run(*APPLES, "alter table apples add column price int")
    evolving.capture()
    for number, other in enumerate(STOPS.values(), 101):
        if other != STOPS[kind]:
            evolving.run(other, f"insert into apples (id) values ({number})")
            evolving.capture()
    assert evolving.stopped() == {}
    evolving.run(STOPS[kind], "insert into apples (id) values (11)", "insert into log values (1)")
    evolving.capture()
    assert set(evolving.stopped()) == {"public.apples"}
    assert "mirrorlake reset public.apples" in evolving.stopped()["public.apples"]


def test_what_a_strict_zone_cannot_tell_stops_the_table(
    database: Database, store: LocalStore
) -> None:
    evolving = EvolvingDatabase(database, store, strict=True)
    evolving.run(*APPLES)
    evolving.capture()
    evolving.run("alter table apples add column c int", "insert into apples (id) values (10)")
    evolving.capture()
    assert evolving.stopped() == {}
    evolving.run("alter table apples rename c to d", "insert into apples (id) values (11)")
    evolving.capture()
    assert "strict landing zone" in evolving.stopped()["public.apples"]


def test_an_append_only_table_lives_through_changes_of_columns(evolving: EvolvingDatabase) -> None:
    evolving.run("create table pears (size int, note text)", "insert into pears values (1, 'a')")
    evolving.run("alter table pears replica identity nothing")
    evolving.capture()
    evolving.run("alter table pears add column c int default 7", "insert into pears values (2)")
    evolving.run("alter table pears rename c to d", "insert into pears values (2, 'b', 3)")
    evolving.capture()
    evolving.run("alter table pears add e int default random() * 9", "insert into pears values (2)")
    evolving.capture()
    evolving.apply()
    evolving.check("pears")
