"""Until when a table is marked that differs by a change that the project ignores."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mirrorlake.capture.backfill.jobs import (
    BackfillJob,
    BackfillJobState,
    BackfillRecords,
    BackfillRequest,
)
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.watch.ignored import Ignored
from mirrorlake.errors import TableAltered
from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.model.table import TableId
from tests.doubles.clock import SteppedClock
from tests.doubles.memory_store import MemoryStore

PEARS = TableId("public", "pears")
TRUNCATED = TableAltered("the table was truncated", table=str(PEARS), hint="")


@pytest.mark.parametrize(
    ("steps", "is_marked"),
    [
        (["note", "begin", "complete"], False),
        (["begin", "note", "complete"], True),
        (["note", "begin", "note", "complete"], True),
        (["note", "note", "begin", "complete"], False),
        (["note", "begin", "note", "complete", "begin", "complete"], False),
        (["note", "begin"], True),
    ],
)
def test_the_mark_ends_with_a_backfill_that_began_after_the_last_change(
    steps: Sequence[str], *, is_marked: bool
) -> None:
    clock = SteppedClock()
    records = Records(MemoryStore(clock), "Files/LandingZone")
    ignored = Ignored(records, clock, {SchemaChangeKind.TABLE_TRUNCATED})
    jobs = BackfillRecords(records)
    job = BackfillJob(BackfillRequest("none", str(PEARS)))
    for number, step in enumerate(steps):
        clock.sleep(1)
        if step == "note":
            ignored.note(PEARS, TRUNCATED)
        elif step == "begin":
            request = BackfillRequest(str(number), str(PEARS))
            jobs.request(request)
            job = BackfillJob(request).now(clock.now(), state=BackfillJobState.ACTIVE)
            jobs.write(job)
        else:
            jobs.write(job.now(clock.now(), state=BackfillJobState.COMPLETED))
        ignored.look()
    assert (PEARS in ignored.tables) == is_marked
