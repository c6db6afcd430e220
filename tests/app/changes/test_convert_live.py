"""What a live database did becomes events: each change, with its transaction and time."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from mirrorlake import Mirror, Project, config
from mirrorlake.app.changes.convert import convert
from mirrorlake.storage.local import LocalStore
from tests.app.changes.test_every_landed_change import place
from tests.app.evolving_database import EvolvingDatabase
from tests.conftest import Database
from tests.delta.handmade import HandmadeTable
from tests.events.values import decoded

pytestmark = [pytest.mark.postgres, pytest.mark.full]

LONG = "repeat(md5('1'), 300)"
TABLE = [
    "create table apples (id int primary key, note text, weight int)",
    "alter table apples alter note set storage external",
    f"insert into apples values (1, {LONG}, 1), (2, 'two', 2)",
]
CHANGES = [
    # The long note is sent with none of these.
    "update apples set weight = 10 where id = 1; update apples set weight = 11 where id = 1",
    "update apples set id = 3 where id = 1",
    "insert into apples values (4, 'four', 4); delete from apples where id = 4",
    "delete from apples where id = 2; insert into apples values (2, 'again', 5)",
]


def test_each_change_of_a_database_is_an_event(
    database: Database, store: LocalStore, tmp_path: Path
) -> None:
    evolving = EvolvingDatabase(database, store, metadata=True)
    evolving.begin(*TABLE)
    evolving.run(*CHANGES)
    evolving.capture()
    evolving.apply()
    bucket = tmp_path / "bucket"
    with Mirror(Project.of_root(store.root)) as mirror:
        (done,) = [one for one in convert(mirror, bucket) if one.table == "public.apples"]
    assert (done.error, done.snapshot, done.changes) == (None, 2, 8)
    found = [one for one in events(bucket) if one["source_metadata"]["table"] == "apples"]
    changes = [one for one in found if one["read_method"] == "postgres-cdc-wal"]
    changes.sort(key=lambda one: place(one["source_metadata"]["lsn"]))
    note = hashlib.md5(b"1", usedforsecurity=False).hexdigest() * 300
    assert [
        (one["source_metadata"]["change_type"], *map(one["payload"].get, ("id", "note", "weight")))
        for one in changes
    ] == [
        ("UPDATE", 1, note, 10),
        ("UPDATE", 1, note, 11),
        ("DELETE", 1, note, 11),
        ("INSERT", 3, note, 11),
        ("INSERT", 4, "four", 4),
        ("DELETE", 4, "four", 4),
        ("DELETE", 2, "two", 2),
        ("INSERT", 2, "again", 5),
    ]
    transactions = [one["source_metadata"]["tx_id"] for one in changes]
    assert transactions == [tx for tx in dict.fromkeys(transactions) for _two in range(2)]
    assert len(set(transactions)) == len(CHANGES)
    file = tmp_path / "events.yaml"
    file.write_text("name: t\nroot: ./tables\nsource: {type: events, url: ./bucket}\n")
    with Mirror(config.load(file)) as mirror:
        mirror.apply_once()
    table = HandmadeTable(tmp_path / "tables/Tables/public/apples")
    assert sorted(row[:3] for row in table.rows()) == [(2, "again", 5), (3, note, 11)]


def test_what_comes_before_a_change_of_type_is_carried_by_the_rows(
    database: Database, store: LocalStore, tmp_path: Path
) -> None:
    evolving = EvolvingDatabase(database, store, widens=True)
    evolving.begin(*TABLE)
    steps = [
        "update apples set weight = 2 where id = 2; update apples set weight = 3 where id = 2",
        "alter table apples alter weight type bigint; update apples set weight = 4 where id = 2",
        "alter table apples add column size int default 7; update apples set weight = 5",
        "update apples set size = 8 where id = 2; update apples set size = 9 where id = 2",
    ]
    for step in steps:
        evolving.run(step)
        evolving.capture()
        evolving.apply()
    bucket = tmp_path / "bucket"
    with Mirror(Project.of_root(store.root)) as mirror:
        (done,) = [one for one in convert(mirror, bucket) if one.table == "public.apples"]
    assert (done.error, done.lost) == (None, ())
    assert done.changes >= 2
    file = tmp_path / "events.yaml"
    file.write_text("name: t\nroot: ./tables\nsource: {type: events, url: ./bucket}\n")
    with Mirror(config.load(file)) as mirror:
        report = mirror.apply_once()
    assert not report.errors
    table = HandmadeTable(tmp_path / "tables/Tables/public/apples")
    names = table.schema.schema.names
    places = [names.index(name) for name in ("id", "weight", "size")]
    rows = sorted(tuple(row[place] for place in places) for row in table.rows())
    assert rows == [(1, 5, 7), (2, 5, 9)]


def events(bucket: Path) -> list[dict[str, Any]]:
    files = [path for path in bucket.rglob("*") if path.is_file()]
    return [one for file in files for one in decoded(file.read_bytes())]
