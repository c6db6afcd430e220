"""A live database as event files: every type, truncation, another destination, reset."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mirrorlake import config
from mirrorlake.app.mirror import Mirror
from mirrorlake.app.reset import plan_reset
from mirrorlake.apply.events.settings import EventInput
from mirrorlake.capture.backfill import requests
from mirrorlake.capture.backfill.jobs import BackfillRecords
from mirrorlake.capture.events.state import EventState, WrittenEvents, milliseconds, written
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.errors import ConfigError, SourceGap, UsageError
from mirrorlake.events.paths import EventExtension
from mirrorlake.model.clock import WallClock
from mirrorlake.root import LANDING
from mirrorlake.storage.local import LocalStore
from mirrorlake.storage.urls import StorageLocation, open_store
from tests.apply.events.drawn_files import rows_of
from tests.conftest import Database
from tests.events.values import decoded
from tests.objects import S3Server

TYPES = """
create schema a;
create type a.mood as enum ('ok', 'sad');
create table a.types (
  id int primary key, small smallint, big bigint, num numeric, dec numeric(30,10), cash money,
  real real, double double precision, yes boolean, bytes bytea, bits bit(5), day date, tm time,
  tz timetz, ts timestamp, tstz timestamptz, span interval, js jsonb, uid uuid, mood a.mood,
  tags text[], grid int[], raw bytea[], times timestamptz[], doc jsonb[]
);
insert into a.types values
  (1, -3, 9007199254740993, 'NaN', 12345678901234567890.0000000001, -1234.5, 1.5, 0.1, true,
   '\\x00ff', '10100', '2026-01-02', '24:00', '08:15:30.5-03:30', '2026-01-02 03:04:05.678901',
   '2026-01-02 03:04:05+02', '-1 year -2 mons +3 days -04:05:06.7', '{"a": [1, 2.50]}',
   '12345678-1234-5678-1234-567812345678', 'sad', '{a,NULL,"b,\\"c"}', '{{1,2},{3,4}}',
   '{"\\\\x00ff",NULL}', '{"2026-01-02 03:04:05+02"}', '{"[1]",null}');
