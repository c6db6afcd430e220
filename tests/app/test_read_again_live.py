"""What a live source does to rows without logging it: the table is read again by itself."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psycopg
import pyarrow.parquet as pq
import pytest

from mirrorlake import root
from mirrorlake.app.status.backfills import sentence
from mirrorlake.capture.backfill import requests
from mirrorlake.capture.backfill.jobs import BackfillJobState, BackfillRecords
from mirrorlake.capture.records.records import Records
from mirrorlake.errors import SourceGap
from mirrorlake.model.change import MARKER_COLUMN, Marker, SchemaChangeKind
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.sources import ordered
from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import Dying, EvolvingDatabase
from tests.conftest import Database
from tests.doubles.memory_store import Crash
from tests.profiles import some

pytestmark = pytest.mark.postgres

TABLES = (
    "create table apples (id int primary key, note text) partition by range (id)",
    "create table apples_1 partition of apples for values from (0) to (10)",
    "create table apples_2 partition of apples for values from (10) to (20)",
    "create table apples_3 partition of apples for values from (100) to (200)",
    "insert into apples values (1, 'a'), (2, 'b'), (3, 'c'), (11, 'd'), (12, 'e')",
    "create type mood as enum ('sad', 'ok')",
    "create table pears (id int primary key, note text, m mood default 'sad')",
    "insert into pears values (1, 'a'), (2, 'b'), (3, 'c')",
    "create table log (id int primary key)",
)
BEFORE = """
    insert into apples values (4, 'new'), (13, 'new'); delete from apples where id = 3;
    insert into pears values (4, 'new'); delete from pears where id = 3
"""
AFTER = """
    update apples set note = 'later' where id in (1, 11, 21); insert into apples (id) values (101);
    update pears set note = 'later' where id = 1; insert into pears (id) values (7);
    insert into log select count(*) from log
"""
LOOSE = "create table loose (id int not null primary key, note text)"
ATTACH = "alter table apples attach partition loose for values from (20) to (30)"

FIVE = "insert into apples (id) values (5)"
AT_ONCE = """
    insert into pears values (5); alter table pears add column c int default random() * 1000000;
    insert into pears (id) values (6); update pears set c = 1 where id = 2
