"""A database as event files and, in the same stream, as a landing zone; the Delta tables of both.

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

from mirrorlake import config, read_feed
from mirrorlake.delta.feed_columns import COMMIT_VERSION
from mirrorlake.delta.log.table_log import TableLog
from tests.app.applying import Applying
from tests.apply.events.drawn_files import rows_of
from tests.crash.folded import folded
from tests.crash.project import TABLES as PLAIN_TABLES
from tests.crash.project import Project
from tests.profiles import FORMAT

OWN = ("_commit_version", "_commit_timestamp", "datastream_metadata")
KEYS = {"a.orders": ["id"], "a.items": ["order", "line"], "b.notes": ["id"], "a.types": ["id"]}
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
            f"  load_workers: 1\n{FORMAT}"
            "capture: {debounce_seconds: 0}\ndestination:\n  - type: landing\n"
            f"  - {{type: events, url: ./bucket, rotation_seconds: 0.1, format: {self.form}"
            + (", schema_file: true}\n" if self.form == "json" else "}\n")
        )
        self.reads = self.folder / "reads.yaml"
        self.reads.write_text("name: r\nroot: ./lake\nsource: {type: events, url: ./bucket}\n")

    def consumer(self) -> Project:
        return _Reads(self.folder, self.database)

    def once(self, reads: Project) -> None:
        """Everything is captured, and applied on both paths. reads: the consumer of the events."""
        self.run("capture", "--once")
        reads.run("apply", "--once")
        self.apply_landed()

    def apply_landed(self) -> None:
        report = Applying(config.load(self.file, {"TEST_URL": self.database.url})).apply()
        assert not report.errors

    def feeds(self, since: dict[str, tuple[int, int]]) -> Iterator[tuple[str, Any, Any]]:
        """What both feeds tell of each table beyond these versions, which are moved on."""
        for name, of_zone, of_events in self.commits(since):
            yield name, sum(of_zone, Counter()), sum(of_events, Counter())

    def commits(
        self, since: dict[str, tuple[int, int]]
    ) -> Iterator[tuple[str, list[Counter[Any]], list[Counter[Any]]]]:
        """As `feeds`, for each commit that has changes."""
        for name in TABLES:
            paths = self.paths(name)
            newest = [TableLog(str(path)).snapshot().version for path in paths]
            told = [
                _told(path, first + 1) if last > first else []
                for path, first, last in zip(paths, since[name], newest, strict=True)
            ]
            since[name] = (newest[0], newest[1])
            yield name, told[0], told[1]

    def paths(self, name: str) -> tuple[Path, Path]:
        """The tables of a name: of the landing zone, and of the events."""
        path = name.replace(".", "/")
        return self.root / "Tables" / path, self.folder / "lake/Tables" / path

    def tables(self, name: str) -> list[Counter[tuple[Any, ...]]]:
        return [
            Counter(
                tuple(plain(k, v) for k, v in row.items() if k not in OWN) for row in rows_of(path)
            )
            for path in self.paths(name)
        ]

    def folded(self, name: str) -> list[Counter[tuple[Any, ...]]]:
        """What the feeds of both from their first version on make of nothing."""
        return [
            Counter(tuple(row.values()) for row in folded(path, KEYS[name], plain, OWN))
            for path in self.paths(name)
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


def _told(path: Path, version: int) -> list[Counter[Any]]:
    """The changes of each commit from a version on."""
    found: dict[int, Counter[Any]] = {}
    for row in read_feed(path, from_version=version).to_arrow().to_pylist():
        image = tuple(plain(k, v) for k, v in sorted(row.items()) if k not in OWN)
        found.setdefault(row[COMMIT_VERSION], Counter())[image] += 1
    return [found[number] for number in sorted(found)]


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
    """The rows of both paths are those of the source, and so are those that their feeds make."""
    for table in TABLES:
        rows = both.source_rows(table)
        assert both.tables(table) == [rows, rows], (name, table)
        assert both.folded(table) == [rows, rows], (name, table)


def compared_where_one_commit_has_all(both: Both, since: dict[str, tuple[int, int]]) -> None:
    """Where both paths applied what came in one commit, it has the same changes. Several commits of
    one path may have parts of it that no commit of the other one has."""
    for name, of_zone, of_events in both.commits(since):
        if len(of_zone) == len(of_events) == 1:
            assert of_zone == of_events, name
