"""When a snapshot is tried for tables that come to a stream under way."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from mirrorlake.capture.watch.joining import LEAST_SECONDS, LOOK_SECONDS, QUIET_SECONDS, Joining
from mirrorlake.errors import SourceUnavailable
from mirrorlake.sources.base import AwaitedTransaction, Snapshot, Source
from tests.doubles.clock import SteppedClock

NIGHTLY = AwaitedTransaction("the nightly job", datetime(2026, 1, 1, tzinfo=UTC), "Commit it.")
TAKEN = cast("Snapshot", object())


class Transactions:
    """A source with transactions that are open, and no others."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.snapshot: Snapshot | None = TAKEN
        self.asked, self.fails, self.refuses = 0, False, False
        self.given: list[float] = []

    def open_transactions(self) -> Mapping[str, AwaitedTransaction | None]:
        self.asked += 1
        if self.fails:
            raise SourceUnavailable("no answer came in time")
        return dict.fromkeys(self.open, NIGHTLY)

    def snapshot_within(self, seconds: float) -> Snapshot | None:
        self.given.append(seconds)
        if self.refuses:
            raise SourceUnavailable("all replication slots are in use")
        return self.snapshot


class Scene:
    def __init__(self) -> None:
        self.source, self.clock = Transactions(), SteppedClock()
        self.told: list[AwaitedTransaction | None] = []
        source: Any = self.source
        self.joining = Joining(cast("Source", source), self.clock, self.told.append)

    def later(self, seconds: float = LOOK_SECONDS) -> bool:
        self.clock.advance(seconds)
        return self.joining.is_due()


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_nothing_is_asked_while_no_table_waits(scene: Scene) -> None:
    assert not scene.later()
    assert scene.source.asked == 0


def test_without_an_open_transaction_a_table_does_not_wait(scene: Scene) -> None:
    assert scene.joining.can_begin()
    assert scene.joining.snapshot() is TAKEN
    assert scene.source.given == [LEAST_SECONDS]
    assert not scene.later()


def test_all_that_were_open_have_to_end_and_no_later_one(scene: Scene) -> None:
    scene.source.open = ["a", "b"]
    assert not scene.joining.can_begin()
    scene.source.open = ["b", "c"]
    assert not scene.later()
    scene.source.open = ["c", "d"]
    assert not scene.later(LOOK_SECONDS / 2)  # it is not asked all the time
    assert scene.later(LOOK_SECONDS / 2)


def test_after_an_attempt_those_have_to_end_that_are_open_then(scene: Scene) -> None:
    assert scene.joining.can_begin()
    scene.source.snapshot, scene.source.open = None, ["a", "b"]
    assert scene.joining.snapshot() is None
    scene.joining.opened()
    scene.source.open = ["b", "c"]
    assert not scene.later()
    scene.source.open = ["c"]
    assert scene.later()


def test_no_snapshot_is_begun_while_they_are_open(scene: Scene) -> None:
    """The stream is opened for another reason."""
    scene.source.open = ["a"]
    assert scene.joining.snapshot() is None
    scene.clock.advance(1000)
    assert scene.joining.snapshot() is None
    assert scene.source.given == []


def test_an_attempt_may_take_a_tenth_of_the_time_that_the_table_has_waited(scene: Scene) -> None:
    scene.joining.can_begin()
    scene.source.snapshot = None
    for seconds in (1, 99, 900):
        scene.clock.advance(seconds)
        scene.joining.snapshot()
        scene.joining.opened()
    assert scene.source.given == [LEAST_SECONDS, 10, 100]
    scene.source.snapshot = TAKEN
    scene.joining.snapshot()
    scene.joining.snapshot()  # of tables that come later
    assert scene.source.given[-1] == LEAST_SECONDS


def test_the_stream_is_open_for_nine_times_as_long_as_it_was_closed(scene: Scene) -> None:
    scene.source.snapshot = None
    assert scene.joining.can_begin()
    scene.joining.closes()
    scene.clock.advance(1)
    assert scene.joining.snapshot() is None
    scene.clock.advance(2)
    scene.joining.opened()
    assert not scene.later(26)
    assert scene.joining.snapshot() is None
    assert len(scene.source.given) == 1
    assert scene.later(1)


def test_a_server_that_does_not_answer_in_time_is_seldom_asked(scene: Scene) -> None:
    scene.source.fails = True
    assert scene.joining.snapshot() is None
    for _ in range(20):
        assert not scene.later()
    assert scene.joining.snapshot() is None  # the stream is opened for another reason
    assert scene.source.asked == 1
    scene.source.fails = False
    assert scene.later(10)
    assert scene.joining.snapshot() is TAKEN


def test_a_transaction_is_told_when_it_is_old_and_no_longer_than_tables_wait(scene: Scene) -> None:
    scene.source.open = ["a"]
    scene.joining.can_begin()
    scene.later(QUIET_SECONDS / 2)
    assert NIGHTLY not in scene.told
    scene.later(QUIET_SECONDS / 2)
    assert scene.told[-1] == NIGHTLY
    scene.joining.end()  # the tables are gone
    assert scene.told[-1] is None
    assert not scene.later()


def test_nothing_is_told_once_all_have_ended(scene: Scene) -> None:
    scene.source.open = ["a"]
    scene.joining.can_begin()
    assert not scene.later(QUIET_SECONDS)
    assert scene.told[-1] == NIGHTLY
    scene.source.open = ["b"]
    assert scene.later()
    assert scene.told[-1] is None


def test_the_time_without_the_source_is_not_counted(scene: Scene) -> None:
    scene.source.snapshot = None
    assert scene.joining.can_begin()
    scene.joining.closes()
    scene.joining.end()
    scene.clock.advance(3600)
    assert scene.joining.snapshot() is None
    scene.joining.opened()
    assert scene.source.given == [LEAST_SECONDS]
    assert scene.later()


def test_a_snapshot_that_is_refused_is_tried_again_later(scene: Scene) -> None:
    scene.source.refuses = True
    assert scene.joining.snapshot() is None
    scene.joining.opened()
    for _ in range(29):
        assert not scene.later()
    scene.source.refuses = False
    assert scene.later()
    assert scene.joining.snapshot() is TAKEN


def test_a_stream_that_is_closed_for_another_reason_delays_no_table(scene: Scene) -> None:
    scene.joining.closes()
    scene.clock.advance(60)
    scene.joining.opened()
    assert scene.joining.can_begin()
