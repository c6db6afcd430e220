"""Capture is killed in every durable step of a backfill: it goes on, and the table is right."""

from __future__ import annotations

import pytest

from mirrorlake.capture.backfill.jobs import BackfillJob, BackfillJobState, BackfillRecords
from mirrorlake.capture.records.records import Records
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.root import LANDING
from mirrorlake.storage.local import LocalStore
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
