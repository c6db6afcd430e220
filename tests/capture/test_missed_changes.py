"""What is counted of tables whose updates and deletions are not captured."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta

import pytest

from mirrorlake.capture.backfill.jobs import (
    BackfillJob,
    BackfillJobState,
    BackfillRecords,
    BackfillRequest,
)
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.watch import append_only
from mirrorlake.capture.watch.append_only import UncapturedPolicy
from mirrorlake.capture.watch.missed_changes import PAUSES, AppendOnly
from mirrorlake.errors import TableError
from mirrorlake.model.landed import format_time
from mirrorlake.model.table import Schema, TableId
from mirrorlake.sources.table import Counted, SourceTable
from tests.doubles.clock import SteppedClock
from tests.doubles.memory_store import MemoryStore

START = datetime(2026, 1, 1, tzinfo=UTC)
TABLE = TableId("public", "visits")


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


@pytest.fixture
def records() -> Records:
    return Records(MemoryStore(SteppedClock()), "Files/LandingZone")


def described(counted: Counted) -> SourceTable:
    return SourceTable(TABLE, Schema(()), (), "1", append_only="no key", counted=counted)


def noted(records: Records) -> AppendOnly:
    return records.append_only()[str(TABLE)]


def looked(
    records: Records, counted: Counted, second: float, complete: Collection[TableId] = ()
) -> list[TableId]:
    """What is read again after a look, by the policy that says so."""
    required: list[TableId] = []

    def require(table: TableId, _error: TableError) -> None:
        required.append(table)

    def lost(_table: TableId, error: TableError) -> None:
        raise error

    differing = append_only.look(records, [described(counted)], at(second), complete)
    policy = UncapturedPolicy.BACKFILL
    append_only.treat(records, differing, policy, (), at(second), lost, require, "")
    return required


def test_a_part_that_is_gone_has_not_lost_its_counters() -> None:
    found = AppendOnly("", {"1": (5, 5), "2": (7, 7)})
    assert not found.after("", {"2": (7, 7)}, at(1)).differs
    found = found.after("", {"2": (8, 7)}, at(1))
    assert found.missed == (1, 0)


def test_counters_of_one_part_that_were_reset_count_from_0() -> None:
    found = AppendOnly("", {"1": (5, 5), "2": (7, 7)}).after("", {"1": (9, 9), "2": (2, 0)}, at(1))
    assert found.missed == (6, 4)


def test_a_part_that_is_new_counts() -> None:
    assert AppendOnly("", {}).after("", {"1": (0, 3)}, at(1)).missed == (0, 3)


def test_the_sum_that_an_earlier_release_has_noted_counts(records: Records) -> None:
    found = AppendOnly.parse({"reason": "no key", "counted": [5, 5], "updates": 1, "deletes": 0})
    records.write_append_only({str(TABLE): found})
    found = noted(records).after("", {"1": (4, 5), "2": (3, 0)}, at(1))
    assert found.missed == (3, 0)
    assert found.after("", {"1": (4, 5)}, at(2)).missed == (3, 0)


@pytest.mark.parametrize(
    ("keys", "state", "missed"),
    [
        (None, BackfillJobState.COMPLETED, (0, 0)),
        (None, BackfillJobState.ACTIVE, (3, 1)),
        (None, BackfillJobState.STOPPED, (3, 1)),
        (("1", "2"), BackfillJobState.COMPLETED, (3, 1)),
    ],
)
def test_a_backfill_makes_up_for_what_was_counted_when_it_began(
    records: Records,
    keys: tuple[str, str] | None,
    state: BackfillJobState,
    missed: tuple[int, int],
) -> None:
    append_only.begin(records, [described({"1": (1, 1)})])
    append_only.look(records, [described({"1": (4, 2)})], at(1))
    jobs, job = BackfillRecords(records), BackfillJob(BackfillRequest("own", str(TABLE), keys))
    jobs.request(job.request)
    append_only.begins(records, job)
    jobs.write(job.now(at(2), state=state))
    append_only.look(records, [described({"1": (4, 2)})], at(3))
    assert noted(records).missed == missed
    append_only.look(records, [described({"1": (5, 2)})], at(4))
    assert noted(records).missed == (missed[0] + 1, missed[1])


def test_a_change_that_is_counted_while_a_table_is_read_is_missed_yet(records: Records) -> None:
    append_only.begin(records, [described({})])
    append_only.look(records, [described({"1": (1, 0)})], at(1))
    jobs, job = BackfillRecords(records), BackfillJob(BackfillRequest("own", str(TABLE)))
    jobs.request(job.request)
    append_only.begins(records, job)
    append_only.look(records, [described({"1": (2, 0)})], at(2))
    jobs.write(job.now(at(3), state=BackfillJobState.COMPLETED))
    append_only.look(records, [described({"1": (2, 0)})], at(4))
    assert (noted(records).missed, noted(records).since) == ((1, 0), format_time(at(4)))


def test_a_table_that_changes_all_the_time_is_read_a_tenth_of_the_time(records: Records) -> None:
    append_only.begin(records, [described({})])
    assert looked(records, {"1": (1, 0)}, 1) == [TABLE]
    jobs, job = (
        BackfillRecords(records),
        BackfillJob(BackfillRequest("one", str(TABLE), reason="x")),
    )
    jobs.add(job.request)
    append_only.begins(records, job)
    assert looked(records, {"1": (2, 0)}, 2) == []  # it is being read
    jobs.write(job.now(at(100), state=BackfillJobState.COMPLETED, seconds=60.0))
    later = 100 + PAUSES * 60.0
    assert looked(records, {"1": (3, 0)}, 101, [TABLE]) == []
    assert noted(records).put_off == format_time(at(later))
    assert noted(records).differs
    assert looked(records, {"1": (4, 0)}, later - 1, [TABLE]) == []
    assert looked(records, {"1": (4, 0)}, later, [TABLE]) == [TABLE]
    assert noted(records).put_off == ""


def test_a_clock_that_goes_back_puts_nothing_off(records: Records) -> None:
    found = AppendOnly("", {}).read_again(format_time(at(100)), 60.0)
    assert found.not_before(at(101)) == at(700)
    assert found.not_before(at(99)) is None
