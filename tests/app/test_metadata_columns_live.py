"""Metadata columns of tables that are mirrored from a live PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from mirrorlake import root
from mirrorlake.capture.backfill.jobs import BackfillRecords, BackfillRequest
from mirrorlake.capture.records.records import Records
from mirrorlake.model.change import METADATA_COLUMNS, ROW_COMMIT_TIME, ROW_POSITION, ROW_TRANSACTION
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.model.position import Lsn, Position
from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import Dying, EvolvingDatabase
from tests.conftest import Database
from tests.profiles import some

pytestmark = pytest.mark.postgres

TEXT = "x" * 3_000
TABLES = (
    "create table apples (id int primary key, note text, size int)",
    "alter table apples alter note set storage external",
    f"insert into apples values (1, '{TEXT}', 1), (2, '{TEXT}', 2), (3, 'c', 3)",
    "create table pears (size int, note text)",
    "alter table pears replica identity full",
    "insert into pears values (1, 'a'), (1, 'a'), (2, 'b')",
)


@pytest.fixture
def evolving(database: Database, store: LocalStore) -> EvolvingDatabase:
    return EvolvingDatabase(database, store, metadata=True)


def told(evolving: EvolvingDatabase) -> dict[Any, Any]:
    return {
        row["id"]: tuple(row.get(name) for name in METADATA_COLUMNS)
        for row in evolving.mirrored("apples")
    }


def point_of(position: str) -> Lsn:
    point = Position.parse(position, Lsn.parse).point
    assert isinstance(point, Lsn)
    return point


def test_rows_tell_position_transaction_and_commit_time(evolving: EvolvingDatabase) -> None:
    evolving.begin(*TABLES)
    loaded = told(evolving)
    assert {(position[-2:], *rest) for position, *rest in loaded.values()} == {(":0", None, None)}
    before = datetime.now(UTC) - timedelta(seconds=60)
    with psycopg.connect(evolving.database.url) as connection:
        connection.execute("update apples set size = 7 where id = 1")
        connection.execute("insert into apples values (4, 'new', 4)")
        connection.execute("update apples set id = 5 where id = 2")
        row = connection.execute("select pg_current_xact_id()::text, pg_current_wal_lsn()::text")
        ((number, written),) = row.fetchall()
    evolving.capture()
    evolving.apply()
    evolving.check("apples")
    found = told(evolving)
    assert found[3] == loaded[3]
    changed = [found[1], found[4], found[5]]
    assert [Position.parse(one[0], Lsn.parse).ordinal for one in changed] == [1, 2, 3]
    assert len({point_of(one[0]) for one in changed}) == 1
    assert point_of(found[1][0]) >= Lsn.parse(written)
    assert {(one[1], one[2]) for one in changed} == {(number, found[1][2])}
    assert before < found[1][2] < datetime.now(UTC) + timedelta(seconds=60)


def test_rows_without_a_key_are_told_apart_by_their_own_columns(evolving: EvolvingDatabase) -> None:
    evolving.begin(*TABLES)
    one = "(select min(ctid) from pears where size = 1)"
    evolving.run(f"update pears set note = 'z' where ctid = {one}", "insert into pears values (3)")
    evolving.run("delete from pears where size = 1 and note = 'a'", "update pears set size = 4")
    evolving.run("insert into pears values (4, 'z')", "delete from pears where note = 'z'")
    evolving.capture()
    evolving.apply()
    evolving.check("pears")
    found = [row[ROW_TRANSACTION] for row in evolving.mirrored("pears")]
    assert all(found)
    assert found


def test_a_backfill_leaves_equal_rows_as_they_are(evolving: EvolvingDatabase) -> None:
    evolving.begin(*TABLES)
    evolving.run("update apples set size = 8 where id = 1", "delete from apples where id = 3")
    evolving.capture()
    evolving.apply()
    before, path = told(evolving), "Tables/public/apples"
    feed = evolving.reader.feed(path)
    jobs = BackfillRecords(Records(evolving.store, root.LANDING))
    jobs.request(BackfillRequest("job", "public.apples", None, None, "job"))
    evolving.capture()
    evolving.apply()
    assert [job.rows for job in jobs.jobs()] == [2]
    assert evolving.reader.feed(path) == feed
    assert told(evolving) == before
    evolving.check("apples")


def test_rows_that_a_backfill_changes_tell_where_it_stood(evolving: EvolvingDatabase) -> None:
    evolving.begin(*TABLES)
    evolving.run("update apples set size = 8 where id = 1")
    statement = "alter table apples add column c int default 1 + random() * 1000000"
    evolving.live([statement, "insert into apples (id) values (9)"], each=True)
    evolving.check("apples")
    found = told(evolving)
    assert {(position[-2:], transaction) for position, transaction, _time in found.values()} >= {
        (":0", None)
    }
    assert found[9][1] is not None


@pytest.mark.parametrize(
    "point", some([CrashPoint.CHANGES_STAGED, CrashPoint.CHANGES_PUBLISHED_ONE], 1)
)
def test_what_is_landed_again_after_a_crash_tells_the_same(
    evolving: EvolvingDatabase, point: CrashPoint
) -> None:
    evolving.begin(*TABLES)
    evolving.run("update apples set size = 8 where id = 1", "insert into apples values (6, 'f', 6)")
    assert evolving.capture(Dying(point))
    evolving.run("update apples set size = 9 where id = 6")
    evolving.capture()
    evolving.apply()
    evolving.check("apples")
    found = told(evolving)
    assert point_of(found[1][0]) < point_of(found[6][0])


def test_the_setting_may_be_turned_on_and_off(evolving: EvolvingDatabase) -> None:
    evolving.metadata = False
    evolving.begin(*TABLES)
    assert not set(evolving.columns("apples")) & set(METADATA_COLUMNS)
    evolving.metadata = True
    evolving.run("update apples set size = 8 where id = 1", "update pears set size = 9")
    evolving.capture()
    evolving.apply()
    evolving.metadata = False
    evolving.run("update apples set size = 9 where id = 2", "delete from pears where note = 'b'")
    evolving.capture()
    evolving.apply()
    for table in ("apples", "pears"):
        evolving.check(table)
    found = told(evolving)
    assert found[2] == found[3] == (None, None, None)
    assert all(found[1])


def test_a_strict_zone_has_the_columns_too(database: Database, store: LocalStore) -> None:
    evolving = EvolvingDatabase(database, store, strict=True, metadata=True)
    evolving.begin(*TABLES[:3])
    evolving.run("update apples set size = 7 where id = 1", "truncate apples")
    evolving.run("insert into apples values (1, 'again', 1)")
    evolving.capture()
    evolving.apply()
    (row,) = evolving.mirrored("apples")
    assert (row["note"], row["size"]) == ("again", 1)
    assert all((row[ROW_POSITION], row[ROW_TRANSACTION], row[ROW_COMMIT_TIME]))