insert into a.types (id, tags) values (2, '{}');
"""
TSTZ = {"timestamp": 1767315845000000, "offset": 0}
FIRST = {
    "small": -3,
    "big": 9007199254740993,
    "num": "NaN",
    "dec": "12345678901234567890.0000000001",
    "cash": "-1234.50",
    "real": 1.5,
    "double": 0.1,
    "yes": True,
    "bytes": b"\x00\xff",
    "bits": b"10100",
    "tm": 86_400_000_000,
    "tz": {"time": 29_730_500_000, "offset": -12_600_000},
    "ts": 1767323045678901,
    "tstz": TSTZ,
    "span": {"months": -14, "hours": 68, "micros": -306_700_000},
    "js": '{"a": [1, 2.50]}',
    "uid": "12345678-1234-5678-1234-567812345678",
    "mood": "sad",
    "tags": ["a", None, 'b,"c'],
    "grid": [[1, 2], [3, 4]],
    "raw": [b"\x00\xff", None],
    "times": [TSTZ],
    "doc": "[[1],null]",
}


def flat(value: Any) -> Any:
    """The record of an array as lists."""
    if isinstance(value, dict) and "nestedArray" in value:
        inner = value["nestedArray"]
        return value["elementValue"] if inner is None else [flat(one) for one in inner]
    return value


def events(bucket: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(bucket.rglob("*.avro")):
        found = decoded(path.read_bytes())
        yield from found
        minutes = {np.datetime64(event["source_timestamp"], "ms").item() for event in found}
        assert {f"{moment:%Y/%m/%d/%H/%M}" for moment in minutes} == {"/".join(path.parts[-6:-1])}


def project(
    folder: Path, database: Database, more: str = "", url: str = "./bucket"
) -> config.Project:
    file = folder / "mirrorlake.yaml"
    file.write_text(
        f"name: {database.name}\nroot: ./root\n"
        f"source:\n  type: postgresql\n  url: {database.url}\n  tables: ['a.*']\n"
        f"destination:\n  type: events\n  url: {url}\n  path: some/where\n{more}"
    )
    return config.load(file)


def changed(folder: Path, database: Database, *changes: str) -> list[dict[str, Any]]:
    """The events of some changes, in order; what was there before is loaded."""
    mirror = Mirror(project(folder, database))
    mirror.capture_once()
    loaded = {event["uuid"] for event in events(folder / "bucket")}
    database.execute(*changes)
    mirror.capture_once()
    found = [event for event in events(folder / "bucket") if event["uuid"] not in loaded]
    return sorted(found, key=lambda event: event["uuid"])


@pytest.mark.postgres
@pytest.mark.clause("ST-009", "ST-069", "ST-104", "ST-166", "ST-172", "ST-201")
def test_every_type_and_every_change_of_a_database_becomes_an_event(
    database: Database, tmp_path: Path
) -> None:
    database.execute(TYPES)
    mirror = Mirror(project(tmp_path, database))
    mirror.capture_once()
    found = list(events(tmp_path / "bucket/some/where"))
    assert [event["payload"]["id"] for event in found] == [1, 2]
    first = found[0]
    assert first["read_method"] == "postgresql-backfill"
    assert first["sort_keys"] == [first["source_timestamp"], ""]
    assert first["source_timestamp"] <= first["read_timestamp"]
    metadata = first["source_metadata"]
    assert (metadata["lsn"], metadata["tx_id"]) == (None, None)
    assert (metadata["change_type"], metadata["primary_keys"]) == ("INSERT", ["id"])
    told = {name: flat(value) for name, value in first["payload"].items()}
    assert {name: told[name] for name in FIRST} == FIRST
    assert flat(found[1]["payload"]["tags"]) == []
    assert found[1]["payload"]["span"] is None

    loaded = {event["uuid"] for event in found}
    database.execute("update a.types set id = 3 where id = 1; alter table a.types add late text;")
    database.execute("update a.types set late = 'x' where id = 2; delete from a.types where id = 3")
    mirror.capture_once()
    changed = [e for e in events(tmp_path / "bucket") if e["uuid"] not in loaded]
    changed.sort(key=lambda event: event["uuid"])
    kinds = [
        (
            e["source_metadata"]["change_type"],
            e["source_metadata"]["is_deleted"],
            e["payload"]["id"],
        )
        for e in changed
    ]
    assert kinds == [
        ("DELETE", True, 1),
        ("INSERT", False, 3),
        ("UPDATE", False, 2),
        ("DELETE", True, 3),
    ]
    assert changed[0]["source_metadata"]["lsn"] == changed[1]["source_metadata"]["lsn"]
    assert changed[0]["source_metadata"]["tx_id"] == changed[1]["source_metadata"]["tx_id"]
    for event in changed:
        assert event["sort_keys"] == [event["source_timestamp"], event["source_metadata"]["lsn"]]
    again = {name: flat(value) for name, value in changed[1]["payload"].items()}
    assert {name: again[name] for name in FIRST} == FIRST
    # Another schema is another key and another file (ST-172).
    assert changed[0]["schema_key"] == first["schema_key"] != changed[2]["schema_key"]
    assert changed[2]["payload"]["late"] == "x"


@pytest.mark.postgres
@pytest.mark.clause("ST-069")
@pytest.mark.parametrize("form", ["avro", "json"])
def test_numbers_of_transactions_are_written_as_numbers_where_asked_for(
    database: Database, tmp_path: Path, form: str
) -> None:
    database.execute("create schema a; create table a.t (id int primary key);")
    mirror = Mirror(project(tmp_path, database, f"  long_tx_id: true\n  format: {form}\n"))
    mirror.capture_once()
    ((number,),) = database.sql.execute(
        "insert into a.t values (1) returning pg_current_xact_id()::text::bigint"
    ).fetchall()
    mirror.capture_once()
    (path,) = (tmp_path / "bucket").rglob("*_postgres-cdc-wal_*")
    content = path.read_bytes()
    (event,) = decoded(content) if form == "avro" else [json.loads(content)]
    assert event["source_metadata"]["tx_id"] == number


@pytest.mark.postgres
def test_a_truncated_table_stops_until_it_is_reset(database: Database, tmp_path: Path) -> None:
    database.execute("create schema a; create table a.t (id int primary key);")
    database.execute("insert into a.t values (1)")
    settings = project(tmp_path, database)
    Mirror(settings).capture_once()
    database.execute("truncate a.t; insert into a.t values (2)")
    Mirror(settings).capture_once()
    records = Records(LocalStore(settings.root), LANDING)
    assert records.stopped()["a.t"]["code"] == "table_truncated"
    assert [event["payload"]["id"] for event in events(tmp_path / "bucket")] == [1]
    reset = plan_reset(settings, ["a.t"])
    assert "a.t: capture it again" in reset.sentences()
    reset.execute()
    Mirror(settings).capture_once()
    found = sorted(events(tmp_path / "bucket"), key=lambda event: event["read_timestamp"])
    assert [event["payload"]["id"] for event in found] == [1, 2]
    assert found[1]["read_method"] == "postgresql-backfill"


@pytest.mark.postgres
@pytest.mark.clause("ST-282", "ST-290")
def test_a_stream_without_backfill_writes_events_of_changes_until_one_is_asked_for(
    database: Database, tmp_path: Path
) -> None:
    database.execute("create schema a; create table a.t (id int primary key, n int);")
    database.execute("insert into a.t values (1, 0), (2, 0), (3, 0)")
    settings = replace(
        project(tmp_path, database), capture=CaptureSettings(load=("!*",), load_joining=False)
    )
    Mirror(settings).capture_once()
    database.execute("insert into a.t values (4, 0); update a.t set n = 1 where id = 2")
    database.execute("delete from a.t where id = 3; update a.t set id = 5 where id = 1")
    Mirror(settings).capture_once()
    found = sorted(events(tmp_path / "bucket"), key=lambda event: event["uuid"])
    kinds = [(e["source_metadata"]["change_type"], e["payload"]["id"]) for e in found]
    assert kinds == [("INSERT", 4), ("UPDATE", 2), ("DELETE", 3), ("DELETE", 1), ("INSERT", 5)]
    jobs = BackfillRecords(Records(LocalStore(settings.root), LANDING))
    requests.request(jobs, ["a.t"], "a.t", None, None, WallClock().now())
    Mirror(settings).capture_once()
    read = [e for e in events(tmp_path / "bucket") if e["read_method"] == "postgresql-backfill"]
    assert sorted(event["payload"]["id"] for event in read) == [2, 4, 5]


@pytest.mark.postgres
@pytest.mark.clause("ST-218")
def test_loads_and_backfills_have_the_time_of_the_database_whatever_the_clock_here_says(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a consumer takes them for later than changes that come after them."""
    ahead = timedelta(hours=2)
    monkeypatch.setattr(WallClock, "now", lambda _self: datetime.now(UTC) + ahead)
    database.execute("create schema a; create table a.t (id int primary key, n int);")
    database.execute("insert into a.t values (1, 0)")
    settings, bucket = project(tmp_path, database), tmp_path / "bucket"
    Mirror(settings).capture_once()
    database.execute("update a.t set n = 1")
    Mirror(settings).capture_once()
    jobs = BackfillRecords(Records(LocalStore(settings.root), LANDING))
    requests.request(jobs, ["a.t"], "a.t", None, None, WallClock().now())
    Mirror(settings).capture_once()
    database.execute("update a.t set n = 2")
    Mirror(settings).capture_once()
    found = sorted(events(bucket), key=lambda event: event["source_timestamp"])
    assert [(event["read_method"], event["payload"]["n"]) for event in found] == [
        ("postgresql-backfill", 0),
        ("postgres-cdc-wal", 1),
        ("postgresql-backfill", 1),
        ("postgres-cdc-wal", 2),
    ]
    assert found[-1]["source_timestamp"] < milliseconds(WallClock().now() - ahead / 2)


