"""A database as event files and, in the same stream, as a landing zone: the Delta tables of both
are the same, rows and change feed, under load and with writer and consumer killed at every step.

The types that each path makes of those of PostgreSQL are documented, and differ: here a value is
compared as what both say (`plain`)."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, time
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest

from mirrorlake import config, read_feed
from mirrorlake.capture.backfill.jobs import BackfillJobState
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.model.crash_points import CrashPoint
from tests.app.applying import Applying
from tests.apply.events.drawn_files import rows_of
from tests.conftest import Database
from tests.crash.project import SCHEMA, Project
from tests.crash.project import TABLES as PLAIN_TABLES
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
    (CrashPoint.CUT_WRITTEN, 2),
    (CrashPoint.ACKNOWLEDGED, 1),
]
BACKFILL = [
    (CrashPoint.EVENTS_WRITTEN_ONE, 2),
    (CrashPoint.EVENTS_WRITTEN_ONE, 1),
    (CrashPoint.BACKFILL_RECORDED, 1),
    (CrashPoint.BACKFILL_RECORDED, 2),
    (CrashPoint.CUT_WRITTEN, 2),
]
CONSUMER = [CrashPoint.KEYS_WRITTEN, CrashPoint.EVENTS_COMMITTED, CrashPoint.EVENT_FILES_RECORDED]
OWN = ("_commit_version", "_commit_timestamp", "datastream_metadata")


TABLES = (*PLAIN_TABLES, "a.types")
TYPES = """
create table a.types (
    id int primary key, num numeric(10,2), tm time, at timestamptz, day date, yes boolean,
    raw bytea, doc jsonb
);
insert into a.types select g, g / 100.0, make_time(g % 24, 0, g + 0.5),
    timestamptz '2026-11-23 10:05:00.5+02' + g * interval '1 day', date '1969-12-01' + g,
    g % 2 = 0, decode(md5(g::text), 'hex'), jsonb_build_object('a', array[g, null], 'b', 2.50)
    from generate_series(1, 50) g;