"""

OTHER_IDENTITY = (
    "alter table apples_1 alter note set not null; create unique index other on apples_1 (note)",
    "alter table apples_1 replica identity using index other",
)

QUIET_OPTIONS = [
    "alter publication {publication} set (publish = 'insert')",
    "delete from pears where id = 2; truncate apples",
    "alter publication {publication} set (publish = 'insert, update, delete, truncate')",
]

CHANGES: dict[str, Sequence[str]] = {
    "volatile default": ["alter table pears add column c int default random() * 1000000"],
    "volatile default at once": [AT_ONCE],
    "identity": ["alter table pears add column c int generated always as identity"],
    "default, rewritten": ["alter table pears add column c int default 7", "vacuum full pears"],
    "added again": ["alter table pears drop column note", "alter table pears add column note text"],
    "added again with a default": [
        "alter table pears drop column note, add column n int",
        "alter table pears drop column n",
        "alter table pears add column note text default md5(random()::text)",
    ],
    "attached": [LOOSE, "insert into loose values (21, 'x'), (22, 'y')", ATTACH],
    "attached at once": [
        f"{LOOSE}; insert into loose values (21, 'x'), (22, 'y'); {ATTACH}; {FIVE}",
        "delete from apples where id = 22",
    ],
    "detached": ["alter table apples detach partition apples_2"],
    "detached, changed, attached": [
        "alter table apples detach partition apples_2",
        "delete from apples_2 where id = 11",
        "insert into apples_2 values (19, 'x')",
        "alter table apples attach partition apples_2 for values from (10) to (20)",
    ],
    "dropped": ["drop table apples_2"],
    "dropped and made": [
        "drop table apples_2",
        "create table apples_2 partition of apples for values from (10) to (20)",
        "insert into apples values (11, 'again'), (14, 'again')",
    ],
    "truncated": ["truncate apples_1"],
    "truncated, filled at once": ["truncate apples_1; insert into apples values (1, 'again')"],
    "unpublished": [
        "alter publication {publication} drop table pears",
        "delete from pears where id = 1; insert into pears values (8)",
        "update pears set id = 20 where id = 2",
        "insert into pears values (9); alter publication {publication} add table pears",
    ],
    "published with other options": [
        "alter publication {publication} set (publish = 'insert, update')",
        "delete from pears where id = 1; delete from apples where id = 1",
        "insert into pears values (8)",
        "alter publication {publication} set (publish = 'insert, update, delete, truncate')",
    ],
    "published without its root": [
        "alter publication {publication} set (publish_via_partition_root = false)",
        "delete from apples where id = 1; update apples set note = 'z' where id = 11",
        "alter publication {publication} set (publish_via_partition_root = true)",
    ],
    "identity lost": [
        *OTHER_IDENTITY,
        "update apples set id = 9 where id = 1; delete from apples where id = 2",
        "insert into apples values (7, 'y'), (14, 'z'); delete from apples where id = 12",
        "alter table apples_1 replica identity default; drop index other",
        "insert into apples values (15, 'z'); delete from apples where id = 11",
    ],
    "identity lost for a while": [
        *OTHER_IDENTITY,
        "update apples set id = 9 where id = 1",
        "alter table apples_1 replica identity default; drop index other",
    ],
    "value renamed": [
        "alter type mood rename value 'sad' to 'blue'",
        "insert into pears (id, m) values (8, 'blue'), (9, 'ok')",
    ],
    "values exchanged": [
        "insert into pears (id, m) values (8, 'ok'); alter type mood rename value 'sad' to 'x'",
        "alter type mood rename value 'ok' to 'sad'; insert into pears (id, m) values (9, 'x')",
        "alter type mood rename value 'x' to 'ok'; update pears set note = 'y' where id = 8",
    ],
    "no longer generated": [
        "alter table pears add g text generated always as (id * 2) stored",
        "insert into pears values (8); alter table pears alter g drop expression",
        "update pears set g = 'x' where id = 2",
    ],
    "both": [
        "truncate apples_1; alter table pears add column c int default random() * 1000000",
        "alter table apples add column c int default random() * 1000000",
        "alter table pears rename c to d",
    ],
}
STOPPING = {"published with other options", "published without its root"}
"""What stops the stream where capture looks before it has an end."""
LIVES = [(name, bool(number % 2) and name not in STOPPING) for number, name in enumerate(CHANGES)]
LIVES += [
    ("both", True),
    ("no longer generated", False),
    ("volatile default", True),
    ("attached at once", False),
]


def reasons(evolving: EvolvingDatabase) -> dict[str, str]:
    """Why tables were read again to their end."""
    return {request.table: request.reason for request in evolving.read_again()}


@pytest.mark.full
@pytest.mark.parametrize(("name", "each"), some(LIVES, 4))
def test_a_table_is_equal_after_what_the_log_does_not_tell(
    evolving: EvolvingDatabase, name: str, *, each: bool
) -> None:
    evolving.begin(*TABLES)
    changes = [one.format(publication=evolving.made) for one in CHANGES[name]]
    evolving.live([BEFORE, *changes, AFTER], each=each)
    assert reasons(evolving)
    for table in ("apples", "pears", "log"):
        evolving.check(table)
    evolving.run("update pears set note = 'last'; update apples set note = 'last'")
    evolving.capture()
    evolving.apply()
    for table in ("apples", "pears"):
        evolving.check(table)


def test_a_publication_that_is_seen_with_other_options_leads_to_repair(
    evolving: EvolvingDatabase,
) -> None:
    evolving.begin(*TABLES)
    with evolving.capturing() as capture:
        evolving.run(*(one.format(publication=evolving.made) for one in QUIET_OPTIONS[:2]))
        with pytest.raises(SourceGap, match="mirrorlake repair"):
            capture.once()
    evolving.run(QUIET_OPTIONS[2].format(publication=evolving.made))
    evolving.capture()
    evolving.apply()
    assert set(reasons(evolving)) == {"public.apples", "public.log", "public.pears"}
    for table in ("apples", "pears", "log"):
        evolving.check(table)


DEATHS = [
    CrashPoint.BACKFILL_REQUIRED,
    CrashPoint.CHANGES_PUBLISHED_ONE,
    CrashPoint.CUT_WRITTEN,
    CrashPoint.ACKNOWLEDGED,
    CrashPoint.BACKFILL_STAGED,
    CrashPoint.BACKFILL_PUBLISHED,
    CrashPoint.BACKFILL_RECORDED,
]


@pytest.mark.full
@pytest.mark.parametrize(
    ("point", "times"),
    some([*((point, 1) for point in DEATHS), (DEATHS[0], 2), (DEATHS[-1], 2)], 2),
)
def test_a_table_is_read_again_when_capture_dies(
    evolving: EvolvingDatabase, point: CrashPoint, times: int
) -> None:
    evolving.begin(*TABLES)
    dying = Dying(point, times)
    with suppress(Crash), evolving.capturing(dying) as capture:
        for statement in [BEFORE, *CHANGES["both"], *CHANGES["detached"], AFTER]:
            evolving.run(statement)
            capture.once()
    assert dying.left == 0
    evolving.run("insert into log values (100)", "truncate apples_3")
    evolving.run("insert into pears (id) values (8)", "insert into apples (id) values (102)")
    evolving.capture()
    evolving.apply()
    for table in ("apples", "pears", "log"):
        evolving.check(table)


def test_a_quiet_table_is_read_again_when_a_partition_goes(evolving: EvolvingDatabase) -> None:
    evolving.begin(*TABLES)
    evolving.live(CHANGES["truncated"], each=False)
    assert "apples_1 was truncated" in reasons(evolving)["public.apples"]
    evolving.check("apples")


QUIET = {
    "published with other options": QUIET_OPTIONS,
    "truncated": CHANGES["truncated"],
    "rewritten": ["alter table pears alter note type text using upper(note)"],
    "published again": [
        "alter publication {publication} drop table pears; delete from pears where id = 2",
        "alter publication {publication} add table pears",
    ],
}


@pytest.mark.parametrize("name", some(sorted(QUIET), 1))
def test_a_quiet_table_is_read_again_once(evolving: EvolvingDatabase, name: str) -> None:
    evolving.begin(*TABLES)
    evolving.run(*(one.format(publication=evolving.made) for one in QUIET[name]))
    evolving.capture()
    first = {request.id for request in evolving.read_again()}
    assert first
    evolving.capture()
    assert {request.id for request in evolving.read_again()} == first
    evolving.apply()
    for table in ("apples", "pears"):
        evolving.check(table)


def check_added_again(evolving: EvolvingDatabase) -> None:
    evolving.run("update pears set note = 'last'")
    evolving.capture()
    evolving.apply()
    (request,) = evolving.read_again()
    assert "no longer contains" in request.reason
    evolving.check("pears")


@pytest.mark.full
@pytest.mark.parametrize("point", [None, *some([CrashPoint.BACKFILL_REQUIRED], 1)])
def test_a_table_that_is_seen_out_of_the_publication_is_added_and_read_again(
    evolving: EvolvingDatabase, point: CrashPoint | None
) -> None:
    evolving.begin(*TABLES)
    with suppress(Crash), evolving.capturing(Dying(point, 1) if point else None) as capture:
        evolving.run(BEFORE, f"alter publication {evolving.made} drop table pears")
        evolving.run("delete from pears where id = 1; insert into pears values (8)")
        capture.once()
    if point:
        evolving.run("insert into pears values (9)")
        evolving.capture()
    check_added_again(evolving)


@pytest.mark.parametrize("is_restarted", [False, pytest.param(True, marks=pytest.mark.full)])
def test_a_table_that_is_locked_is_added_and_read_again_later(
    evolving: EvolvingDatabase, *, is_restarted: bool
) -> None:
    """As VACUUM locks it, for as long as that takes."""
    evolving.begin(*TABLES)
    jobs = BackfillRecords(Records(evolving.store, root.LANDING))
    with evolving.capturing() as capture, psycopg.connect(evolving.database.url) as vacuum:
        evolving.run(BEFORE, f"alter publication {evolving.made} drop table pears")
        vacuum.execute("lock table pears in share update exclusive mode")
        for number in (8, 9):
            evolving.run(f"insert into pears values ({number})")
            capture.once()
            assert evolving.stopped() == {}
            assert [job.state for job in jobs.jobs()] == [BackfillJobState.PENDING]
        vacuum.rollback()
        evolving.run("delete from pears where id = 1")
        if not is_restarted:
            capture.once()
    check_added_again(evolving)
    evolving.check("apples")


@pytest.mark.parametrize("is_restarted", [False, pytest.param(True, marks=pytest.mark.full)])
def test_a_table_that_others_publish_is_read_again_when_they_publish_it_again(
    evolving: EvolvingDatabase, *, is_restarted: bool
) -> None:
    evolving.begin(*TABLES)
    jobs = BackfillRecords(Records(evolving.store, root.LANDING))
    evolving.run(f"comment on publication {evolving.made} is 'of others'")
    with evolving.capturing() as capture:
        evolving.run(BEFORE, f"alter publication {evolving.made} drop table pears")
        for number in (8, 9):
            evolving.run(f"insert into pears values ({number})")
            capture.once()
            assert evolving.stopped() == {}
            assert [job.state for job in jobs.jobs()] == [BackfillJobState.PENDING]
        evolving.run("delete from pears where id = 1")
        if not is_restarted:
            evolving.run(f"alter publication {evolving.made} add table pears")
            capture.once()
    if is_restarted:
        evolving.capture()
        evolving.run(f"alter publication {evolving.made} add table pears")
    check_added_again(evolving)
    evolving.check("apples")


def test_what_else_one_look_finds_is_not_forgotten_for_a_table_that_is_added_again(
    evolving: EvolvingDatabase,
) -> None:
    evolving.begin(*TABLES)
    with evolving.capturing() as capture:
        evolving.run("truncate apples_1", f"alter publication {evolving.made} drop table pears")
        evolving.run("delete from pears where id = 1")
        capture.once()
    evolving.apply()
    assert set(reasons(evolving)) == {"public.apples", "public.pears"}
    for table in ("apples", "pears"):
        evolving.check(table)


def test_no_key_is_there_twice_while_a_table_is_read_again(evolving: EvolvingDatabase) -> None:
    evolving.begin(*TABLES)
    evolving.run(*CHANGES["truncated, filled at once"], AFTER)
    evolving.capture()
    evolving.run("insert into apples values (5, 'right again')")
    evolving.capture()
    markers = {}
    for path in Path(evolving.store.location(root.LANDING)).glob("public.schema/apples/0*.parquet"):
        file = pq.ParquetFile(path)
        if file.metadata.metadata[b"mirrorlake.kind"] == b"changes":
            markers |= {row["id"]: row[MARKER_COLUMN] for row in file.read().to_pylist()}
    assert (markers[101], markers[5]) == (Marker.UPSERT, Marker.INSERT)
    evolving.apply()
    evolving.check("apples")


def test_a_project_may_want_a_table_with_altered_partitions_to_stop(
    database: Database, store: LocalStore
) -> None:
    evolving = EvolvingDatabase(database, store, frozenset({SchemaChangeKind.PARTITION_CHANGED}))
    evolving.begin(*TABLES)
    evolving.run(*CHANGES["truncated"], *CHANGES["volatile default"], AFTER)
    evolving.capture()
    assert set(evolving.stopped()) == {"public.apples"}
    assert set(reasons(evolving)) == {"public.pears"}


def test_a_project_may_want_a_table_out_of_the_publication_to_stop(
    database: Database, store: LocalStore
) -> None:
    evolving = EvolvingDatabase(database, store, frozenset({SchemaChangeKind.PUBLICATION_CHANGED}))
    evolving.begin(*TABLES)
    evolving.run(f"alter publication {evolving.made} drop table pears")
    evolving.capture()
    assert "no longer contains" in evolving.stopped()["public.pears"]
    query = f"select tablename from pg_publication_tables where pubname = '{evolving.made}'"
    assert ("pears",) not in database.sql.execute(query).fetchall()


def test_a_table_stops_for_the_second_of_two_reasons(database: Database, store: LocalStore) -> None:
    evolving = EvolvingDatabase(database, store, frozenset({SchemaChangeKind.TYPE_CHANGED}))
    evolving.begin(*TABLES)
    changes = [*QUIET["published again"], *QUIET["rewritten"], "insert into pears values (8)"]
    with evolving.capturing() as capture:
        evolving.run(*(one.format(publication=evolving.made) for one in changes))
        capture.once()
    assert "rows were rewritten" in evolving.stopped()["public.pears"]


@pytest.mark.parametrize(
    ("table", "strict"),
    [
        ("create table pears (id float primary key, note text)", False),
        ("create table pears (id int primary key, note text)", True),
    ],
)
def test_a_table_that_cannot_be_read_again_stops(
    database: Database,
    store: LocalStore,
    table: str,
    *,
    strict: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ordered, "LARGEST_TABLE", 0)
    evolving = EvolvingDatabase(database, store, strict=strict)
    evolving.run(table, "insert into pears values (1, 'a')", TABLES[-1])
    evolving.capture()
    evolving.run(*CHANGES["volatile default"], "insert into pears (id) values (2)")
    evolving.capture()
    assert "column c was added and the table rewritten" in evolving.stopped()["public.pears"]


def test_a_table_stops_when_reading_it_again_is_stopped(evolving: EvolvingDatabase) -> None:
    evolving.begin(*TABLES)
    evolving.run(*CHANGES["detached"], AFTER)
    assert evolving.capture(Dying(CrashPoint.BACKFILL_REQUIRED))
    jobs = BackfillRecords(Records(evolving.store, root.LANDING))
    (job,) = jobs.jobs()
    assert "detached or dropped" in sentence(job)
    requests.stop(jobs, "public.apples")
    evolving.capture()
    assert "detached or dropped" in evolving.stopped()["public.apples"]
    assert "stopped on request" in evolving.stopped()["public.apples"]
    (job,) = (job for job in jobs.jobs() if job.request.table == "public.apples")
    assert job.state is BackfillJobState.STOPPED


@pytest.mark.full
@pytest.mark.parametrize("default", ["", "default 5"])
def test_rows_have_no_column_that_an_older_transaction_added_later(
    evolving: EvolvingDatabase, default: str
) -> None:
    """Its number is lower than that of the transaction of the rows, which had another column of
    that name."""
    evolving.begin(*TABLES)
    with psycopg.connect(evolving.database.url) as older:
        older.execute("select pg_current_xact_id()")
        evolving.run(
            "alter table pears add column c int",
            "insert into pears (id, c) values (5, 9), (6, null)",
        )
        older.execute(f"alter table pears drop column c, add column c int {default}")
    evolving.capture()
    evolving.apply()
    evolving.check("pears")
    evolving.run("update pears set c = 1 where id = 6; insert into pears (id) values (7)")
    evolving.capture()
    evolving.apply()
    evolving.check("pears")
