"""Changes were lost: a live source is compared with its tables, whose feeds go on."""

from __future__ import annotations

from contextlib import closing, suppress

import pytest

from mirrorlake import root
from mirrorlake.capture.backfill.jobs import BackfillJobState, BackfillRecords
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.repair.stream_repair import Repair
from mirrorlake.errors import PrerequisiteMissing, SourceGap, UsageError
from mirrorlake.landing.cuts import Cuts
from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.sources import ordered
from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import Dying, EvolvingDatabase
from tests.conformance.scene import until
from tests.conftest import Database
from tests.doubles.memory_store import Crash
from tests.profiles import some

pytestmark = pytest.mark.postgres

TABLES = (
    "create table apples (id int primary key, note text, long text)",
    "alter table apples alter column long set storage external",
    "insert into apples select g, 'old', repeat(md5(g::text), 99) from generate_series(1, 50) g",
    "create table pears (name text primary key, size numeric(10, 2))",
    "insert into pears values ('a', 1), ('b', 2), ('c', 3)",
    "create table log (id float8 primary key, note text)",
    "insert into log values (1, 'a')",
    "insert into log select g, repeat('x', 500) from generate_series(100, 200) g",
    "analyze log",
    "create table figs (note text)",
    "insert into figs values ('a'), ('a'), ('b')",
    "alter table figs replica identity full",
)
LOST = """
    insert into apples select g, 'lost', repeat(md5(g::text), 99) from generate_series(51, 60) g;
    update apples set note = 'lost', long = 'short' where id between 10 and 14;
    update apples set id = id + 1000 where id = 20; delete from apples where id between 30 and 35;
    insert into pears values ('d', 4); delete from pears where name = 'a';
    insert into log values (2, 'lost'); update log set note = 'lost' where id = 1;
    insert into figs values ('c'), ('a'); delete from figs where note = 'b'
"""
LATER = """
    update apples set note = 'later' where id in (3, 12, 55); delete from apples where id = 56;
    update apples set id = id + 2000 where id in (4, 57); update pears set size = 9;
    insert into log select max(id) + 1, 'later' from log; delete from figs where note = 'c'
"""