@pytest.mark.postgres
@pytest.mark.clause("ST-173", "ST-175")
def test_another_destination_is_filled_after_a_reset_of_all_and_again_after_one_of_a_table(
    database: Database, tmp_path: Path
) -> None:
    database.execute("create schema a; create table a.t (id int primary key);")
    database.execute("insert into a.t select generate_series(1, 50)")
    settings = project(tmp_path, database)
    Mirror(settings).capture_once()
    other = replace(
        settings.destinations[0],
        location=tmp_path / "other",
        extension=EventExtension.JSON,
        schema_file=True,
        rotation_bytes=100,
    )
    second = replace(settings, destinations=(other,))
    with pytest.raises(SourceGap, match="reset --all"):
        Mirror(second).capture_once()
    plan_reset(second, None).execute()
    Mirror(second).capture_once()
    for _round in range(2):
        files = [*(tmp_path / "other").rglob("*.jsonl")]
        lines = [json.loads(line) for path in files for line in path.read_text().splitlines()]
        assert {line["payload"]["id"] for line in lines} == set(range(1, 51))
        assert len({line["uuid"] for line in lines}) == len(lines)
        assert len(files) > 1
        told = {path.with_suffix(".jsonl") for path in (tmp_path / "other").rglob("*.schema")}
        assert told == set(files)
        plan_reset(second, ["a.t"]).execute()
        Mirror(second).capture_once()
    assert len(lines) == 100


