"""Capture is killed in every durable step of a backfill: it goes on, and the table is right."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest

from mirrorlake.capture.backfill.backfills import BackfillSettings
from mirrorlake.capture.backfill.jobs import (
    BackfillJob,
    BackfillJobState,
    BackfillRecords,
    BackfillRequest,
)
from mirrorlake.capture.backfill.reading import ChunkLimits
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.staged.parts import NOTE
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.root import LANDING
from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import EvolvingDatabase
from tests.conftest import Database
from tests.crash.entry import kill_at
from tests.crash.forked import forked
from tests.crash.project import CHANGES, MORE, Project, assert_landed
from tests.profiles import some

pytestmark = [pytest.mark.postgres, pytest.mark.crash]

POINTS = [
    (CrashPoint.BACKFILL_PUBLISHED, 2),
    (CrashPoint.BACKFILL_BEGUN, 1),
    (CrashPoint.BACKFILL_STAGED, 1),
    (CrashPoint.BACKFILL_STAGED, 2),
    (CrashPoint.BACKFILL_PUBLISHED, 1),
    (CrashPoint.BACKFILL_RECORDED, 1),
    (CrashPoint.BACKFILL_RECORDED, 2),
    (CrashPoint.CUT_WRITTEN, 2),
]
CHUNKS = ("--max-rows-per-second", "30", "--no-wait")
"""So many rows make a chunk, and a table of 60 several."""


def job_of(project: Project, table: str) -> BackfillJob:
    jobs = BackfillRecords(Records(LocalStore(project.root), LANDING)).jobs()
    return next(job for job in jobs if job.request.table == table)


def test_a_table_that_differs_is_read_again_after_a_kill(project: Project) -> None:
    project.database.execute(
        "create table a.parts (id int primary key) partition by range (id)",
        "create table a.parts_1 partition of a.parts for values from (0) to (10)",
        "create table a.parts_2 partition of a.parts for values from (10) to (20)",
        "insert into a.parts values (1), (2), (11)",
    )
    project.run("capture", "--once")
    project.database.execute(CHANGES, "truncate a.parts_1", "insert into a.parts values (3)", MORE)
    project.killed_at(CrashPoint.BACKFILL_REQUIRED, "capture", "--once")
    assert job_of(project, "a.parts").state is BackfillJobState.PENDING
    project.run("capture", "--once")
    assert_landed(project, "a.parts")


@pytest.mark.full
@pytest.mark.clause("ST-290")
@pytest.mark.parametrize(("point", "passage"), some(POINTS))
def test_a_backfill_that_is_killed_goes_on_where_it_was(
    project: Project, point: CrashPoint, passage: int
) -> None:
    project.run("capture", "--once")
    project.run("backfill", "a.orders", *CHUNKS)
    project.database.execute(CHANGES)
    project.killed_at(point, "capture", "--once", passage=passage)
    before = job_of(project, "a.orders")
    assert not before.state.is_over
    project.database.execute(MORE)
    project.run("capture", "--once")
    after = job_of(project, "a.orders")
    assert after.state is BackfillJobState.COMPLETED
    assert after.chunks > before.chunks
    assert_landed(project)


WITHOUT_KEY = (
    "create table a.plain (n int, note text)",
    "alter table a.plain replica identity full",
    "insert into a.plain select g % 100, repeat('x', 200) from generate_series(1, 300) g",
)
BETWEEN = (
    "update a.plain set note = 'changed' where n % 20 = 1",
    "delete from a.plain where n % 20 = 2",
    "insert into a.plain select 7, 'new' from generate_series(1, 20)",
)


def noted(root: Path) -> set[str]:
    """The names of the notes of backfills."""
    return {path.name for path in root.glob(f"Files/LandingZone/_mirrorlake/backfills/*/*{NOTE}")}


def test_a_backfill_of_a_table_without_a_key_keeps_what_it_had_read(project: Project) -> None:
    project.configure("load", part_bytes=8192)
    project.database.execute(*WITHOUT_KEY)
    project.run("capture", "--once")
    project.run("backfill", "a.plain", "--no-wait")
    project.killed_at(CrashPoint.BACKFILL_NOTED, "capture", "--once", passage=4)
    before = noted(project.root)
    project.database.execute(*BETWEEN)
    project.killed_at(CrashPoint.BACKFILL_STAGED, "capture", "--once")
    assert len(before) == 4
    assert before < noted(project.root)
    project.database.execute(*BETWEEN)
    project.run("capture", "--once")
    assert job_of(project, "a.plain").state is BackfillJobState.COMPLETED
    assert not noted(project.root)
    mirror = in_pieces(project.database, project.root)
    mirror.apply()
    assert Counter(mirror.reader.rows("Tables/a/plain")) == project.source_rows("a.plain")


IN_PIECES = [
    (CrashPoint.BACKFILL_BEGUN, 1),
    (CrashPoint.BACKFILL_PART_STAGED, 1),
    (CrashPoint.BACKFILL_PART_STAGED, 5),
    (CrashPoint.BACKFILL_NOTED, 1),
    (CrashPoint.BACKFILL_NOTED, 5),
    (CrashPoint.BACKFILL_STAGED, 1),
    (CrashPoint.BACKFILL_STAGED, 4),
    (CrashPoint.BACKFILL_PUBLISHED, 4),
    (CrashPoint.CUT_WRITTEN, 4),
    (CrashPoint.BACKFILL_RECORDED, 4),
]


def in_pieces(database: Database, root: Path) -> EvolvingDatabase:
    """Tables without a key are landed in pieces."""
    settings = BackfillSettings(ChunkLimits(whole=10_000, seconds=0.0), look_seconds=0.0)
    return EvolvingDatabase(database, LocalStore(root), part_bytes=8192, backfill=settings)


def capture_and_die(url: str, name: str, root: str, point: str) -> None:
    """`capture --once`, killed at a point."""
    database = Database(url, server=None, sql=None, name=name)  # type: ignore[arg-type]
    in_pieces(database, Path(root)).capture(kill_at(point))


@pytest.mark.full
@pytest.mark.clause("ST-290")
@pytest.mark.parametrize(("point", "passage"), some(IN_PIECES))
def test_a_backfill_in_pieces_that_is_killed_twice_keeps_what_it_had_read(
    database: Database, tmp_path: Path, point: CrashPoint, passage: int
) -> None:
    def killed(at: str) -> set[str]:
        ended = forked(capture_and_die, database.url, database.name, str(tmp_path), at)
        assert ended.code == -signal.SIGKILL, ended
        return noted(tmp_path)

    large = in_pieces(database, tmp_path)
    between = [statement.replace("a.plain", "plain") for statement in BETWEEN]
    large.begin(*[statement.replace("a.plain", "plain") for statement in WITHOUT_KEY])
    request = BackfillRequest("asked", "public.plain", requested="2026-01-01T00:00:00Z")
    BackfillRecords(Records(large.store, LANDING)).request(request)
    large.run(*between)
    first = killed(f"{point}#{passage}")
    large.run(*between)
    second = killed(f"{CrashPoint.BACKFILL_PUBLISHED}#2")
    large.run(*between)
    large.capture()
    large.apply()
    large.check("plain")
    assert len(first - second) <= 1  # the last part ends where pages were added
    assert max(job.chunks for job in large.jobs()) > 5
    assert not noted(tmp_path)