insert into a.types (id) values (51);
"""


def plain(column: str, value: Any) -> Any:
    """A value as both paths have it."""
    if value is None:
        return None
    match column:
        case "num":  # a decimal, and a NUMBER, which is text
            return Decimal(value)
        case "tm":  # text, with the digits of PostgreSQL and with six
            return value if isinstance(value, time) else time.fromisoformat(value)
        case "doc":  # text, with the blanks of PostgreSQL and without
            found = json.loads(value) if isinstance(value, str) else value
            return json.dumps(found, sort_keys=True)
        case "at":
            return value.astimezone(UTC)
        case _:
            return value


@dataclass
class Both(Project):
    """One stream into a landing zone and into event files, and a consumer of these."""

    form: str = "avro"

    def write(self, **_settings: Any) -> None:
        self.file.write_text(
            f"name: {self.database.name}\nroot: ./root\n"
            "source:\n  type: postgresql\n  url: ${TEST_URL}\n  tables: ['a.*', 'b.*']\n"
            "  load_workers: 1\ncapture: {debounce_seconds: 0}\ndestination:\n  - type: landing\n"
            f"  - {{type: events, url: ./bucket, rotation_seconds: 0.1, format: {self.form}"
            + (", schema_file: true}\n" if self.form == "json" else "}\n")
        )
        self.reads = self.folder / "reads.yaml"
        self.reads.write_text("name: r\nroot: ./lake\nsource: {type: events, url: ./bucket}\n")

    def consumer(self) -> Project:
        return _Reads(self.folder, self.database)

    def apply_landed(self) -> None:
        report = Applying(config.load(self.file, {"TEST_URL": self.database.url})).apply()
        assert not report.errors

    def feeds(self, since: dict[str, tuple[int, int]]) -> Iterator[tuple[str, Any, Any]]:
        """What both feeds tell of each table beyond these versions, which are moved on."""
        for name in TABLES:
            pair = [self.root / "Tables", self.folder / "lake/Tables"]
            paths = [root / name.replace(".", "/") for root in pair]
            newest = [TableLog(str(path)).snapshot().version for path in paths]
            told = [
                _told(path, first + 1) if last > first else Counter()
                for path, first, last in zip(paths, since[name], newest, strict=True)
            ]
            since[name] = (newest[0], newest[1])
            yield name, *told

    def tables(self, name: str) -> list[Counter[tuple[Any, ...]]]:
        path = name.replace(".", "/")
        found = [rows_of(self.root / "Tables" / path), rows_of(self.folder / "lake/Tables" / path)]
        return [
            Counter(tuple(plain(k, v) for k, v in row.items() if k not in OWN) for row in rows)
            for rows in found
        ]

    def source_rows(self, table: str) -> Counter[tuple[Any, ...]]:
        schema, name = table.split(".")
        found = self.database.sql.execute(f'select * from "{schema}"."{name}"')
        names = [column.name for column in found.description or ()]
        return Counter(tuple(map(plain, names, row)) for row in found.fetchall())


class _Reads(Project):
    @property
    def file(self) -> Path:
        return self.folder / "reads.yaml"


def _told(path: Path, version: int) -> Counter[tuple[Any, ...]]:
    rows = read_feed(path, from_version=version).to_arrow().to_pylist()
    return Counter(
        tuple(plain(k, v) for k, v in sorted(row.items()) if k not in OWN) for row in rows
    )


@contextmanager
def load(url: str, seed: int) -> Iterator[None]:
    """Transactions, as long as this is entered."""
    stop, random = threading.Event(), Random(seed)

    def change() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            while not stop.is_set():
                with connection.transaction():
                    for _change in range(random.choice([1, 3, 9])):
                        connection.execute(_statement(random))
                stop.wait(0.02)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


STATEMENTS = """
insert into a.orders values ({key}, 'n{n}', repeat('x', 2500)) on conflict do nothing
update a.orders set note = 'u{n}' where id = {key}
update a.orders set id = {n} where id = {key}
delete from a.orders where id = {key}
update a.orders set long = repeat('y', 2500 + {n} % 9) where id = {key}
insert into a.items values ({key}, 1, 'i{n}') on conflict do nothing
delete from a.items where "order" between {key} and {key} + 3
insert into b.notes values ({key}, 'b{n}') on conflict (id) do update set note = excluded.note
insert into a.types values ({key}, {n} / 100.0, make_time({key} % 24, 4, {n} % 59 + 0.25), \
timestamptz '2026-11-23 10:05:00+02' + {n} * interval '1 ms', date '2026-01-01' + {key}, \
{n} % 2 = 0, decode(md5('{n}'), 'hex'), jsonb_build_object('n', {n}, 'a', array[{key}, null])) \
on conflict (id) do nothing
update a.types set num = -{n} / 100.0, tm = '23:59:59.999999', yes = not yes, raw = '' \
where id = {key}
update a.types set doc = '[1, {{"x": 1.10}}]', at = at + interval '1 us', day = null \
where id = {key}
delete from a.types where id = {key}
"""


def _statement(random: Random) -> bytes:
    statement = random.choice(STATEMENTS.strip().splitlines())
    return statement.format(key=random.randrange(200), n=random.randrange(10**6)).encode()


def compared(both: Both, name: str = "") -> None:
    """The rows of both paths are those of the source."""
    for table in TABLES:
        of_zone, of_events = both.tables(table)
        assert of_zone == of_events == both.source_rows(table), (name, table)


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
    both.run("capture", "--once")
    reads.run("apply", "--once")
    both.apply_landed()
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


@pytest.mark.clause("ST-222", "ST-235", "ST-290")
@pytest.mark.parametrize(("point", "passage"), some(BACKFILL))
def test_a_backfill_into_event_files_that_is_killed_leaves_the_rows_of_the_source(
    database: Database, tmp_path: Path, point: CrashPoint, passage: int
) -> None:
    database.execute(SCHEMA, TYPES)
    both = Both(tmp_path, database)
    both.write()
    reads = both.consumer()
    both.run("capture", "--once")
    reads.run("apply", "--once")
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