@pytest.mark.postgres
@pytest.mark.clause("ST-109", "ST-303")
def test_a_value_that_was_not_sent_is_read_or_its_event_is_left_out(
    database: Database, tmp_path: Path
) -> None:
    database.execute("create schema a; create table a.t (id int primary key, n int, long text);")
    database.execute("alter table a.t alter long set storage external")
    database.execute("insert into a.t select g, 0, repeat('x', 5000) from generate_series(1, 2) g")
    changes = ["update a.t set n = 1", "delete from a.t where id = 1"]
    found = changed(tmp_path, database, *changes)
    told = [(e["source_metadata"]["change_type"], e["payload"]["id"]) for e in found]
    assert told == [("UPDATE", 2), ("DELETE", 1)]
    assert found[0]["payload"]["long"] == "x" * 5000
    # The ids count the event that was left out.
    assert [int(event["uuid"][-8:], 2) for event in found] == [1, 2]
    size = sum(path.stat().st_size for path in (tmp_path / "bucket").rglob("*") if path.is_file())
    counted = written(Records(LocalStore(tmp_path / "root"), LANDING))["a.t"]
    assert replace(counted, last=None) == WrittenEvents(events=4, bytes=size, unsupported=1)
    last = counted.last
    assert last
    assert last.committed == found[-1]["source_timestamp"]
    assert found[-1]["read_timestamp"] == last.read <= last.written


@pytest.mark.postgres
def test_event_files_stand_in_a_bucket(database: Database, tmp_path: Path, s3: S3Server) -> None:
    database.execute("create schema a; create table a.t (id int primary key);")
    database.execute("insert into a.t values (1)")
    settings = project(tmp_path, database)
    url = s3.new_bucket()
    location = StorageLocation(url, s3.options)
    mirror = Mirror(
        replace(settings, destinations=(replace(settings.destinations[0], location=location),))
    )
    mirror.capture_once()
    database.execute("insert into a.t values (2)")
    mirror.capture_once()
    store, folder, found = open_store(url, s3.options), ["some/where/a_t"], list[int]()
    while folder:
        listing = store.list(one := folder.pop())
        folder += [f"{one}/{name}" for name in listing.folders]
        for file in listing.files:
            content = store.read(f"{one}/{file.name}")
            found += [event["payload"]["id"] for event in decoded(content)]
    assert sorted(found) == [1, 2]


