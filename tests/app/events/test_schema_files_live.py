"""JSON events with schema files: whenever a consumer looks, and whenever the writer is killed, no
events are there without their schema, so that no type is guessed."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrorlake.app.mirror import Mirror
from mirrorlake.capture.backfill import requests
from mirrorlake.capture.backfill.jobs import BackfillRecords
from mirrorlake.capture.records.records import Records
from mirrorlake.events.paths import schema_file
from mirrorlake.model.clock import WallClock
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.root import LANDING
from mirrorlake.storage.local import LocalStore
from tests.app.events.test_live import projects, table
from tests.capture.test_event_files import project
from tests.conftest import Database

TABLE = "create table a.t (id int primary key, at timestamptz, num float8, day date)"
ROW = "'2026-01-01 00:00+00', 1.5, '2026-01-01'"
PUBLISHED = {CrashPoint.EVENTS_WRITTEN_ONE, CrashPoint.LOAD_PUBLISHED_ONE}


class Killed(BaseException):
    """The process ends here."""


def assert_described(bucket: Path) -> None:
    for path in bucket.rglob("*.jsonl"):
        assert Path(schema_file(path.name, str(path.parent))).exists(), path


def writer(folder: Path, database: Database, killed_at: int | None = None) -> Mirror:
    """A process that looks at the files behind each that it writes. killed_at: after so many."""
    settings = project(
        folder, database, "  format: json\n  truncations: true\n  schema_file: true\n"
    )
    written: list[CrashPoint] = []

    def reached(point: CrashPoint) -> None:
        if point in PUBLISHED:
            written.append(point)
            assert_described(folder / "bucket")
            if len(written) == killed_at:
                raise Killed

    return Mirror(settings, reached=reached)


def changed(step: str, folder: Path, database: Database) -> None:
    """What makes the writer write one table: its load, its changes, or a backfill of it."""
    row = f"insert into a.t values (1, {ROW})"
    database.execute("create schema a", TABLE)
    match step:
        case "load":
            database.execute(row)
        case "changes":
            writer(folder, database).capture_once()
            database.execute(row)
        case "backfill":
            writer(folder, database).capture_once()
            database.execute(row)
            writer(folder, database).capture_once()
            for path in (folder / "bucket").rglob("*.*"):
                path.unlink()  # what the backfill repairs
            jobs = BackfillRecords(Records(LocalStore(folder / "root"), LANDING))
            requests.request(jobs, ["a.t"], "a.t", None, None, WallClock().now())


@pytest.mark.postgres
@pytest.mark.clause("ST-175")
@pytest.mark.parametrize("step", ["load", "changes", "backfill"])
@pytest.mark.parametrize("killed_at", [None, 1, 2])
def test_no_events_are_there_without_their_schema_whenever_the_writer_is_killed(
    database: Database, tmp_path: Path, step: str, killed_at: int | None
) -> None:
    changed(step, tmp_path, database)
    _, reads = projects(tmp_path, database, "json")
    if killed_at is not None:
        with pytest.raises(Killed):
            writer(tmp_path, database, killed_at).capture_once()
        assert_described(tmp_path / "bucket")
        reads.apply_once()
    writer(tmp_path, database).capture_once()
    reads.apply_once()
    database.execute("update a.t set at = '2026-02-02 00:00+00', num = 2")
    writer(tmp_path, database).capture_once()
    report = reads.apply_once()
    assert not report.errors
    (row,) = table(tmp_path, "t").values()
    assert (f"{row['at']:%Y-%m-%d}", row["num"], f"{row['day']:%Y-%m-%d}") == (
        "2026-02-02",
        2,
        "2026-01-01",
    )
