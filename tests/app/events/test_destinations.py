"""Several destinations of one stream, and backfills into event files."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mirrorlake import config
from mirrorlake.app.mirror import Mirror
from mirrorlake.apply.events.settings import EventInput
from mirrorlake.capture.backfill.jobs import BackfillJobState
from mirrorlake.errors import ConfigError
from tests.apply.events.drawn_files import rows_of
from tests.conftest import Database
from tests.events.values import decoded
from tests.profiles import some

BOTH = """\
destination:
  - type: landing
  - {type: events, url: ./first, rotation_seconds: 3600}
  - {type: events, url: ./second, rotation_seconds: 0.1}
"""


def project(folder: Path, database: Database, destination: str = BOTH) -> config.Project:
    file = folder / "mirrorlake.yaml"
    file.write_text(
        f"name: {database.name}\nroot: ./root\n"
        f"source:\n  type: postgresql\n  url: {database.url}\n  tables: ['a.*']\n"
        f"{destination}"
    )
    return config.load(file)


def events(bucket: Path) -> list[dict[str, Any]]:
    found = [one for path in bucket.rglob("*.avro") for one in decoded(path.read_bytes())]
    return sorted(found, key=lambda event: event["uuid"])


def landed(folder: Path) -> list[Path]:
    """The landed files of a.t."""
    return sorted((folder / "root/Files/LandingZone/a.schema/t").glob("0*.parquet"))


def table_of(folder: Path, name: str) -> set[tuple[Any, ...]]:
    """The rows of a.t that event files make."""
    lake = folder / f"{name}-lake"
    settings = EventInput(folder / name)
    Mirror(config.Project("reads", lake, events=settings)).apply_once()
    return {(row["id"], row["v"]) for row in rows_of(lake / "Tables/a/t")}


@pytest.mark.postgres
def test_a_stream_has_a_landing_zone_and_event_files_of_which_the_slowest_is_acknowledged(
    database: Database, tmp_path: Path
) -> None:
    database.execute("create schema a; create table a.t (id int primary key, v text);")
    database.execute("insert into a.t values (1, 'one')")
    mirror = Mirror(project(tmp_path, database))
    mirror.capture_once()
    loaded = len(landed(tmp_path))
    with closing(mirror.capture()) as capture:
        capture.open()
        assert capture.loop is not None
        before = capture.loop.position
        database.execute("insert into a.t values (2, 'two')")
        for _step in range(200):
            capture.step(0.05)
            if len(events(tmp_path / "second")) == 2 and len(landed(tmp_path)) > loaded:
                break
        assert len(events(tmp_path / "second")) == 2
        assert len(events(tmp_path / "first")) == 1
        # The first waits for an hour, and so does the source.
        assert capture.loop.position == before
        capture.loop.abandon()  # as if the process ended here
    database.execute("delete from a.t where id = 1")
    mirror.capture_once()
    for name in ("first", "second"):
        assert table_of(tmp_path, name) == {(2, "two")}
        found = events(tmp_path / name)
        assert len({event["uuid"] for event in found}) == len(found) == 3
    assert len(landed(tmp_path)) == loaded + 2


@pytest.mark.full
@pytest.mark.postgres
@pytest.mark.parametrize("earlier", some(["landing", "events"]))
def test_a_destination_that_comes_later_is_loaded_and_goes_on_with_the_others(
    database: Database, tmp_path: Path, earlier: str
) -> None:
    database.execute("create schema a; create table a.t (id int primary key, v text);")
    database.execute("insert into a.t values (1, 'one')")
    of_events = "destination: {type: events, url: ./first}\n"
    first = "destination: {type: landing}\n" if earlier == "landing" else of_events
    alone = Mirror(project(tmp_path, database, first))
    alone.capture_once()
    database.execute("insert into a.t values (2, 'two')")
    alone.capture_once()
    database.execute("update a.t set v = 'three' where id = 2")
    both = Mirror(project(tmp_path, database))
    with closing(both.capture()) as capture:
        capture.open()  # which loads what is new, and ends before anything is cut
    files = len(landed(tmp_path))
    database.execute("insert into a.t values (4, 'four')")
    both.capture_once()
    wanted = {(1, "one"), (2, "three"), (4, "four")}
    assert table_of(tmp_path, "first") == table_of(tmp_path, "second") == wanted
    kinds = [event["read_method"] for event in events(tmp_path / "second")]
    assert sorted(kinds) == ["postgres-cdc-wal", *["postgresql-backfill"] * 2]
    assert len(landed(tmp_path)) == files + 1


@pytest.mark.postgres
@pytest.mark.clause("ST-093", "ST-166", "ST-218")
def test_a_backfill_writes_events_of_its_own_kind_that_repair_what_a_gap_has_left(
    database: Database, tmp_path: Path
) -> None:
    database.execute("create schema a; create table a.t (id int primary key, v text);")
    database.execute("insert into a.t select g, 'old' from generate_series(1, 5) g")
    only = "destination: {type: events, url: ./first}\n"
    mirror = Mirror(project(tmp_path, database, only))
    mirror.capture_once()
    loaded = {event["uuid"] for event in events(tmp_path / "first")}
    assert table_of(tmp_path, "first") == {(g, "old") for g in range(1, 6)}
    asked = datetime.now(UTC)
    mirror.backfill("a.t", ("2", "4"))
    database.execute("update a.t set v = 'new' where id = 3; delete from a.t where id = 4")
    mirror.capture_once()
    (job,) = mirror.backfills()
    assert (job.state, job.rows) == (BackfillJobState.COMPLETED, 2)
    found = [event for event in events(tmp_path / "first") if event["uuid"] not in loaded]
    read = [event for event in found if event["read_method"] == "postgresql-backfill"]
    assert sorted((e["payload"]["id"], e["payload"]["v"]) for e in read) == [(2, "old"), (3, "new")]
    for event in read:
        metadata = event["source_metadata"]
        assert (metadata["change_type"], metadata["is_deleted"]) == ("INSERT", False)
        assert (metadata["lsn"], metadata["tx_id"]) == (None, None)
        began = datetime.fromisoformat(job.started)
        assert asked <= began
        # What was read was there at that time or later; the database has the clock of this machine.
        assert int(began.timestamp() * 1000) <= event["source_timestamp"]
        assert event["source_timestamp"] <= event["read_timestamp"]
    (path,) = {p for p in (tmp_path / "first").rglob("*backfill*") if "/a_t/" in str(p)} - {
        p for p in (tmp_path / "first").rglob("*") if loaded & set(_uuids(p))
    }
    assert f"{began:%Y/%m/%d/%H/%M}" in str(path)
    wanted = {(1, "old"), (2, "old"), (3, "new"), (5, "old")}
    assert table_of(tmp_path, "first") == wanted


def _uuids(path: Path) -> list[str]:
    return [one["uuid"] for one in decoded(path.read_bytes())] if path.suffix == ".avro" else []


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ("destination: []\n", "destination"),
        ("destination: [{type: events}]\n", "destination.0.url"),
        ("destination: [{type: landing}, {type: landing}]\n", "destination"),
        ("destination: [{type: landing, url: x}]\n", "destination.0.url"),
        ("destination: [{type: other}]\n", "destination.0.type"),
        ("destination: other\n", "destination"),
        (
            "destination: [{type: events, url: ./a/b}, {type: events, url: ./a, path: b}]\n",
            "destination",
        ),
    ],
)
def test_destinations_that_cannot_be_are_refused(tmp_path: Path, more: str, field: str) -> None:
    file = tmp_path / "mirrorlake.yaml"
    source = "source: {type: postgresql, url: postgresql://h/d, tables: ['a.*']}\n"
    file.write_text(f"name: n\nroot: ./root\n{source}{more}")
    with pytest.raises(ConfigError) as error:
        config.load(file)
    assert f"field {field}" in error.value.where


def test_beside_a_landing_zone_all_sections_have_their_effect(tmp_path: Path) -> None:
    file = tmp_path / "mirrorlake.yaml"
    file.write_text(
        "name: n\nroot: ./root\n"
        "source: {type: postgresql, url: postgresql://h/d, tables: ['a.*']}\n"
        "mirror: {metadata_columns: true}\n"
        "destination: [{type: landing}, {type: events, url: s3://bucket/x}]\n"
    )
    found = config.load(file)
    assert found.lands
    assert [one.described for one in found.destinations] == ["s3://bucket/x"]
    assert found.capture.metadata_columns