@pytest.mark.postgres
def test_run_writes_events_until_it_is_stopped(database: Database, tmp_path: Path) -> None:
    database.execute("create schema a; create table a.t (id int primary key);")
    mirror = Mirror(project(tmp_path, database, "  rotation_seconds: 0.1\n"))

    with closing(mirror.capture()) as capture:
        capture.open()
        database.execute("insert into a.t values (7)")
        for _step in range(100):
            capture.step(0.1)
            if any(event["payload"]["id"] == 7 for event in events(tmp_path / "bucket")):
                break
        else:
            raise AssertionError("no event within ten seconds")
    assert mirror.apply_once().tables == {}
    with pytest.raises(UsageError, match="event files"):
        mirror.apply_run()
    mirror.stop.set()
    assert mirror.run().tables == {}


@pytest.mark.postgres
@pytest.mark.clause("ST-037")
def test_two_tables_of_one_object_name_share_no_id(database: Database, tmp_path: Path) -> None:
    database.execute("create schema a; create schema a_b; create table a.b_c (id int primary key);")
    database.execute("create table a_b.c (id int primary key)")
    project(tmp_path, database)
    (tmp_path / "mirrorlake.yaml").write_text(
        (tmp_path / "mirrorlake.yaml").read_text().replace("['a.*']", "['a.*', 'a_b.*']")
    )
    mirror = Mirror(config.load(tmp_path / "mirrorlake.yaml"))
    mirror.capture_once()
    database.execute("insert into a.b_c values (1); insert into a_b.c values (2)")
    mirror.capture_once()
    found = list(events(tmp_path / "bucket"))
    assert {event["object"] for event in found} == {"a_b_c"}
    assert sorted(event["payload"]["id"] for event in found) == [1, 2]
    assert len({event["uuid"] for event in found}) == 2
    lake = tmp_path / "lake"
    source = EventInput(tmp_path / "bucket")
    Mirror(config.Project("reads", lake, events=source)).apply_once()
    assert [row["id"] for row in rows_of(lake / "Tables/a/b_c")] == [1]
    assert [row["id"] for row in rows_of(lake / "Tables/a_b/c")] == [2]


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ("  compression: gzip\n", "destination.compression"),
        ("  format: json\n  compression: deflate\n", "destination.compression"),
        ("  schema_file: true\n", "destination.schema_file"),
        ("  rotation_mb: 0\n", "destination.rotation_mb"),
        ("  format: orc\n", "destination.format"),
        ("  endpoint: http://x\n  region: r\n  account: a\n  url2: b\n", "destination.url2"),
    ],
)
def test_a_destination_that_cannot_be_written_is_refused(
    tmp_path: Path, more: str, field: str
) -> None:
    file = tmp_path / "mirrorlake.yaml"
    source = "source:\n  type: postgresql\n  url: postgresql://h/d\n  tables: ['a.*']\n"
    file.write_text(
        f"name: n\nroot: ./root\n{source}destination:\n  type: events\n  url: ./bucket\n{more}"
    )
    with pytest.raises(ConfigError) as error:
        config.load(file)
    assert field in str(error.value)


@pytest.mark.parametrize("path", ["../out", "a//b", "."])
def test_a_path_does_not_leave_the_destination(tmp_path: Path, path: str) -> None:
    file = tmp_path / "mirrorlake.yaml"
    file.write_text(
        "name: n\nroot: ./root\nsource:\n  type: postgresql\n  url: postgresql://h/d\n"
        f"  tables: ['a.*']\ndestination:\n  type: events\n  url: ./b\n  path: {path}\n"
    )
    with pytest.raises(ConfigError, match=r"destination\.path"):
        config.load(file)


@pytest.mark.clause("ST-174")
def test_files_rotate_at_a_minute_and_fifty_megabytes_unless_told_otherwise(tmp_path: Path) -> None:
    file = tmp_path / "mirrorlake.yaml"
    begun = (
        "name: n\nroot: ./root\nsource:\n  type: postgresql\n  url: postgresql://h/d\n"
        "  tables: ['a.*']\ndestination:\n  type: events\n  url: s3://bucket/crm\n"
    )
    file.write_text(begun)
    found = config.load(file).destinations[0]
    assert (found.rotation_seconds, found.rotation_bytes) == (60, 50 << 20)
    file.write_text(f"{begun}  rotation_seconds: 0.5\n  rotation_mb: 0.5\n")
    found = config.load(file).destinations[0]
    assert (found.rotation_seconds, found.rotation_bytes) == (0.5, 1 << 19)


