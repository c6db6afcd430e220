"""A database as event files and, in the same stream, as a landing zone: the Delta tables of both
are the same, rows and change feed, under load and with writer and consumer killed at every step."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest

from mirrorlake import config, read_feed
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.model.crash_points import CrashPoint
from tests.app.applying import Applying
from tests.apply.events.drawn_files import rows_of
from tests.conftest import Database
from tests.crash.project import SCHEMA, TABLES, Project

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
CONSUMER = [CrashPoint.KEYS_WRITTEN, CrashPoint.EVENTS_COMMITTED, CrashPoint.EVENT_FILES_RECORDED]
OWN = ("_commit_version", "_commit_timestamp", "datastream_metadata")


class Both(Project):
    """One stream into a landing zone and into event files, and a consumer of these."""

    def write(self, **_settings: Any) -> None:
        self.file.write_text(
            f"name: {self.database.name}\nroot: ./root\n"
            "source:\n  type: postgresql\n  url: ${TEST_URL}\n  tables: ['a.*', 'b.*']\n"
            "  load_workers: 1\ncapture: {debounce_seconds: 0}\ndestination:\n  - type: landing\n"
            "  - {type: events, url: ./bucket, rotation_seconds: 0.1}\n"
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
            Counter(tuple(v for k, v in row.items() if k not in OWN) for row in rows)
            for rows in found
        ]


class _Reads(Project):
    @property
    def file(self) -> Path:
        return self.folder / "reads.yaml"


def _told(path: Path, version: int) -> Counter[tuple[Any, ...]]:
    rows = read_feed(path, from_version=version).to_arrow().to_pylist()
    return Counter(tuple(v for k, v in sorted(row.items()) if k not in OWN) for row in rows)


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
"""


def _statement(random: Random) -> bytes:
    statement = random.choice(STATEMENTS.strip().splitlines())
    return statement.format(key=random.randrange(200), n=random.randrange(10**6)).encode()


@pytest.mark.clause("ST-006", "ST-097", "ST-098", "ST-222", "ST-223", "ST-235")
@pytest.mark.parametrize(
    "points", [WRITER[5:6], pytest.param([*WRITER, (None, 1)], marks=pytest.mark.full)], ids=len
)
def test_tables_of_events_and_of_a_landing_zone_are_the_same_whatever_is_killed(
    database: Database, tmp_path: Path, points: list[tuple[CrashPoint | None, int]]
) -> None:
    database.execute(SCHEMA)
    both = Both(tmp_path, database)
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
        for name in TABLES:
            of_zone, of_events = both.tables(name)
            assert of_zone == of_events == both.source_rows(name), (point, name)
        for name, of_zone, of_events in both.feeds(since):
            assert of_zone == of_events, (point, name)
