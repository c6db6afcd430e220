"""Capture is killed at every durable step and started again: nothing is lost, nothing twice."""

from __future__ import annotations

import psycopg
import pytest

from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.sources.postgresql.connect import connect_replication, simple_query
from tests.crash.project import CHANGES, MORE, Project, assert_landed
from tests.profiles import some

pytestmark = [pytest.mark.postgres, pytest.mark.crash]

BEFORE_STREAMING = [
    (CrashPoint.STREAM_RECORDED, 1),
    (CrashPoint.SLOT_CREATED, 1),
    (CrashPoint.ESTABLISHED, 1),
    (CrashPoint.LOAD_STAGED, 1),
    (CrashPoint.LOAD_STAGED, 2),
    (CrashPoint.LOAD_MANIFEST, 1),
    (CrashPoint.LOAD_MANIFEST, 3),
    (CrashPoint.LOAD_PUBLISHED_ONE, 1),
    (CrashPoint.LOAD_PUBLISHED_ONE, 2),
    (CrashPoint.LOAD_PUBLISHED, 1),
]

WHILE_STREAMING = [
    (CrashPoint.CHANGES_STAGED, 1),
    (CrashPoint.CHANGES_PUBLISHED_ONE, 1),  # between the files of two tables of one transaction
    (CrashPoint.CHANGES_PUBLISHED_ONE, 2),
    (CrashPoint.CHANGES_PUBLISHED_ONE, 4),
    (CrashPoint.CHANGES_PUBLISHED, 1),
    (CrashPoint.CUT_WRITTEN, 1),
    (CrashPoint.ACKNOWLEDGED, 1),
]


@pytest.mark.parametrize(("point", "passage"), some(BEFORE_STREAMING))
def test_a_load_that_is_killed_is_taken_up_again(
    project: Project, point: CrashPoint, passage: int
) -> None:
    project.killed_at(point, "capture", "--once", passage=passage)
    project.database.execute(CHANGES)
    project.run("capture", "--once")
    project.database.execute(MORE)
    project.run("capture", "--once")
    assert_landed(project)


INTERRUPTED = [
    (CrashPoint.LOAD_NOTED, 3),
    (CrashPoint.LOAD_NOTED, 1),
    (CrashPoint.LOAD_STAGED, 4),
    (CrashPoint.LOAD_MANIFEST, 2),
    (CrashPoint.LOAD_PUBLISHED_ONE, 2),
]


@pytest.mark.parametrize(("point", "passage"), some(INTERRUPTED))
def test_a_load_of_many_parts_that_is_killed_twice_goes_on(
    project: Project, point: CrashPoint, passage: int
) -> None:
    with project.file.open("a") as file:
        file.write("load: {part_bytes: 8192}\n")
    project.database.execute(
        "insert into a.orders select g, repeat('n', 500), repeat(md5(g::text), 99) "
        "from generate_series(201, 300) g"
    )
    project.killed_at(CrashPoint.LOAD_NOTED, "capture", "--once", passage=5)
    project.database.execute(CHANGES)
    project.killed_at(point, "capture", "--once", passage=passage)
    project.database.execute(MORE)
    project.run("capture", "--once")
    assert_landed(project)


@pytest.mark.parametrize("point", some([CrashPoint.REPLACED_DELETED, CrashPoint.REPLACED_NOTED]))
def test_a_table_that_was_created_again_is_replaced_once(
    project: Project, point: CrashPoint
) -> None:
    project.run("capture", "--once")
    project.database.execute(
        "drop table b.notes",
        "create table b.notes (note text, id bigint primary key)",
        "insert into b.notes values ('of another table', 1)",
    )
    project.killed_at(point, "capture", "--once")
    project.database.execute("update b.notes set note = 'more'")
    project.run("capture", "--once")
    assert_landed(project)


REPAIRING = [
    CrashPoint.ESTABLISHED,
    CrashPoint.REPAIR_RECORDED,
    CrashPoint.REPAIR_REQUESTED,
    CrashPoint.SLOT_CREATED,
]


@pytest.mark.parametrize("point", some(REPAIRING))
def test_a_repair_that_is_killed_is_finished_by_the_next_capture(
    project: Project, point: CrashPoint
) -> None:
    project.run("capture", "--once")
    project.database.execute(
        "select pg_drop_replication_slot(slot_name) from pg_replication_slots "
        "where database = current_database()",
        CHANGES,
    )
    project.killed_at(point, "repair", "--yes")
    project.database.execute(MORE)
    project.run("capture", "--once")
    assert_landed(project)