@pytest.mark.parametrize("section", ["landing", "tables", "mirror", "spark", "histories"])
def test_sections_without_effect_are_refused(tmp_path: Path, section: str) -> None:
    file = tmp_path / "mirrorlake.yaml"
    empty = "[]" if section == "histories" else "{}"
    file.write_text(
        "name: n\nroot: ./root\nsource:\n  type: postgresql\n  url: postgresql://h/d\n"
        f"  tables: ['a.*']\ndestination:\n  type: events\n  url: ./b\n{section}: {empty}\n"
    )
    with pytest.raises(ConfigError, match=f"field {section}"):
        config.load(file)


def test_a_destination_needs_a_source(tmp_path: Path) -> None:
    file = tmp_path / "mirrorlake.yaml"
    file.write_text("name: n\nroot: ./root\ndestination:\n  type: events\n  url: ./bucket\n")
    with pytest.raises(ConfigError, match="source"):
        config.load(file)


@pytest.mark.full
@pytest.mark.postgres
def test_changes_of_a_table_without_key_tell_whole_rows(database: Database, tmp_path: Path) -> None:
    database.execute("create schema a; create table a.t (id int, note text);")
    database.execute("alter table a.t replica identity full")
    database.execute("insert into a.t values (1, 'one'), (1, 'one')")
    changes = [
        "update a.t set note = 'two' where ctid = '(0,1)'",
        "delete from a.t where note = 'one'",
    ]
    found = changed(tmp_path, database, *changes)
    assert [(e["source_metadata"]["is_deleted"], e["payload"]["note"]) for e in found] == [
        (True, "one"),
        (False, "two"),
        (True, "one"),
    ]
    assert all(e["payload"]["id"] == 1 for e in found)
    assert all(e["source_metadata"]["primary_keys"] == [] for e in found)


@pytest.mark.postgres
@pytest.mark.full
@pytest.mark.clause("ST-098")
def test_deletions_and_changed_keys_have_the_row_before_with_identity_full(
    database: Database, tmp_path: Path
) -> None:
    database.execute("create schema a; create table a.t (id int primary key, note text);")
    database.execute("alter table a.t replica identity full")
    database.execute("insert into a.t values (1, 'one'), (2, 'two')")
    changes = ["update a.t set id = 3, note = 'three' where id = 2", "delete from a.t where id = 1"]
    found = changed(tmp_path, database, *changes)
    told = [(e["source_metadata"]["is_deleted"], *e["payload"].values()) for e in found]
    assert told == [(True, 2, "two"), (False, 3, "three"), (True, 1, "one")]


def test_what_an_earlier_release_noted_of_its_one_destination_is_read(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    records = Records(store, LANDING)
    noted = {"format": "1", "destination": "here", "batch": 5, "position": "0/1", "assigned": None}
    content = json.dumps({**noted, "stream_id": "default", "tables": {}, "loads": {}})
    store.replace(f"{records.folder}/events.json", content.encode())
    assert EventState.read(records, "here").batch == 5
    EventState.read(records, "there").write(records)
    assert EventState.read(records, "here").position == "0/1"


@pytest.mark.postgres
@pytest.mark.clause("ST-262")
def test_a_column_of_another_type_comes_with_it(database: Database, tmp_path: Path) -> None:
    database.execute("create schema a; create table a.t (id int primary key, size int);")
    changes = [
        "insert into a.t values (1, 7)",
        "alter table a.t alter size type text using 'x' || size",
        "insert into a.t values (2, '8')",
    ]
    found = changed(tmp_path, database, *changes)
    assert [event["payload"]["size"] for event in found] == [7, "8"]
    assert len({event["schema_key"] for event in found}) == 2
