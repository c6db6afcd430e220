"""A database as event files and, in the same stream, as a landing zone: the Delta tables of both
are the same, rows and change feed, under load and with writer and consumer killed at every step."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrorlake.capture.backfill.jobs import BackfillJobState
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.mirror.compaction.small_files import SMALLEST
from mirrorlake.model.crash_points import CrashPoint
from tests.conftest import Database
from tests.crash.both_paths import (
    TABLES,
    TYPES,
    Both,
    compared,
    compared_where_one_commit_has_all,
    load,
)
from tests.crash.project import SCHEMA
from tests.crash.test_backfill_crashes import CHUNKS, job_of
from tests.events.values import decoded
from tests.profiles import some

pytestmark = [pytest.mark.postgres, pytest.mark.crash]

WRITER = [
    (CrashPoint.EVENTS_ASSIGNED, 1),
    (CrashPoint.CHANGES_PUBLISHED_ONE, 1),
    (CrashPoint.EVENTS_WRITTEN_ONE, 2),
    (CrashPoint.CHANGES_STAGED, 1),
    (CrashPoint.EVENTS_WRITTEN_ONE, 1),
    (CrashPoint.CUT_WRITTEN, 1),
    (CrashPoint.CHANGES_PUBLISHED, 1),
    (CrashPoint.CUT_WRITTEN, 2),
    (CrashPoint.ACKNOWLEDGED, 1),
]
LOAD = [
    (CrashPoint.STREAM_RECORDED, 1),
    (CrashPoint.SLOT_CREATED, 1),
    (CrashPoint.ESTABLISHED, 1),
    (CrashPoint.LOAD_NOTED, 2),
    (CrashPoint.LOAD_STAGED, 2),
    (CrashPoint.LOAD_MANIFEST, 1),
    (CrashPoint.LOAD_PUBLISHED_ONE, 2),
    (CrashPoint.LOAD_PUBLISHED, 1),
]
ALTERED = [
    CrashPoint.KNOWN_RECORDED,
    CrashPoint.KNOWN_NOTED,
    CrashPoint.MESSAGE_DUE,
    CrashPoint.MESSAGE_WRITTEN,
]
BACKFILL = [
    (CrashPoint.EVENTS_ASSIGNED, 1),
    (CrashPoint.EVENTS_ASSIGNED, 2),
    (CrashPoint.EVENTS_WRITTEN_ONE, 2),
    (CrashPoint.EVENTS_WRITTEN_ONE, 1),
    (CrashPoint.BACKFILL_RECORDED, 1),
    (CrashPoint.BACKFILL_RECORDED, 2),
    (CrashPoint.BACKFILL_STAGED, 2),
    (CrashPoint.BACKFILL_PUBLISHED, 1),
    (CrashPoint.CUT_WRITTEN, 2),
]
NUMBERED_LOAD = [(number, *one) for number, one in enumerate(LOAD)]
COMPACTION = [CrashPoint.FILES_COMPACTED, CrashPoint.COMPACTION_COMMITTED]
CONSUMER = [CrashPoint.KEYS_WRITTEN, CrashPoint.EVENTS_COMMITTED, CrashPoint.EVENT_FILES_RECORDED]


@pytest.mark.clause("ST-006", "ST-097", "ST-098", "ST-222", "ST-223", "ST-235")
@pytest.mark.parametrize(
    ("form", "points"),
    [
        ("avro", WRITER[5:6]),
        pytest.param("json", WRITER[2:3], marks=pytest.mark.full),
        pytest.param("avro", [*WRITER, (None, 1)], marks=pytest.mark.full),
    ],
    ids=["avro", "json", "avro at every step"],
)
def test_tables_of_events_and_of_a_landing_zone_are_the_same_whatever_is_killed(
    database: Database, tmp_path: Path, form: str, points: list[tuple[CrashPoint | None, int]]
) -> None:
    database.execute(SCHEMA, TYPES)
    both = Both(tmp_path, database, form)
    both.write()
    reads = both.consumer()
    both.once(reads)
    since = dict.fromkeys(TABLES, (-1, -1))
    for name, of_zone, of_events in both.feeds(since):
        assert of_zone == of_events, name
    for round_, (point, passage) in enumerate(points):
        with load(database.url, round_):
            if point is not None:
                both.killed_at(point, "capture", "--once", passage=passage)
            both.run("capture", "--once")
        both.run("capture", "--once")
        reads.killed_at(CONSUMER[round_ % len(CONSUMER)], "apply", "--once")
        reads.run("apply", "--once")
        both.apply_landed()
        compared(both, str(point))
        for name, of_zone, of_events in both.feeds(since):
            assert of_zone == of_events, (point, name)


@pytest.mark.clause("ST-222", "ST-235")
@pytest.mark.parametrize(("number", "point", "passage"), some(NUMBERED_LOAD, quick=0))
def test_a_load_that_is_killed_makes_the_same_tables_and_feeds(
    database: Database, tmp_path: Path, number: int, point: CrashPoint, passage: int
) -> None:
    # Of several parts, of which those that are read are noted, however far the load has come.
    rows = "insert into a.orders (id, note) select g, 'note' from generate_series(10000, 12000) g"
    database.execute(SCHEMA, TYPES, rows, "analyze a.orders")
    both = Both(tmp_path, database)
    both.write()
    both.configure("load", part_bytes=8192)
    reads = both.consumer()
    with load(database.url, number):
        both.killed_at(point, "capture", "--once", passage=passage)
        both.run("capture", "--once")
    both.run("capture", "--once")
    reads.killed_at(CONSUMER[number % len(CONSUMER)], "apply", "--once")
    reads.run("apply", "--once")
    both.apply_landed()
    compared(both)
    since = dict.fromkeys(TABLES, (-1, -1))
    compared_where_one_commit_has_all(both, since)
    with load(database.url, number + 1):
        both.run("capture", "--once")
    both.once(reads)
    compared(both)
    for name, of_zone, of_events in both.feeds(since):
        assert of_zone == of_events, name


@pytest.mark.clause("ST-223", "ST-235", "ST-258")
@pytest.mark.parametrize("point", some(ALTERED, quick=0))
def test_a_change_of_columns_that_is_killed_makes_the_same_tables_and_feeds(
    database: Database, tmp_path: Path, point: CrashPoint
) -> None:
    database.execute(SCHEMA, TYPES)
    both = Both(tmp_path, database)
    both.write()
    reads = both.consumer()
    both.once(reads)
    with load(database.url, 3):
        database.execute(
            "alter table a.orders add c int",
            "insert into a.orders (id, c) values (90000, 1)",
            "alter table a.types add d int",
            "update a.types set d = id where id < 5",
        )
        both.killed_at(point, "capture", "--once")
        both.run("capture", "--once")
    both.once(reads)
    compared(both, str(point))


@pytest.mark.clause("ST-222", "ST-235", "ST-290")
@pytest.mark.parametrize(("point", "passage"), some(BACKFILL))
def test_a_backfill_that_is_killed_makes_the_same_tables_and_feeds(
    database: Database, tmp_path: Path, point: CrashPoint, passage: int
) -> None:
    database.execute(SCHEMA, TYPES)
    both = Both(tmp_path, database)
    both.write()
    reads = both.consumer()
    both.once(reads)
    since = dict.fromkeys(TABLES, (-1, -1))
    compared_where_one_commit_has_all(both, since)
    both.run("backfill", "a.orders", *CHUNKS)
    with load(database.url, passage):
        both.killed_at(point, "capture", "--once", passage=passage)
        reads.run("apply", "--once")  # what an interrupted backfill has written
        both.run("capture", "--once")
    both.run("capture", "--once")
    assert job_of(both, "a.orders").state is BackfillJobState.COMPLETED
    events = [
        e for path in (tmp_path / "bucket").rglob("*.avro") for e in decoded(path.read_bytes())
    ]
    assert len({event["uuid"] for event in events}) == len(events)
    reads.run("apply", "--once")
    both.apply_landed()
    compared(both)
    compared_where_one_commit_has_all(both, since)


@pytest.mark.full
@pytest.mark.clause("ST-223")
def test_compactions_that_are_killed_change_neither_tables_nor_feeds(
    database: Database, tmp_path: Path
) -> None:
    database.execute(SCHEMA, TYPES)
    both = Both(tmp_path, database)
    both.write()
    reads = both.consumer()
    since = dict.fromkeys(TABLES, (-1, -1))
    points = dict(enumerate(COMPACTION, SMALLEST - 1))
    for number in range(SMALLEST + len(points)):
        if number:
            database.execute(
                f"insert into a.types (id, num) values ({1000 + number}, {number})",
                f"update a.types set tm = '10:00' where id % 5 = {number % 5}",
                f"update a.orders set note = '{number}', id = id + 1000 where id = {number}",
                f'delete from a.items where "order" = {number}',
                f"insert into b.notes values ({number}, 'note')",
            )
        both.run("capture", "--once")
        if point := points.get(number):
            reads.killed_at(point, "apply", "--once")
        reads.run("apply", "--once")
        both.apply_landed()
        for name, of_zone, of_events in both.feeds(since):
            assert of_zone == of_events, (number, name)
    compared(both)
    log = TableLog(str(both.paths("a.orders")[1]))
    actions = [one for n in range(log.snapshot().version + 1) for one in log.actions(n)]
    assert "OPTIMIZE" in [one.get("commitInfo", {}).get("operation") for one in actions]
