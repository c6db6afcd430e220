"""What a stream of Spark records, and how it recovers; without a JVM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from mirrorlake import FeedError, Project, UsageError, stream_feed, subscribe
from mirrorlake.app import subscribe as subscriptions
from mirrorlake.app.changes.feed_streams import recover
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.errors import LeaseHeld
from mirrorlake.feed.subscriptions.record import FeedPosition
from mirrorlake.feed.subscriptions.stream import (
    FeedStreamRecord,
    FeedStreamRecords,
    complete_at,
    stream_metadata,
)
from mirrorlake.spark.feed_stream import FeedStream, Session
from mirrorlake.storage.local import LocalStore
from tests.cli.conftest import Run, run
from tests.feed.handmade_feed import DELETE, INSERT, UPDATE, FeedTable

__all__ = ["run"]


@pytest.fixture
def table(tmp_path: Path) -> FeedTable:
    """Versions 0 to 4."""
    table = FeedTable(tmp_path / "Tables/s/orders")
    table.change((INSERT, (1, "a")), (INSERT, (2, "b")))
    for name in "cde":
        table.change((UPDATE, (1, name)))
    return table


def opened(table: FeedTable, **asked: Any) -> FeedStream:
    given = {"start": 1, **asked}
    return stream_feed("audit", table.path, cast("Session", None), lambda _r, _b: None, **given)


def root(table: FeedTable) -> Project:
    return Project.of_root(table.path.parent.parent.parent)


def record(table: FeedTable) -> FeedStreamRecord | None:
    return FeedStreamRecords(LocalStore(table.path.parent.parent.parent)).read("audit")


def read_up_to(table: FeedTable, version: int, **asked: Any) -> None:
    with opened(table, **asked) as stream:
        stream.subscription.passed(version)


@pytest.mark.clause("CF-183")
def test_it_goes_on_behind_the_last_version_in_a_new_folder(table: FeedTable) -> None:
    read_up_to(table, 2)
    assert record(table) == FeedStreamRecord(1, 1)
    done = recover(root(table), "audit")
    assert (done.first, Path(done.checkpoint).name) == (3, "checkpoint-2")
    assert record(table) == FeedStreamRecord(2, 3)
    with opened(table) as stream:
        assert stream.subscription.record.next == 3
    assert recover(root(table), "audit", from_version=2).first == 2
    (state,) = subscriptions.states(root(table))
    assert (state.next, state.behind) == (2, 3)


@pytest.mark.clause("CF-183")
def test_the_target_knows_better_how_far_it_is(table: FeedTable, tmp_path: Path) -> None:
    target = FeedTable(tmp_path / "copy")
    read_up_to(table, 4, target=target.path)
    table_id = table.log.snapshot().metadata["id"]
    assert recover(root(table), "audit").first == 5, "nothing is recorded there"
    for name, version in (("audit", 2), ("audit", None), ("other", 4)):
        position = None if version is None else FeedPosition(table_id, version)
        target.commit([], userMetadata=stream_metadata(name, position))
    target.commit([], userMetadata="something else")
    assert recover(root(table), "audit").first == 3
    target.commit([], userMetadata=stream_metadata("audit", FeedPosition("of another table", 9)))
    assert recover(root(table), "audit").first == 3
    target.log.commit_file(target.log.snapshot().version).write_text("{")
    with pytest.raises(UsageError, match="target cannot be read"):
        recover(root(table), "audit")


@pytest.mark.clause("CF-184")
def test_it_is_refused_while_the_stream_runs(table: FeedTable) -> None:
    with opened(table), pytest.raises(LeaseHeld):
        recover(root(table), "audit")
    assert record(table) == FeedStreamRecord(1, 1)


@pytest.mark.clause("CF-184")
def test_versions_are_left_out_only_when_they_are_named(table: FeedTable, run: Run) -> None:
    read_up_to(table, 1)
    for accepted in (None, (2, 2), (1, 3)):
        with pytest.raises(UsageError, match="leaves out versions 2 to 3") as refused:
            recover(root(table), "audit", 4, accepted)
        assert "--accept-gap 2-3" in refused.value.hint
    with pytest.raises(UsageError, match="no version is left out"):
        recover(root(table), "audit", 2, (2, 3))
    assert record(table) == FeedStreamRecord(1, 1)
    place = str(table.path.parent.parent.parent)
    asked = ["recover", "audit", "--root", place, "--from-version", "4"]
    assert run(*asked).code == 2
    assert run(*asked, "--accept-gap", "2").code == 2
    assert run(*asked, "--accept-gap", "2-3", "--json").facts()["first"] == 4
    assert "goes on with version 4" in run("recover", "audit", "--root", place).error


@pytest.mark.clause("CF-183", "CF-184")
def test_what_cannot_be_read_is_refused(table: FeedTable) -> None:
    read_up_to(table, 4)
    with pytest.raises(FeedError) as late:
        recover(root(table), "audit", 9, (5, 8))
    assert late.value.reason == "beyond_latest"
    table.record(is_on=False)
    table.change((DELETE, (2, None)))
    with pytest.raises(FeedError) as off:
        recover(root(table), "audit", 6, (5, 5))
    assert off.value.reason == "not_recorded"
    for name in ("none", "..", "a/b"):
        with pytest.raises(UsageError):
            recover(root(table), name)
    assert record(table) == FeedStreamRecord(1, 1)


def test_a_snapshot_that_was_not_written_comes_again(table: FeedTable) -> None:
    with opened(table, start="snapshot"):
        pass
    with pytest.raises(UsageError, match="leaves out versions 0 to 1"):
        recover(root(table), "audit", 2)
    assert recover(root(table), "audit").first is None
    read_up_to(table, 3)
    assert recover(root(table), "audit").first == 4


def test_a_name_is_that_of_a_stream_or_of_a_subscription(table: FeedTable, run: Run) -> None:
    with subscribe("plain", table.path) as plain:
        list(plain)
    with pytest.raises(UsageError, match="no stream"):
        stream_feed("plain", table.path, cast("Session", None), lambda _r, _b: None)
    with pytest.raises(UsageError, match="there is no stream"):
        recover(root(table), "plain")
    with opened(table):
        pass
    with pytest.raises(UsageError, match="is a stream"):
        subscribe("audit", table.path)
    with pytest.raises(UsageError, match="writes no Delta table"):
        opened(table, target="copy")
    place = str(table.path.parent.parent.parent)
    for act in ("--reseed", "--accept-gap"):
        assert run("subscriptions", act, "audit", "--root", place).code == 2
    folder = LocalStore(place).list("Files/Mirrorlake/subscriptions").folders
    assert list(folder) == ["audit.stream"]
    assert run("subscriptions", "--remove", "audit", "--root", place).code == 0
    assert not LocalStore(place).list("Files/Mirrorlake/subscriptions").folders
    with opened(table, start=3) as stream:
        assert stream.subscription.record.next == 3


def test_damaged_records_are_named(table: FeedTable) -> None:
    with opened(table):
        pass
    path = (
        table.path.parent.parent.parent / "Files/Mirrorlake/subscriptions/audit.stream/stream.json"
    )
    good = json.loads(path.read_text())
    for change in ({"format": 2}, {"number": "1"}, {"start": True}, {"target": 1}, {"more": 1}):
        path.write_text(json.dumps(good | change))
        with pytest.raises(UsageError, match="cannot be read"):
            recover(root(table), "audit")
    with pytest.raises(UsageError, match="below Tables of a mirror"):
        stream_feed("audit", "/elsewhere", cast("Session", None), lambda _r, _b: None)


def test_how_far_an_offset_reaches(table: FeedTable) -> None:
    log = TableLog(table.path)

    def at(version: int, index: int, *, is_snapshot: bool = False) -> int | None:
        offset = {"reservoirVersion": version, "index": index, "isStartingVersion": is_snapshot}
        return complete_at(offset, log)

    assert at(4, 7, is_snapshot=True) is None
    assert at(0, -1) is None
    assert (at(5, -1), at(3, -20)) == (4, 2)
    assert at(1, 0) == 0, "rows were only added, so that it may be cut"
    assert at(2, 0) == 2
