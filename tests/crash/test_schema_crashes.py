"""Capture is killed at what it records of a schema, and changes in the source to follow it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mirrorlake.capture.records.records import Records
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.root import LANDING
from mirrorlake.storage.local import LocalStore
from tests.crash.project import CHANGES, MORE, Project, assert_landed

pytestmark = [pytest.mark.postgres, pytest.mark.crash, pytest.mark.full]

COLUMNS = (
    "alter table a.orders add c int default 7",
    'alter table a.items drop constraint items_pkey, add primary key (line, "order")',
)
WIDER = "insert into a.orders (id, c) values (900, 1); alter table a.orders add d int"
LOST = "alter table b.notes drop constraint notes_pkey"
BACK = "alter table b.notes add primary key (id)"
MISSED = "update b.notes set note = 'missed' where id < 5; delete from b.notes where id = 6"
UNPUBLISHED = "alter publication mirrorlake_{name} drop table b.notes"
LATE = "create table a.late (id int primary key); insert into a.late values (1)"
DROPPED = "drop table b.notes"
ANOTHER = (
    "create table b.notes (note text, id bigint primary key)",
    "insert into b.notes values ('of another table', 1)",
)
DEFAULT = "alter table b.notes add c int default 7"
UNWRITTEN = """
    create role owner_{name} login replication password 'owner_{name}';
    grant create on database {name} to owner_{name};
    grant usage, create on schema a, b to owner_{name};
    alter table a.orders owner to owner_{name};
    alter table a.items owner to owner_{name};
    alter table b.notes owner to owner_{name};
    do $$ begin
        execute (select string_agg(format('revoke execute on function %s from public',
                                          oid::regprocedure), ';')
                 from pg_proc where proname = 'pg_logical_emit_message');
    end $$