@pytest.fixture
def evolving(
    any_database: Database, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> EvolvingDatabase:
    """Its table `log` is too large to be compared."""
    monkeypatch.setattr(ordered, "LARGEST_TABLE", 30_000)
    evolving = EvolvingDatabase(any_database, store)
    evolving.begin(*TABLES)
    return evolving


def slot_of(evolving: EvolvingDatabase) -> str:
    return evolving.made


def drop_slot(evolving: EvolvingDatabase) -> None:
    evolving.run(f"select pg_drop_replication_slot('{slot_of(evolving)}')")


def repaired(
    evolving: EvolvingDatabase, *tables: str, dying: Dying | None = None, dry: bool = False
) -> Repair:
    with closing(evolving.new_capture(dying)) as capture:
        repair = capture.repair()
        return repair.planned(tables) if dry else repair.done(tables)


def gap_of(evolving: EvolvingDatabase) -> str:
    with pytest.raises(SourceGap) as gap:
        evolving.capture()
    return str(gap.value)


def check(evolving: EvolvingDatabase) -> None:
    for table in ("apples", "pears", "log", "figs"):
        evolving.check(table)


@pytest.mark.full
def test_a_stream_whose_slot_was_dropped_is_repaired(evolving: EvolvingDatabase) -> None:
    generations = generations_of(evolving)
    drop_slot(evolving)
    evolving.run(LOST)
    told = gap_of(evolving)
    assert "MiB of the log" in told
    assert "mirrorlake repair" in told
    planned = repaired(evolving, dry=True)
    compared = ["public.apples", "public.figs", "public.pears"]
    assert [str(table) for table in planned.compared.tables] == compared
    assert [str(table) for table, _ in planned.compared.loaded] == ["public.log"]
    gap_of(evolving)  # nothing was done yet
    assert repaired(evolving).reason.split(" to ")[0] == planned.reason.split(" to ")[0]
    assert not repaired(evolving).is_needed
    evolving.run(LATER)
    evolving.capture()
    evolving.apply()
    check(evolving)
    jobs = BackfillRecords(Records(evolving.store, root.LANDING)).jobs()
    assert {(job.request.table, job.state) for job in jobs} == {
        (table, BackfillJobState.COMPLETED) for table in compared
    }
    assert all("does not exist" in job.request.reason for job in jobs)
    now = generations_of(evolving)
    assert {name for name in now if now[name] != generations[name]} == {"log"}


def generations_of(evolving: EvolvingDatabase) -> dict[str, str]:
    engine = evolving.engine()
    return {
        name: engine.progress(f"Tables/public/{name}").generation
        for name in ("apples", "pears", "log")
    }


@pytest.mark.full
def test_a_slot_that_the_server_has_invalidated_is_repaired(evolving: EvolvingDatabase) -> None:
    generations = generations_of(evolving)
    status = f"select wal_status from pg_replication_slots where slot_name = '{slot_of(evolving)}'"

    def is_lost() -> bool:
        evolving.run("update pears set size = 8", "select pg_switch_wal()")
        evolving.run("checkpoint")
        return evolving.database.sql.execute(status).fetchall() == [("lost",)]

    evolving.run("alter system set max_slot_wal_keep_size = '1MB'", "select pg_reload_conf()")
    try:
        until(is_lost)
    finally:
        evolving.run("alter system reset max_slot_wal_keep_size", "select pg_reload_conf()")
    evolving.run(LOST)
    told = gap_of(evolving)
    assert "was invalidated" in told
    assert "MiB of the log" in told
    assert "mirrorlake repair" in told
    repaired(evolving)
    evolving.run(LATER)
    evolving.capture()
    evolving.apply()
    check(evolving)
    now = generations_of(evolving)
    assert {name for name in now if now[name] != generations[name]} == {"log"}


@pytest.mark.full
def test_a_slot_that_was_read_by_others_is_repaired(evolving: EvolvingDatabase) -> None:
    evolving.run(LOST)
    read = "select count(*) from pg_logical_slot_get_binary_changes('{0}', null, null, {1})"
    options = f"'proto_version', '1', 'publication_names', '{slot_of(evolving)}'"
    evolving.run(read.format(slot_of(evolving), options))
    assert "was read up to" in gap_of(evolving)
    repaired(evolving)
    evolving.run(LATER)
    evolving.capture()
    evolving.apply()
    check(evolving)


@pytest.mark.full
def test_columns_that_were_renamed_meanwhile_keep_their_values(evolving: EvolvingDatabase) -> None:
    drop_slot(evolving)
    evolving.run(LOST, "alter table apples rename note to remark", "alter table pears add n int")
    evolving.run("update apples set remark = 'new' where id = 1", "insert into pears values ('x')")
    repaired(evolving)
    evolving.run("update apples set remark = 'later' where id < 5", "update pears set n = 1")
    evolving.capture()
    evolving.apply()
    for table in ("apples", "pears"):
        evolving.check(table)


@pytest.mark.full
def test_altered_tables_that_nobody_writes_hold_up_no_other(evolving: EvolvingDatabase) -> None:
    drop_slot(evolving)
    evolving.run(LOST, "alter table apples rename note to remark", "alter table pears add n int")
    repaired(evolving)
    with evolving.capturing() as capture:
        capture.once()
    evolving.apply()
    for table in ("log", "figs"):
        evolving.check(table)
    states = {
        job.request.table: job.state
        for job in BackfillRecords(Records(evolving.store, root.LANDING)).jobs()
    }
    assert states["public.figs"] is BackfillJobState.COMPLETED
    evolving.run("update apples set remark = 'later' where id = 3", "update pears set n = 1")
    evolving.capture()
    evolving.apply()
    for table in ("apples", "pears"):
        evolving.check(table)


@pytest.mark.full
def test_a_cut_does_not_cover_tables_that_are_not_compared_yet(evolving: EvolvingDatabase) -> None:
    drop_slot(evolving)
    evolving.run(LOST)
    repaired(evolving)
    cuts = Cuts(evolving.store, root.LANDING)
    with evolving.capturing() as capture:
        assert capture.loop is not None
        before = cuts.newest()
        evolving.run("insert into log values (5, 'x')")
        while (cut := cuts.newest()) == before:
            capture.loop.step(0.2)
        assert cut is not None
        assert {"public.apples", "public.figs", "public.pears"} <= cut.excluded.keys()
        capture.once()
    cut = cuts.newest()
    assert cut is not None
    assert cut.excluded == {}
    names = ("apples", "pears", "log", "figs")
    assert cut.tables.keys() == {f"public.{name}" for name in names}


POINTS = [
    CrashPoint.REPAIR_RECORDED,
    CrashPoint.REPAIR_REQUESTED,
    CrashPoint.REPLACED_NOTED,
    CrashPoint.SLOT_CREATED,
    CrashPoint.ESTABLISHED,
]


@pytest.mark.full
@pytest.mark.parametrize("point", some(POINTS, 2))
@pytest.mark.parametrize("again", some([True, False], 2))
def test_a_repair_that_dies_is_taken_up_by_the_next_repair_or_capture(
    evolving: EvolvingDatabase, point: CrashPoint, *, again: bool
) -> None:
    drop_slot(evolving)
    evolving.run(LOST)
    dying = Dying(point)
    with pytest.raises(Crash):
        repaired(evolving, dying=dying)
    evolving.run("insert into apples values (99, 'between', 'x')")
    if again:
        repaired(evolving)
    evolving.run(LATER)
    evolving.capture()
    evolving.apply()
    check(evolving)


@pytest.mark.full
def test_the_comparison_after_a_repair_survives_crashes(evolving: EvolvingDatabase) -> None:
    drop_slot(evolving)
    evolving.run(LOST)
    repaired(evolving)
    for point in (CrashPoint.BACKFILL_PUBLISHED, CrashPoint.CUT_WRITTEN, CrashPoint.ACKNOWLEDGED):
        dying = Dying(point)
        with suppress(Crash), evolving.capturing(dying) as capture:
            evolving.run(LATER)
            capture.once()
        evolving.run("delete from apples where id % 7 = 0", "update apples set id = id + 5000")
    evolving.capture()
    evolving.apply()
    check(evolving)


def test_another_server_is_refused_when_its_log_is_behind(evolving: EvolvingDatabase) -> None:
    records = Records(evolving.store, root.LANDING)
    record = records.stream()
    assert record is not None
    other = {**record.source, "system": "1"}
    record = type(record)(record.stream, other, "FF/0", record.made)
    records.write_stream(record)
    assert "belongs to another source" in gap_of(evolving)
    with pytest.raises(PrerequisiteMissing, match="is not the one that was captured"):
        repaired(evolving)
    drop_slot(evolving)
    with pytest.raises(PrerequisiteMissing, match="behind FF/0"):
        repaired(evolving)


def test_a_stopped_table_is_repaired(evolving: EvolvingDatabase) -> None:
    publication = slot_of(evolving)
    evolving.stops_at = frozenset({SchemaChangeKind.PUBLICATION_CHANGED})
    evolving.run(f"alter publication {publication} drop table apples", LOST)
    evolving.capture()
    evolving.stops_at = frozenset()
    evolving.run(f"alter publication {publication} add table apples", LATER)
    assert evolving.stopped().keys() == {"public.apples"}
    with pytest.raises(UsageError, match=r"public\.pears is not stopped"):
        repaired(evolving, "public.pears")
    assert repaired(evolving, "public.apples").is_needed
    evolving.run("update apples set note = 'last' where id % 5 = 0")
    evolving.capture()
    evolving.apply()
    evolving.check("apples")


@pytest.mark.full
def test_a_stopped_table_that_was_renamed_is_repaired(evolving: EvolvingDatabase) -> None:
    publication = slot_of(evolving)
    evolving.run("alter table apples rename to plums", "update plums set note = 'moved'")
    evolving.capture()
    evolving.stops_at = frozenset({SchemaChangeKind.PUBLICATION_CHANGED})
    evolving.run(f"alter publication {publication} drop table plums", "delete from plums")
    evolving.capture()
    evolving.stops_at = frozenset()
    assert evolving.stopped().keys() == {"public.apples"}
    evolving.run(f"alter publication {publication} add table plums")
    assert repaired(evolving, "public.apples").is_needed
    evolving.capture()
    evolving.apply()
    evolving.check("apples", source="plums")


def test_nothing_is_repaired_that_is_right(evolving: EvolvingDatabase) -> None:
    assert repaired(evolving, dry=True).sentences() == [
        "There is nothing to repair: the source still has every change."
    ]


@pytest.mark.full
def test_a_table_that_was_taken_out_of_the_publication_is_published_again(
    database: Database, store: LocalStore
) -> None:
    """It was not selected, and PostgreSQL would have rejected its updates."""
    evolving = EvolvingDatabase(database, store)
    evolving.begin(*TABLES)
    evolving.selected = ("*.*", "!public.apples")
    evolving.run("alter table apples drop constraint apples_pkey")
    evolving.capture()
    evolving.run(LOST, "alter table apples add primary key (id)")
    evolving.selected = ("*.*",)
    evolving.capture()
    assert repaired(evolving, "public.apples").is_needed
    evolving.run(LATER)
    evolving.capture()
    evolving.apply()
    check(evolving)