@pytest.mark.parametrize(("point", "passage"), some(WHILE_STREAMING))
@pytest.mark.parametrize("roll_bytes", some([2_000, 50_000_000]))
def test_a_stream_that_is_killed_goes_on_where_it_was(
    project: Project, point: CrashPoint, passage: int, roll_bytes: int
) -> None:
    """With small files a transaction spans several, and the crash comes inside it."""
    project.write(roll_bytes=roll_bytes)
    project.run("capture", "--once")
    project.database.execute(CHANGES)
    project.killed_at(point, "capture", "--once", passage=passage)
    project.database.execute(MORE)
    project.run("capture", "--once")
    assert_landed(project)


@pytest.mark.full
@pytest.mark.parametrize(
    "point",
    [CrashPoint.CHANGES_STAGED, CrashPoint.CHANGES_PUBLISHED_ONE, CrashPoint.ACKNOWLEDGED],
)
def test_a_transaction_that_is_streamed_survives_a_crash(
    project: Project, point: CrashPoint
) -> None:
    """It is streamed to the process that is killed, and again to the next."""
    name = project.database.name
    at_once = "debug_logical_replication_streaming"
    project.database.execute(f"alter database {name} set {at_once} = 'immediate'")
    project.write("streaming: true", roll_bytes=2_000)
    project.run("capture", "--once")
    with psycopg.connect(project.database.url) as long:
        long.execute("insert into b.notes select g, 'long' from generate_series(500, 900) g")
        long.execute("savepoint one")
        long.execute("insert into b.notes select g, 'gone' from generate_series(1000, 1500) g")
        project.database.execute(CHANGES.replace("truncate b.notes", "delete from b.notes"))
        project.killed_at(point, "capture", "--once")
        long.execute("rollback to one")
        long.execute("insert into b.notes values (1000, 'long')")
        project.run("capture", "--once")
    project.database.execute(MORE)
    project.run("capture", "--once")
    assert_landed(project)


@pytest.mark.full
@pytest.mark.parametrize("point", [CrashPoint.CHANGES_STAGED, CrashPoint.ACKNOWLEDGED])
def test_a_prepared_transaction_survives_crashes(project: Project, point: CrashPoint) -> None:
    """With a slot that sends it when it is prepared: before its commit, and as that is landed."""
    project.write("failover: false", "streaming: true")
    project.run("capture", "--once")
    name = project.database.name
    with connect_replication(project.database.url) as replication:
        slot = f"mirrorlake_{name}"
        simple_query(replication, f"ALTER_REPLICATION_SLOT {slot} (TWO_PHASE true)")
    with psycopg.connect(project.database.url, autocommit=True) as writer:
        for statement in [
            "begin",
            "insert into b.notes select g, 'prepared' from generate_series(500, 900) g",
            "update a.orders set note = 'prepared' where id < 5",
            f"prepare transaction '{name}'",
        ]:
            writer.execute(statement)

    project.database.execute("insert into b.notes values (1000, 'before')")
    project.killed_at(point, "capture", "--once")
    project.run("capture", "--once")
    project.database.execute(f"commit prepared '{name}'", MORE)
    project.killed_at(point, "capture", "--once")
    project.run("capture", "--once")
    project.database.execute(CHANGES)
    project.run("capture", "--once")
    assert_landed(project)


@pytest.mark.full
def test_finished_tables_are_not_loaded_again(project: Project) -> None:
    project.killed_at(CrashPoint.LOAD_PUBLISHED, "capture", "--once", passage=2)
    loaded = {p for p in project.root.rglob("*.parquet") if p.name.startswith("0")}
    identities = {p: p.stat().st_ino for p in loaded}
    project.run("capture", "--once")
    assert {p: p.stat().st_ino for p in loaded} == identities


@pytest.mark.full
def test_a_transaction_that_commits_at_the_consistent_point_is_not_lost(project: Project) -> None:
    """Transactions that are open while the slot is made end after its snapshot."""
    with psycopg.connect(project.database.url) as one, psycopg.connect(project.database.url) as two:
        one.execute("insert into b.notes values (71, 'open before the slot')")
        capture = project.start("capture", "--once")
        # The slot waits for the transactions that were open; others begin meanwhile.
        _wait_for_slot(project)
        two.execute("insert into b.notes values (72, 'begun while the slot waits')")
        one.commit()
        two.commit()
        _out, error = capture.communicate(timeout=240)
        assert capture.returncode == 0, error
    project.run("capture", "--once")
    assert_landed(project)


def _wait_for_slot(project: Project) -> None:
    while not project.database.sql.execute(
        "select 1 from pg_stat_activity where query ilike 'create_replication_slot%' "
        "and wait_event is not null"
    ).fetchone():
        project.database.sql.execute("select pg_sleep(0.02)")
