"""Soft deletes of tables that are mirrored from a live PostgreSQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import psycopg
import pytest

from mirrorlake import root
from mirrorlake.capture.backfill.backfills import BackfillSettings
from mirrorlake.capture.backfill.jobs import BackfillRecords, BackfillRequest
from mirrorlake.capture.records.records import Records
from mirrorlake.model.change import ROW_COMMIT_TIME, ROW_DELETED, ROW_POSITION, ROW_TRANSACTION
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import Dying, EvolvingDatabase
from tests.conftest import Database
from tests.profiles import some, tries

pytestmark = pytest.mark.postgres

TEXT = "x" * 3_000
TABLES = (
    "create table apples (id int primary key, note text, size int)",
    "alter table apples alter note set storage external",
    f"insert into apples values (1, '{TEXT}', 1), (2, '{TEXT}', 2), (3, 'c', 3), (4, 'd', 4)",
    "create table notes (note text)",
    "insert into notes values ('a'), ('a')",
)
PATH = "Tables/public/apples"


@pytest.fixture
def evolving(database: Database, store: LocalStore) -> EvolvingDatabase:
    return EvolvingDatabase(database, store, metadata=True, soft=True)


def arrive(evolving: EvolvingDatabase) -> None:
    evolving.capture()
    evolving.apply()


def rows(evolving: EvolvingDatabase, *, deleted: bool, table: str = "apples") -> Counter[Any]:
    own = [name for name in evolving.columns(table) if not name.startswith("_mirrorlake_")]
    found = evolving.mirrored(table)
    assert {row[ROW_DELETED] for row in found} <= {True, False}
    return Counter(tuple(row[n] for n in own) for row in found if row[ROW_DELETED] is deleted)


def check(evolving: EvolvingDatabase, table: str = "apples") -> None:
    """The rows that are not deleted are those of the source, and the feed only updates others."""
    assert evolving.stopped() == {}
    with psycopg.connect(evolving.database.url) as connection:
        expected = Counter(connection.execute(f"select * from {table}").fetchall())
    assert rows(evolving, deleted=False, table=table) == expected
    played: Counter[Any] = Counter()
    for changes in evolving.reader.feed(f"Tables/public/{table}").values():
        for (kind, row), count in changes.items():
            assert kind != "delete"
            played[row] += count if kind in {"insert", "update_postimage"} else -count
    there = Counter(evolving.reader.rows(f"Tables/public/{table}"))
    assert {row: n for row, n in played.items() if n} == there


def test_a_deleted_row_stays_with_its_values_and_says_when(evolving: EvolvingDatabase) -> None:
    evolving.begin(*TABLES)
    evolving.run("update apples set size = 9 where id = 1", "delete from apples where id = 1")
    with psycopg.connect(evolving.database.url) as connection:
        connection.execute("delete from apples where id = 3")
        (number,) = connection.execute("select pg_current_xact_id()::text").fetchone() or ()
    arrive(evolving)
    check(evolving)
    assert rows(evolving, deleted=True) == Counter([(1, TEXT, 9), (3, "c", 3)])
    (third,) = [row for row in evolving.mirrored("apples") if row["id"] == 3]
    assert third[ROW_TRANSACTION] == number
    assert third[ROW_COMMIT_TIME] is not None
    evolving.run("insert into apples values (3, 'again', 3)")
    arrive(evolving)
    check(evolving)
    assert rows(evolving, deleted=True) == Counter([(1, TEXT, 9)])


def test_a_deleted_row_keeps_what_has_no_value_of_another_type(evolving: EvolvingDatabase) -> None:
    """Reading the table again cannot bring it back."""
    evolving.backfill = BackfillSettings(keeps_saved=True)
    evolving.begin(*TABLES)
    evolving.run("delete from apples where id = 3")
    arrive(evolving)
    evolving.run("alter table apples alter note type int using length(note)")
    evolving.run("insert into apples values (11, 5, 3)")
    arrive(evolving)
    evolving.run("update apples set size = 8 where id = 1")
    arrive(evolving)
    (saved,) = [name for name in evolving.columns("apples") if name.startswith("note_before_")]
    found = {row["id"]: row for row in evolving.mirrored("apples")}
    assert (found[3]["note"], found[3][saved]) == (None, "c")
    assert (found[1]["note"], found[1]["size"]) == (len(TEXT), 8)
    assert evolving.stopped() == {}


def test_a_changed_key_leaves_the_old_row_behind(evolving: EvolvingDatabase) -> None:
    evolving.begin(*TABLES)
    evolving.run("update apples set id = 8 where id = 1", "update apples set size = 7 where id = 8")
    arrive(evolving)
    check(evolving)
    assert rows(evolving, deleted=True) == Counter([(1, TEXT, 1)])


def test_with_another_key_deleted_rows_stay_beside_others(evolving: EvolvingDatabase) -> None:
    """The value that is not sent is that of the one row that is not deleted."""
    evolving.begin(*TABLES)
    evolving.run("delete from apples where id = 3", f"insert into apples values (5, '{TEXT}', 3)")
    arrive(evolving)
    evolving.run(
        "alter table apples drop constraint apples_pkey, alter size set not null, "
        "add primary key (size)",
        "update apples set id = 50 where size = 3",
    )
    arrive(evolving)
    check(evolving)
    assert rows(evolving, deleted=True) == Counter([(3, "c", 3)])
    evolving.run("delete from apples where size = 3")
    arrive(evolving)
    check(evolving)
    assert rows(evolving, deleted=True) == Counter([(3, "c", 3), (50, TEXT, 3)])


def test_a_truncation_marks_every_row(evolving: EvolvingDatabase) -> None:
    evolving.begin(*TABLES)
    evolving.run(
        "delete from apples where id = 4",
        "begin; insert into apples values (5, 'e', 5); truncate apples, notes; "
        "insert into apples values (1, 'new', 1); insert into notes values ('b'); commit",
    )
    arrive(evolving)
    for table in ("apples", "notes"):
        check(evolving, table)
    gone = [(2, TEXT, 2), (3, "c", 3), (4, "d", 4), (5, "e", 5)]
    assert rows(evolving, deleted=True) == Counter(gone)
    assert rows(evolving, deleted=True, table="notes") == Counter([("a",), ("a",)])
    found = {row["id"]: row for row in evolving.mirrored("apples")}
    assert found[2][ROW_POSITION] == found[5][ROW_POSITION] != found[4][ROW_POSITION]
    assert found[2][ROW_COMMIT_TIME] is not None


def backfilled(evolving: EvolvingDatabase, name: str) -> None:
    jobs = BackfillRecords(Records(evolving.store, root.LANDING))
    jobs.request(BackfillRequest(name, "public.apples", None, None, name))
    arrive(evolving)


def test_a_backfill_leaves_what_is_right(evolving: EvolvingDatabase) -> None:
    evolving.begin(*TABLES)
    evolving.run("delete from apples where id = 3")
    arrive(evolving)
    before, feed = evolving.mirrored("apples"), evolving.reader.feed(PATH)
    backfilled(evolving, "one")
    assert (evolving.mirrored("apples"), evolving.reader.feed(PATH)) == (before, feed)


PLUMS = (
    "create table plums (id int primary key, note text) partition by range (id)",
    "create table plums_1 partition of plums for values from (0) to (10)",
    "create table plums_2 partition of plums for values from (10) to (20)",
    "insert into plums values (1, 'a'), (11, 'b'), (12, 'c')",
)
ATTACH = "alter table plums attach partition plums_2 for values from (10) to (20)"


def test_a_backfill_marks_what_is_gone_and_clears_what_is_back(evolving: EvolvingDatabase) -> None:
    evolving.begin(*PLUMS)
    evolving.run("delete from plums where id = 11")
    evolving.live(["alter table plums detach partition plums_2"], each=True)
    check(evolving, "plums")
    assert rows(evolving, deleted=True, table="plums") == Counter([(11, "b"), (12, "c")])
    evolving.live(["insert into plums_2 values (11, 'back')", ATTACH], each=True)
    check(evolving, "plums")
    assert rows(evolving, deleted=True, table="plums") == Counter()


APPLYING = [CrashPoint.BATCH_WRITTEN, CrashPoint.COMMIT_BEGUN, CrashPoint.COMMITTED]


@pytest.mark.parametrize("point", some(APPLYING, 1))
def test_a_batch_that_is_applied_again_marks_once(
    evolving: EvolvingDatabase, point: CrashPoint
) -> None:
    evolving.begin(*TABLES)
    evolving.run(
        "delete from apples where id = 3", "truncate apples", "insert into apples (id) values (1)"
    )
    evolving.capture()
    assert evolving.apply(Dying(point))
    evolving.apply()
    check(evolving)
    gone = [(2, TEXT, 2), (3, "c", 3), (4, "d", 4)]
    assert rows(evolving, deleted=True) == Counter(gone)


MOVE = """update apples set id = {other}
    where id = {key} and not exists (select from apples where id = {other})"""


def statements_of(seed: int) -> Sequence[str]:
    chance = Random(seed)
    found = []
    for number in range(60):
        key, other = chance.sample(range(1, 8), 2)
        found.append(
            chance.choice(
                [
                    f"insert into apples values ({key}, 'n{number}', 0) on conflict do nothing",
                    f"insert into apples values ({key}, '{TEXT}', 0) on conflict do nothing",
                    f"update apples set size = size + 1 where id = {key}",
                    MOVE.format(key=key, other=other),
                    f"delete from apples where id = {key}",
                    f"delete from apples where id = {key}; insert into apples values ({key})",
                    "truncate apples"
                    if chance.random() < 0.2
                    else "delete from apples where id < 3",
                ]
            )
        )
    return found


@pytest.mark.full
@pytest.mark.parametrize("seed", some(range(tries(4)), 1))
def test_random_changes_leave_the_last_values_of_each_key(
    evolving: EvolvingDatabase, seed: int
) -> None:
    evolving.begin(*TABLES)
    last: dict[int, Any] = {}
    for number, statement in enumerate(statements_of(seed)):
        with psycopg.connect(evolving.database.url) as connection:
            before = {row[0]: row for row in connection.execute("select * from apples")}
            connection.execute(statement)
        last |= before
        if number % 17 == 16:
            evolving.capture()
        if number % 20 == 19:
            evolving.apply()
    arrive(evolving)
    check(evolving)
    with psycopg.connect(evolving.database.url) as connection:
        there = {key for (key,) in connection.execute("select id from apples")}
    expected = Counter(row for key, row in last.items() if key not in there)
    assert rows(evolving, deleted=True) == expected


def test_turning_it_off_stops_the_tables(evolving: EvolvingDatabase) -> None:
    evolving.begin(*TABLES)
    evolving.soft = False
    evolving.run("delete from apples where id = 3")
    evolving.capture()
    with pytest.raises(AssertionError, match="was soft when the table was created"):
        evolving.apply()
    evolving.soft = True
    evolving.apply()
    check(evolving)