"""
QUIET = "alter table b.notes alter note set default 'x', add check (id > 0)"
MESSAGES = [CrashPoint.MESSAGE_DUE, CrashPoint.MESSAGE_WRITTEN]
LOOKED = [CrashPoint.WITHOUT_EFFECT_RECORDED, CrashPoint.ATTACHED_RECORDED]
MOVES = [
    CrashPoint.PUBLICATION_MOVED,
    CrashPoint.PUBLICATION_LEFT,
    CrashPoint.APPEND_ONLY_RECORDED,
]


def killed_after(
    project: Project, point: CrashPoint, changes: Sequence[str], passage: int = 1
) -> None:
    """Capture is killed while it follows these changes; then it goes on with more of them."""
    project.run("capture", "--once")
    project.database.execute(*changes)
    project.killed_at(point, "capture", "--once", passage=passage)
    project.database.execute(MORE)
    project.run("capture", "--once")
    assert_landed(project)


@pytest.mark.parametrize(
    ("point", "passage"),
    [(CrashPoint.KNOWN_NOTED, 1), (CrashPoint.KNOWN_NOTED, 2), (CrashPoint.KNOWN_RECORDED, 1)],
)
def test_what_tables_are_known_by_survives_a_crash(
    project: Project, point: CrashPoint, passage: int
) -> None:
    project.write(roll_bytes=2_000)
    killed_after(project, point, [CHANGES, *COLUMNS, WIDER])


@pytest.mark.parametrize("point", MESSAGES)
def test_columns_of_a_quiet_table_are_followed_after_a_crash(
    project: Project, point: CrashPoint
) -> None:
    killed_after(project, point, [CHANGES, *COLUMNS])


@pytest.mark.parametrize("point", LOOKED)
def test_what_has_no_effect_is_told_after_a_crash(project: Project, point: CrashPoint) -> None:
    killed_after(project, point, [CHANGES, QUIET])


@pytest.mark.parametrize("point", [CrashPoint.IGNORED_RECORDED])
def test_a_table_that_differs_is_marked_after_a_crash_until_it_is_read_again(
    project: Project, point: CrashPoint
) -> None:
    """Its rows are those of the source, because all keys that it had are inserted again: once."""
    records = Records(LocalStore(project.root), LANDING)
    project.configure("mirror", schema_change={"table_truncated": "ignore"})
    killed_after(project, point, [CHANGES])
    assert [*records.ignored()] == ["b.notes"]
    project.database.execute("truncate b.notes")
    project.run("capture", "--once")  # what is ignored after a backfill has begun stays marked
    project.run("backfill", "b.notes", "--no-wait")
    project.run("capture", "--once")
    project.killed_at(point, "capture", "--once")  # the mark is removed
    project.run("capture", "--once")
    assert not records.ignored()
    assert_landed(project)


@pytest.mark.parametrize("point", [CrashPoint.STOPPED_RECORDED])
def test_a_dropped_table_stays_out_after_a_crash_and_comes_back_with_another(
    project: Project, point: CrashPoint
) -> None:
    records = Records(LocalStore(project.root), LANDING)
    project.configure("mirror", schema_change={"table_dropped": "ignore"})
    project.run("capture", "--once")
    project.database.execute(CHANGES, DROPPED)
    project.killed_at(point, "capture", "--once")
    project.run("capture", "--once")
    assert [*records.dropped()] == ["b.notes"]
    project.database.execute(*ANOTHER)
    for passage in (1, 2):  # it is to be replaced; it is forgotten
        project.killed_at(point, "capture", "--once", passage=passage)
    project.database.execute(MORE)
    project.run("capture", "--once")
    assert not records.stopped()
    assert_landed(project)


@pytest.mark.parametrize(
    "point",
    [CrashPoint.STOPPED_RECORDED, CrashPoint.DELETED_RECORDED, CrashPoint.REPLACED_DELETED],
)
def test_a_dropped_table_goes_whole_after_a_crash_and_another_is_loaded(
    project: Project, point: CrashPoint
) -> None:
    records = Records(LocalStore(project.root), LANDING)
    project.configure("mirror", drop_after_seconds=0)
    project.run("capture", "--once")
    project.database.execute(CHANGES, DROPPED)
    project.killed_at(point, "capture", "--once")
    project.database.execute("delete from a.orders where id % 5 = 0")
    project.run("capture", "--once")
    assert not records.stopped()
    assert records.deleted() == {"b.notes": f"{LANDING}/b.schema/notes"}
    assert not project.is_landed("b.notes")
    project.database.execute(*ANOTHER, MORE)
    project.run("capture", "--once")
    assert not records.deleted()
    assert_landed(project)


@pytest.mark.parametrize("point", [CrashPoint.TRUNCATED_RECORDED])
def test_a_strict_zone_is_emptied_once_after_a_crash(project: Project, point: CrashPoint) -> None:
    project.configure("landing", strict=True)
    killed_after(project, point, [CHANGES])


@pytest.mark.parametrize("point", [CrashPoint.UNFOLLOWED_RECORDED])
def test_a_table_waits_for_its_next_row_after_a_crash(project: Project, point: CrashPoint) -> None:
    """Where nothing may be written to the log."""
    project.database.execute(UNWRITTEN.format(name=project.database.name))
    project.configure("source", url=project.database.url_as(f"owner_{project.database.name}"))
    records = Records(LocalStore(project.root), LANDING)
    project.run("capture", "--once")
    project.database.execute(CHANGES)
    project.run("capture", "--once")
    project.database.execute(DEFAULT)
    project.killed_at(point, "capture", "--once")
    project.run("capture", "--once")
    assert [*records.unfollowed()] == ["b.notes"]
    project.database.execute(MORE)
    project.killed_at(point, "capture", "--once")
    project.run("capture", "--once")
    assert not records.unfollowed()
    assert_landed(project)


@pytest.mark.parametrize("point", [CrashPoint.LOADS_RECORDED])
@pytest.mark.parametrize("passage", [1, 2])
def test_tables_are_loaded_beside_their_changes_after_a_crash(
    project: Project, point: CrashPoint, passage: int
) -> None:
    project.database.execute("analyze")
    project.configure("load", beside_bytes=1)
    project.killed_at(point, "capture", "--once", passage=passage)
    project.database.execute(CHANGES)
    project.run("capture", "--once")
    project.database.execute(MORE)
    project.run("capture", "--once")
    assert not Records(LocalStore(project.root), LANDING).unloaded()
    assert_landed(project)


@pytest.mark.parametrize("point", [CrashPoint.ADMITTED_RECORDED])
def test_a_table_that_comes_after_a_crash_is_left_out(project: Project, point: CrashPoint) -> None:
    """And those that were there before it are not."""
    project.configure("mirror", schema_change={"table_created": "ignore"})
    project.killed_at(point, "capture", "--once")
    project.database.execute(CHANGES, LATE)
    project.killed_at(point, "capture", "--once")  # it is seen
    assert not project.is_landed("a.late")
    project.database.execute(MORE)
    project.run("capture", "--once")
    assert_landed(project)
    assert not project.is_landed("a.late")
    project.killed_at(point, "reset", "a.late", "--yes")
    project.run("capture", "--once")
    assert_landed(project, "a.late")


@pytest.mark.parametrize("point", MOVES)
def test_a_key_that_goes_and_comes_back_is_followed_after_crashes(
    project: Project, point: CrashPoint
) -> None:
    project.configure("source", event_trigger=False)  # it would do that in the database
    project.run("capture", "--once")
    project.database.execute(CHANGES, LOST)
    project.killed_at(point, "capture", "--once")
    project.run("capture", "--once")  # until then PostgreSQL rejects updates
    project.database.execute("insert into b.notes values (70, 'more')", MISSED)
    project.database.execute(BACK)
    project.killed_at(point, "capture", "--once")
    project.database.execute(MORE)
    project.run("capture", "--once")
    assert_landed(project)


@pytest.mark.parametrize("point", [CrashPoint.PUBLICATION_JOINED])
def test_a_table_that_is_published_again_is_read_again_after_a_crash(
    project: Project, point: CrashPoint
) -> None:
    publish = UNPUBLISHED.format(name=project.database.name)
    killed_after(project, point, [CHANGES, publish, MISSED])
