"""What is told of the objects of a stream: their load, or the last backfill that was asked for."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from mirrorlake.app.status.mirror_status import Status
from mirrorlake.app.streams.objects import CaptureSaid, objects_of
from mirrorlake.capture.backfill.jobs import BackfillJob, BackfillJobState, BackfillRequest
from mirrorlake.capture.sink import LoadProgress
from mirrorlake.cli.objects import _load
from mirrorlake.model.table import TableId

NOW = datetime(2026, 11, 23, tzinfo=UTC)
ORDERS = TableId("shop", "orders")


def told(job: BackfillJob | None, old: dict[str, Any] | None = None) -> dict[str, Any]:
    """The one object of a stream whose load is at row 5 of about 10."""
    before = {"shop.orders": old} if old else {}
    said = CaptureSaid([job] if job else [], loads={ORDERS: LoadProgress(ORDERS, 5, 10)})
    (one,) = objects_of(Status("m", None, None), {ORDERS: None}, lambda: said, before, NOW)
    return one


def test_a_load_tells_its_rows() -> None:
    assert told(None)["backfillJob"] == {
        "state": "PENDING",
        "trigger": "AUTOMATIC",
        "errors": [],
        "progress": {"rows": 5, "expectedRows": 10},
    }


@pytest.mark.clause("ST-289")
def test_a_backfill_that_was_asked_for_tells_its_progress_and_times() -> None:
    request = BackfillRequest("a", "shop.orders")
    assert told(BackfillJob(request))["backfillJob"]["state"] == "PENDING"
    begun = BackfillJob(
        request,
        BackfillJobState.ACTIVE,
        rows=50,
        expected=100,
        started="2026-11-23T00:00:00.000000Z",
        updated="2026-11-23T00:00:10.000000Z",
        bytes=4096,
        seconds=10.0,
    )
    assert told(begun)["backfillJob"] == {
        "state": "ACTIVE",
        "trigger": "MANUAL",
        "errors": [],
        "progress": {"rows": 50, "expectedRows": 100, "bytes": 4096, "secondsLeft": 10},
        "lastStartTime": "2026-11-23T00:00:00.000000Z",
    }


def test_why_a_backfill_failed_stays_the_same_error() -> None:
    request = BackfillRequest("a", "shop.orders")
    failed = BackfillJob(request, BackfillJobState.FAILED, message="the columns have changed")
    first = told(failed)
    (error,) = first["backfillJob"]["errors"]
    assert (error["reason"], error["message"]) == ("BACKFILL_FAILED", "the columns have changed")
    assert told(failed, first)["backfillJob"]["errors"] == [error]


@pytest.mark.clause("ST-338")
def test_a_gap_is_an_error_of_the_object_until_its_backfill_is_complete() -> None:
    gap = "replication slot s no longer exists; changes from 0/1 to 0/2 are lost"
    request = BackfillRequest("a", "shop.orders", reason=gap)
    first = told(BackfillJob(request))
    (error,) = first["errors"]
    assert (error["reason"], error["message"][: len(gap)]) == ("BACKFILL_REQUIRED", gap)
    assert "backfill" in error["details"]["hint"]
    assert first["backfillJob"]["trigger"] == "AUTOMATIC"
    assert told(BackfillJob(request, BackfillJobState.ACTIVE), first)["errors"] == [error]
    assert told(BackfillJob(request, BackfillJobState.COMPLETED), first)["errors"] == []


@pytest.mark.clause("ST-285", "ST-292")
def test_an_object_whose_rows_are_not_loaded_has_no_backfill_until_one_is_asked_for() -> None:
    never = CaptureSaid(unloaded=["shop.orders"])
    (one,) = objects_of(Status("m", None, None), {ORDERS: None}, lambda: never, {}, NOW)
    job = one["backfillJob"]
    assert (job["state"], job["trigger"]) == ("NOT_STARTED", "TRIGGER_UNSPECIFIED")
    assert _load(job) == "-"
    asked = CaptureSaid(
        [BackfillJob(BackfillRequest("a", "shop.orders"))], unloaded=["shop.orders"]
    )
    (one,) = objects_of(Status("m", None, None), {ORDERS: None}, lambda: asked, {}, NOW)
    assert one["backfillJob"]["state"] == "PENDING"


@pytest.mark.clause("ST-286", "ST-289")
def test_a_load_beside_changes_is_the_automatic_backfill_of_its_object_and_no_error() -> None:
    job = BackfillJob(
        BackfillRequest("a", "shop.orders", reason="its rows are loaded beside its changes"),
        BackfillJobState.ACTIVE,
        rows=5,
    )
    said = CaptureSaid([job], unloaded=["shop.orders"])
    (one,) = objects_of(Status("m", None, None), {ORDERS: None}, lambda: said, {}, NOW)
    backfill = one["backfillJob"]
    assert (backfill["state"], backfill["trigger"]) == ("ACTIVE", "AUTOMATIC")
    assert backfill["progress"]["rows"] == 5
    assert one["errors"] == backfill["errors"] == []
