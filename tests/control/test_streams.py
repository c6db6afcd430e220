"""Streams in a database: started, paused, recovered, listed and kept."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.control.control import Control
from mirrorlake.control.names import ResourceKind, ResourceName
from mirrorlake.control.reports import error_document
from mirrorlake.control.requests import Asked
from mirrorlake.control.states import StreamMove
from mirrorlake.control.store.database import Database as Resources
from mirrorlake.control.streams import ANEW, RECOVER
from mirrorlake.errors import (
    IllegalMove,
    InvalidRequest,
    ResourceNotFound,
    StorageUnavailable,
    UsageError,
)
from mirrorlake.model.clock import WallClock
from tests.control.resources import (
    PARENT,
    POSTGRES,
    SECRET,
    SHOP,
    STREAM,
    Later,
    Opening,
    Scripted,
)


@pytest.mark.clause("ST-280", "ST-272", "ST-273", "ST-278")
def test_a_stream_is_started_and_paused_by_its_state(ready: Control) -> None:
    ready.streams.create(PARENT, "shop", STREAM, Asked())

    def ask(state: Any) -> Any:
        return ready.streams.update(SHOP, {"state": state}, "state", Asked())

    def state() -> str:
        return str(ready.get(SHOP)["state"])

    with pytest.raises(IllegalMove, match="NOT_STARTED cannot become PAUSED"):
        ask("PAUSED")
    starting = ask("RUNNING")
    assert (starting["done"], state()) == (False, "STARTING")
    error = error_document("wal_level", "it is replica", WallClock().now())
    ready.supervision.observe(SHOP, StreamMove.INVALID, [error])
    assert state() == "NOT_STARTED"
    assert ready.get(ResourceName.parse(starting["name"]))["error"]["message"] == "it is replica"
    assert ready.fetch_stream_errors(SHOP) == [error]
    starting = ask(2)
    ready.supervision.observe(SHOP, StreamMove.VALID)
    done = ready.get(ResourceName.parse(starting["name"]))
    assert (done["done"], done["response"]["state"], state()) == (True, "RUNNING", "RUNNING")
    assert ready.fetch_stream_errors(SHOP) == []
    ready.supervision.observe(SHOP, StreamMove.DRAINED)  # too late, and left out
    assert state() == "RUNNING"
    ask(3)
    assert state() == "DRAINING"
    ready.streams.update(SHOP, {"displayName": "x"}, "displayName", Asked())
    assert state() == "DRAINING"
    ready.supervision.observe(SHOP, StreamMove.DRAINED)
    assert state() == "PAUSED"
    ask("RUNNING")
    ready.supervision.observe(SHOP, StreamMove.LOSE)
    assert state() == "FAILED_PERMANENTLY"
    with pytest.raises(IllegalMove):
        ask("RUNNING")


@pytest.mark.clause("ST-335", "ST-336", "ST-337", "ST-277")
def test_a_run_recovers_what_failed_permanently(ready: Control) -> None:
    ready.streams.create(PARENT, "shop", {**STREAM, "state": "RUNNING"}, Asked())
    ready.supervision.observe(SHOP, StreamMove.VALID)
    with pytest.raises(IllegalMove):
        ready.streams.run(SHOP, {}, Asked())
    ready.supervision.observe(SHOP, StreamMove.LOSE)
    position = {"specificStartPosition": {"mysqlLogPosition": {"logFile": "f"}}}
    with pytest.raises(InvalidRequest, match="cannot be started at a position"):
        ready.streams.run(SHOP, {"cdcStrategy": position}, Asked())
    two = {"mostRecentStartPosition": {}, "nextAvailableStartPosition": {}}
    with pytest.raises(InvalidRequest):
        ready.streams.run(SHOP, {"cdcStrategy": two}, Asked())
    ready.streams.run(SHOP, {"cdcStrategy": {"mostRecentStartPosition": {}}}, Asked())
    assert ready.get(SHOP)["state"] == "STARTING"
    assert ready.get(SHOP)["lastRecoveryTime"]
    assert ready.supervision.recovery(SHOP) == RECOVER
    ready.supervision.observe(SHOP, StreamMove.VALID)
    assert ready.supervision.recovery(SHOP) == ""


def test_a_run_of_a_new_stream_may_replace_what_an_earlier_one_left(ready: Control) -> None:
    ready.streams.create(PARENT, "shop", STREAM, Asked())
    ready.streams.run(SHOP, {}, Asked())
    assert ready.supervision.recovery(SHOP) == ANEW
    assert "lastRecoveryTime" not in ready.get(SHOP)
    ready.supervision.observe(SHOP, StreamMove.INVALID)
    assert ready.supervision.recovery(SHOP) == ANEW
    ready.streams.run(SHOP, {}, Asked())
    ready.supervision.observe(SHOP, StreamMove.VALID)
    assert ready.supervision.recovery(SHOP) == ""


@pytest.mark.clause("ST-301")
def test_the_activity_log_tells_changes_of_state(ready: Control) -> None:
    ready.streams.create(PARENT, "shop", {**STREAM, "state": 2}, Asked())
    entries = ready.activity(SHOP)
    assert [one["eventCode"] for one in entries] == ["STREAM_CREATED", "STREAM_STATE_CHANGED"]
    assert entries[1]["streamStateChange"] == {"newState": "STARTING"}
    assert entries[1]["eventMessage"]


@pytest.mark.clause("ST-342")
def test_lists_come_in_pages(ready: Control) -> None:
    for number in range(7):
        sent = {**STREAM, "labels": {"odd": str(number % 2)}}
        ready.streams.create(PARENT, f"s{number}", sent, Asked())
    seen, token = [], ""
    while True:
        page, token = ready.page(
            ResourceKind.STREAM, PARENT, size=3, token=token, where="labels.odd=0"
        )
        seen += [one["name"].rpartition("/")[2] for one in page]
        if not token:
            break
    assert seen == ["s0", "s2", "s4", "s6"]
    page, token = ready.page(ResourceKind.PROFILE, PARENT, size=1)
    assert (len(page), bool(token)) == (1, True)
    assert ready.page(ResourceKind.STREAM, "projects/p/locations/other") == ([], "")


@pytest.mark.clause("ST-283", "ST-341")
def test_objects_keep_their_names_and_are_looked_up(ready: Control) -> None:
    ready.streams.create(PARENT, "shop", STREAM, Asked())
    identifier = {"postgresqlIdentifier": {"schema": "s", "table": "t"}}
    one = {
        "displayName": "s.t",
        "sourceObject": identifier,
        "errors": [],
        "backfillJob": {"state": "ACTIVE", "trigger": "AUTOMATIC", "errors": []},
    }
    ready.supervision.observe_objects(SHOP, lambda _old, _now: [one])
    (first,), _token = ready.page(ResourceKind.OBJECT, str(SHOP))
    assert first["backfillJob"]["lastStartTime"]
    done = {**one, "backfillJob": {**one["backfillJob"], "state": "COMPLETED"}}  # type: ignore[dict-item]
    ready.supervision.observe_objects(SHOP, lambda _old, _now: [done])
    found = ready.lookup(SHOP, identifier)
    assert (found["name"], found["createTime"]) == (first["name"], first["createTime"])
    assert found["backfillJob"]["lastEndTime"]
    ready.supervision.observe_objects(SHOP, lambda _old, _now: [])
    with pytest.raises(ResourceNotFound):
        ready.lookup(SHOP, identifier)


@pytest.mark.clause("ST-294")
def test_the_activity_log_tells_of_backfills_and_of_objects_that_fail(ready: Control) -> None:
    ready.streams.create(PARENT, "shop", STREAM, Asked())

    def see(state: str, rows: int, *errors: Any) -> None:
        job = {"state": state, "trigger": "AUTOMATIC", "errors": [], "progress": {"rows": rows}}
        one = {
            "displayName": "s.t",
            "sourceObject": {"postgresqlIdentifier": {"schema": "s", "table": "t"}},
            "errors": list(errors),
            "backfillJob": job,
        }
        ready.supervision.observe_objects(SHOP, lambda _old, _now: [one])

    failed = error_document("bad_file", "the file is damaged", WallClock().now())
    see("PENDING", 0)
    see("ACTIVE", 0)
    see("ACTIVE", 700)
    see("COMPLETED", 1_500)
    see("COMPLETED", 1_500, failed)
    see("COMPLETED", 1_500, failed)
    told = [(one["eventCode"], one["eventMessage"]) for one in ready.activity(SHOP)[1:]]
    assert told == [
        ("BACKFILL_STATE_CHANGED", "s.t: the backfill is ACTIVE, 0 rows"),
        ("BACKFILL_STATE_CHANGED", "s.t: the backfill is COMPLETED, 1,500 rows"),
        ("OBJECT_FAILED", "s.t: the file is damaged"),
    ]


@pytest.mark.clause("ST-356")
def test_there_is_no_fixed_number_of_streams_or_objects(ready: Control) -> None:
    for number in range(201):
        ready.streams.create(PARENT, f"s{number}", STREAM, Asked(force=True))
    page, token = ready.page(ResourceKind.STREAM, PARENT, size=1_000)
    assert (len(page), token) == (201, "")
    job = {"state": "COMPLETED", "trigger": "AUTOMATIC", "errors": []}
    tables = [
        {
            "displayName": f"s.t{number}",
            "sourceObject": {"postgresqlIdentifier": {"schema": "s", "table": f"t{number}"}},
            "errors": [],
            "backfillJob": job,
        }
        for number in range(10_001)
    ]
    first = ResourceName(PARENT, ResourceKind.STREAM, "s0")
    ready.supervision.observe_objects(first, lambda _old, _now: tables)
    seen, token = 0, ""
    while True:
        page, token = ready.page(ResourceKind.OBJECT, str(first), size=1_000, token=token)
        seen += len(page)
        if not token:
            break
    assert seen == 10_001


def test_what_nobody_asks_for_any_more_is_forgotten(open_control: Opening) -> None:
    control = open_control()
    control.profiles.create(PARENT, "source", POSTGRES, Asked())
    control.profiles.create(PARENT, "tables", {"bigqueryProfile": {}}, Asked())
    control.streams.create(PARENT, "shop", STREAM, Asked(str(uuid.uuid4())))
    control.tidy()
    assert len(control.page(ResourceKind.OPERATION, PARENT)[0]) == 3
    later = open_control(Later())
    later.tidy()
    assert later.page(ResourceKind.OPERATION, PARENT) == ([], "")
    assert later.activity(SHOP) == []
    assert later.get(SHOP)["displayName"] == "shop"


def test_only_what_is_written_counts_as_a_change(ready: Control) -> None:
    before = ready.supervision.changes
    ready.get(ResourceName.parse(f"{PARENT}/connectionProfiles/source"))
    ready.supervision.supervised()
    with pytest.raises(ResourceNotFound):
        ready.streams.run(SHOP, {}, Asked())
    assert ready.supervision.changes == before
    ready.streams.create(PARENT, "shop", STREAM, Asked())
    assert ready.supervision.changes > before


def test_everything_is_there_after_a_restart(ready: Control, open_control: Opening) -> None:
    ready.streams.create(PARENT, "shop", {**STREAM, "state": 2}, Asked())
    again = open_control()
    assert again.get(SHOP) == ready.get(SHOP)
    assert again.profiles.of(f"{PARENT}/connectionProfiles/source")[1]


def test_a_damaged_database_and_a_wrong_url_are_told_without_the_password(tmp_path: Path) -> None:
    (tmp_path / "streams.sqlite").write_bytes(b"no database" * 1_000)
    with pytest.raises(StorageUnavailable):
        Resources(f"sqlite:///{tmp_path}/streams.sqlite")
    for wrong in ("nothing", f"none://u:{SECRET}@h/d"):
        with pytest.raises(UsageError) as refused:
            Resources(wrong)
        assert SECRET not in str(refused.value)
        assert refused.value.__cause__ is None or SECRET not in str(refused.value.__cause__)


@pytest.mark.clause("ST-300")
def test_a_start_that_is_only_validated_is_tested_and_not_done(
    ready: Control, validator: Scripted
) -> None:
    ready.streams.create(PARENT, "shop", STREAM, Asked())
    asked = validator.asked
    only = Asked(validate_only=True)
    assert ready.streams.update(SHOP, {"state": "RUNNING"}, "state", only)["done"]
    assert validator.asked == asked + 1
    assert ready.get(SHOP)["state"] == "NOT_STARTED"
    with pytest.raises(IllegalMove, match="NOT_STARTED cannot become PAUSED"):
        ready.streams.update(SHOP, {"state": "PAUSED"}, "state", only)


@pytest.mark.clause("ST-300")
def test_a_start_may_do_without_validation_once(ready: Control) -> None:
    supervision = ready.supervision

    def forced() -> tuple[bool, str]:
        return supervision.is_forced(SHOP), supervision.recovery(SHOP)

    ready.streams.create(PARENT, "shop", {**STREAM, "state": "RUNNING"}, Asked(force=True))
    assert forced() == (True, "")
    supervision.observe(SHOP, StreamMove.INVALID)
    assert forced() == (False, "")
    ready.streams.run(SHOP, {"force": True}, Asked())
    assert forced() == (True, "ANEW")
    supervision.observe(SHOP, StreamMove.INVALID)
    assert forced() == (False, "ANEW")
    ready.streams.update(SHOP, {"state": "RUNNING"}, "state", Asked(force=True))
    assert forced() == (True, "ANEW")
    supervision.observe(SHOP, StreamMove.VALID)
    assert forced() == (False, "")
    ready.streams.update(SHOP, {"state": "PAUSED"}, "state", Asked(force=True))
    assert forced() == (False, "")
    supervision.observe(SHOP, StreamMove.DRAINED)
    ready.streams.run(SHOP, {"force": True}, Asked())
    ready.streams.delete(SHOP, Asked())
    assert supervision.supervised()[0].is_deleted
