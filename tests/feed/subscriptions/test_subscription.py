"""Subscriptions: where they begin, what they give, and what stops them."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlake import Delivery, FeedError, FeedPosition, Subscription, UsageError, subscribe
from mirrorlake.delta.log import checkpoint
from mirrorlake.errors import LeaseHeld, LeaseLost
from mirrorlake.model import types
from mirrorlake.model.clock import WallClock
from mirrorlake.model.table import Column, Schema
from mirrorlake.storage import lease
from mirrorlake.storage.lease import Lease
from mirrorlake.storage.local import LocalStore
from tests.feed.handmade_feed import DELETE, INSERT, SHAPE, UPDATE, FeedTable
from tests.profiles import tries

WIDER = Schema.of([*SHAPE.schema, Column("more", types.DOUBLE)])


def made(root: Path, name: str = "orders") -> FeedTable:
    table = FeedTable(root / f"Tables/shop/{name}")
    table.change((INSERT, (1, "a")), (INSERT, (2, "b")))
    table.change((UPDATE, (1, "c")), (DELETE, (2, None)))
    return table


@pytest.fixture
def table(tmp_path: Path) -> FeedTable:
    """Versions 0 to 2, of which two changed rows."""
    return made(tmp_path)


def rows(delivery: Delivery) -> list[tuple[Any, ...]]:
    found = delivery.rows.to_pylist()
    return sorted((row["_change_type"], row["id"], row["name"]) for row in found)


def versions(subscription: Subscription) -> list[int]:
    return [one.version for one in subscription]


def again(table: FeedTable, name: str = "audit", **arguments: Any) -> list[int]:
    """What a process reads that opens the subscription now."""
    with subscribe(name, table.path, **arguments) as subscription:
        return versions(subscription)


FIRST = [("insert", 1, "a"), ("insert", 2, "b")]
SECOND = [("delete", 2, "b"), ("update_postimage", 1, "c"), ("update_preimage", 1, "a")]


@pytest.mark.clause("CF-176", "CF-178")
def test_whole_commits_come_in_order(table: FeedTable) -> None:
    with subscribe("audit", table.path, start="beginning") as subscription:
        found = list(subscription)
        assert [one.version for one in found] == [1, 2]
        assert [rows(one) for one in found] == [FIRST, SECOND]
        assert versions(subscription) == []
        table.commit([])  # as maintenance does
        table.change((INSERT, (3, "d")))
        assert versions(subscription) == [4]


@pytest.mark.clause("CF-182")
def test_a_new_one_begins_with_the_snapshot_marked_as_such(table: FeedTable) -> None:
    with subscribe("audit", table.path) as subscription:
        (snapshot,) = subscription
        assert (snapshot.is_snapshot, snapshot.version) == (True, 2)
        assert rows(snapshot) == [("snapshot", 1, "c")]
        assert snapshot.schema == snapshot.rows.schema
        table.change((INSERT, (3, "d")))
        (change,) = subscription
        assert (change.is_snapshot, rows(change)) == (False, [("insert", 3, "d")])


@pytest.mark.parametrize(
    ("start", "expected"),
    [("beginning", [1, 2]), (2, [2]), ("2", [2]), (0, [1, 2]), ("latest", []), (3, [])],
)
def test_the_start_is_chosen(table: FeedTable, start: str | int, expected: list[int]) -> None:
    assert again(table, start=start) == expected


@pytest.mark.clause("CF-052")
def test_a_reader_that_dies_within_its_effect_sees_the_changes_again(table: FeedTable) -> None:
    def dies_within_version_two() -> None:
        with subscribe("audit", table.path, start="beginning") as subscription:
            for delivery in subscription:
                if delivery.version == 2:
                    raise ZeroDivisionError

    for _attempt in range(2):
        with pytest.raises(ZeroDivisionError):
            dies_within_version_two()
    assert again(table) == [2]
    assert again(table) == []


def test_acknowledge_stores_the_position_at_once(table: FeedTable) -> None:
    with subscribe("audit", table.path, start="beginning") as subscription:
        for delivery in subscription:
            subscription.acknowledge(delivery)
            break
        first = delivery
    with subscribe("audit", table.path) as subscription:
        assert versions(subscription) == [2]
        subscription.acknowledge(first)  # late, which takes nothing back
        assert versions(subscription) == []


@pytest.mark.clause("CF-054")
def test_several_read_one_table_independently(table: FeedTable) -> None:
    assert again(table, "one", start="beginning") == [1, 2]
    assert again(table, "another", start=2) == [2]
    table.change((INSERT, (3, "d")))
    assert again(table, "one") == [3]
    assert again(table, "a third", start="beginning") == [1, 2, 3]
    assert again(table, "another") == [3]


def test_one_process_reads_under_a_name(table: FeedTable) -> None:
    with subscribe("audit", table.path, start="beginning") as subscription:
        with pytest.raises(LeaseHeld, match="a reader of audit is already active"):
            subscribe("audit", table.path)
        # Another process took over while this one was away.
        store = LocalStore(table.path.parents[2])
        other = Lease(store, "subscription/audit", WallClock())
        other._create(2)
        with pytest.raises(LeaseLost):
            list(subscription)
        other._epoch = 2
        other.release()
    assert again(table) == [1, 2]


def test_a_closed_one_says_that_it_is_closed(table: FeedTable) -> None:
    with subscribe("audit", table.path, start="beginning") as subscription:
        commits = iter(subscription)
        assert next(commits).version == 1
    for read in (partial(next, commits), partial(list, subscription), subscription.accept_gap):
        with pytest.raises(UsageError, match="subscription audit is closed"):
            read()
    assert again(table) == [1, 2]  # the position of what was not finished is not stored


def test_a_name_is_kept_while_a_delivery_is_worked_on(
    table: FeedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "RENEW", timedelta(milliseconds=5))
    folder = table.path.parents[2] / "Files/Mirrorlake/leases/subscription/audit"

    def record() -> dict[str, Any]:
        return json.loads(max(folder.glob("*.json")).read_text())  # type: ignore[no-any-return]

    def is_renewed() -> bool:
        known, end = record()["renewed"], time.monotonic() + 120
        while record()["renewed"] == known and time.monotonic() < end:
            time.sleep(0.01)
        return record()["renewed"] != known

    with subscribe("audit", table.path, start="beginning") as subscription:
        assert [is_renewed() for _one in subscription] == [True, True]
        assert [is_renewed() for _one in subscription.ranges(10)] == []
        deliveries = iter(subscription)
        table.change((INSERT, (3, "d")))
        next(deliveries)
    assert record()["released"], "nobody renews it any more"
    del deliveries
    assert record()["released"]
    assert again(table) == [3]


def test_a_consumer_that_stores_its_own_position_goes_on_behind_it(table: FeedTable) -> None:
    with subscribe("audit", table.path, start="beginning", after=None) as subscription:
        positions = [str(one.position) for one in subscription]
    assert FeedPosition.parse(positions[0]).version == 1
    assert again(table, after=positions[0]) == [2]  # it was taken back
    assert again(table, after=positions[1]) == []
    assert again(table, after=None, start="beginning") == [1, 2]  # it lost everything
    table.change((INSERT, (3, "d")))
    with subscribe("audit", table.path) as subscription:
        ahead = str(next(iter(subscription)).position)
    assert again(table, after=ahead) == []  # it died before we stored it
    for wrong in ("", "3", "x@y", "-1@y", 3):
        with pytest.raises(FeedError, match="after is"):
            again(table, after=wrong)


def test_a_position_stays_good_when_the_versions_behind_it_are_gone(table: FeedTable) -> None:
    with subscribe("audit", table.path, start="beginning") as subscription:
        position = str(list(subscription)[-1].position)
        for _ in range(3):
            table.commit([])
        assert versions(subscription) == []
    checkpoint.write(table.path)
    for version in range(5):
        table.log.commit_file(version).unlink()
    table.change((INSERT, (3, "d")))
    assert again(table, after=position) == [6]


@pytest.mark.clause("CF-071")
def test_a_change_of_columns_is_reported_with_its_version(table: FeedTable) -> None:
    with subscribe("audit", table.path, start="beginning") as subscription:
        list(subscription)
        table.describe(WIDER)
        assert versions(subscription) == []
    table.change((INSERT, (3, "d", 1.5)))
    table.change((INSERT, (4, "e", 2.5)))
    with subscribe("audit", table.path) as subscription:
        assert [(one.version, one.schema_changes) for one in subscription] == [(4, (3,)), (5, ())]
    with subscribe("other", table.path, start=1) as subscription:
        found = list(subscription)
        assert [(one.version, one.schema_changes) for one in found] == [
            (1, ()),
            (2, ()),
            (4, (3,)),
            (5, ()),
        ]
        assert found[0].rows["more"].null_count == 2


def test_columns_that_do_not_fit_begin_another_range(tmp_path: Path) -> None:
    small = Schema.of([Column("id", types.INTEGER), Column("name", types.STRING)])
    table = FeedTable(tmp_path / "Tables/t", small)
    table.change((INSERT, (1, "a")))
    table.describe(SHAPE.schema)
    table.change((INSERT, (2**40, "b")))
    with subscribe("audit", table.path, start="beginning") as subscription:
        found = [(one.version, str(one.schema.field("id").type)) for one in subscription]
    assert found == [(1, "int32"), (3, "int64")]


def remade(table: FeedTable) -> None:
    shutil.rmtree(table.path)
    again = made(table.path.parents[2])
    again.change((INSERT, (7, "z")))


def replaced_by_a_copy(table: FeedTable) -> None:
    """A copy of version 1, which then went another way to more versions."""
    table.log.commit_file(2).unlink()
    table.log.forget()
    for number in range(3):
        table.commit([], engineInfo=str(number))


def taken_back(table: FeedTable) -> None:
    table.log.commit_file(2).unlink()


@pytest.mark.clause("CF-181", "CF-182")
@pytest.mark.parametrize("done", [remade, replaced_by_a_copy, taken_back])
def test_another_table_is_never_continued_by_its_versions(
    table: FeedTable, done: Callable[[FeedTable], None]
) -> None:
    with subscribe("audit", table.path, start="beginning") as subscription:
        position = str(list(subscription)[-1].position)
        done(table)
        with pytest.raises(FeedError, match="do not continue") as refused:
            list(subscription)
        assert "reseed" in refused.value.hint
    for arguments in ({}, {"after": position}):
        with pytest.raises(FeedError, match="do not continue"):
            again(table, **arguments)
    with subscribe("audit", table.path) as subscription:
        with pytest.raises(FeedError):
            subscription.accept_gap()
        subscription.reseed()
        (snapshot,) = subscription
        assert snapshot.is_snapshot
        assert versions(subscription) == []


def test_a_table_that_is_gone_is_said_to_be(table: FeedTable) -> None:
    with subscribe("audit", table.path, start="beginning") as subscription:
        list(subscription)
        shutil.rmtree(table.path)
        for _ in range(2):
            with pytest.raises(FeedError, match="removed"):
                list(subscription)


@pytest.mark.clause("CF-053", "CF-182")
def test_a_gap_stops_it_with_both_ways_on(table: FeedTable) -> None:
    again(table, start=1)
    again(table, "seed", start=1)
    for number in range(3):
        table.change((INSERT, (10 + number, "x")))
    checkpoint.write(table.path)
    for version in range(5):
        table.log.commit_file(version).unlink()
    table.change((INSERT, (20, "x")))
    with subscribe("audit", table.path) as subscription:
        with pytest.raises(FeedError, match="subscription audit") as refused:
            list(subscription)
        assert (refused.value.reason, refused.value.readable) == ("expired", (5, 6))
        assert "reseed" in refused.value.hint
        assert "accept_gap" in refused.value.hint
        gap = subscription.accept_gap()
        assert gap is not None
        assert (gap.first, gap.last) == (3, 4)
        assert subscription.accept_gap() is None
        assert versions(subscription) == [5, 6]
    with subscribe("seed", table.path) as subscription:
        subscription.reseed()
        (snapshot,) = subscription
        assert len(rows(snapshot)) == 5


def test_changes_that_were_not_recorded_are_a_gap(table: FeedTable) -> None:
    again(table, start=1)
    table.change((INSERT, (9, "seen")))
    table.record(is_on=False)
    table.change((INSERT, (3, "unseen")))
    table.record(is_on=True)
    table.change((INSERT, (4, "d")))
    with subscribe("audit", table.path) as subscription:
        assert subscription.accept_gap() is None  # what is before it can be read
        commits = iter(subscription)
        assert next(commits).version == 3
        with pytest.raises(FeedError) as refused:
            next(commits)
        assert refused.value.reason == "not_recorded"
        gap = subscription.accept_gap()
        assert gap is not None
        assert (gap.first, gap.last) == (4, 5)
        assert versions(subscription) == [7]


def test_a_gap_of_several_reasons_names_each(table: FeedTable) -> None:
    again(table, start=1)
    for version in (3, 4):
        table.change((INSERT, (version, "lost")))
        (file,) = [action["add"] for action in table.log.actions(version) if "add" in action]
        (table.path / file["path"]).unlink()
    table.record(is_on=False)
    table.change((INSERT, (6, "unseen")))
    table.record(is_on=True)
    table.change((INSERT, (8, "kept")))
    with subscribe("audit", table.path) as subscription:
        gap = subscription.accept_gap()
        assert gap is not None
        assert (gap.first, gap.last, gap.reason) == (3, 6, "expired")
        assert [(part.first, part.last, part.reason) for part in gap.parts] == [
            (3, 4, "expired"),
            (5, 6, "not_recorded"),
        ]
        assert versions(subscription) == [8]


def test_a_table_without_the_feed_is_refused(tmp_path: Path) -> None:
    table = FeedTable(tmp_path / "Tables/t", **{"delta.enableChangeDataFeed": "false"})
    for start in ("snapshot", "latest", 0):
        with pytest.raises(FeedError) as refused:
            subscribe("audit", table.path, start=start)
        assert refused.value.reason == "not_recorded"
    with pytest.raises(FeedError, match="no Delta table"):
        subscribe("audit", tmp_path / "Tables/nothing")


@pytest.mark.parametrize("name", ["", ".", "..", "a\nb", "x" * 300, "\0"])
def test_names_that_cannot_be_are_refused(table: FeedTable, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be the name"):
        subscribe(name, table.path)


@pytest.mark.parametrize("name", ["../../escape", "_a", "a/b", "a~41", "ä ö", "a.json"])
def test_a_name_from_outside_is_no_path(table: FeedTable, name: str) -> None:
    assert again(table, name, start="beginning") == [1, 2]
    assert again(table, name) == []
    folder = table.path.parents[2] / "Files/Mirrorlake/subscriptions"
    assert len(list(folder.iterdir())) == 1


def test_a_name_belongs_to_one_table(table: FeedTable) -> None:
    again(table)
    other = made(table.path.parents[2], "items")
    with pytest.raises(FeedError, match="reads another table, Tables/shop/orders"):
        subscribe("audit", other.path)


def test_positions_may_be_stored_elsewhere(tmp_path: Path) -> None:
    table = FeedTable(tmp_path / "alone")
    table.change((INSERT, (1, "a")))
    with pytest.raises(UsageError, match="does not lie below Tables"):
        subscribe("audit", table.path)
    assert again(table, start=0, state=tmp_path / "state") == [1]
    assert again(table, start=0, state=tmp_path / "state") == []


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b'{"format": 2}', b"\xff", b'{"format": 1, "name": 1}'],
)
def test_a_damaged_record_is_never_taken_for_none(table: FeedTable, content: bytes) -> None:
    again(table)
    path = table.path.parents[2] / "Files/Mirrorlake/subscriptions/audit.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="cannot be read"):
        subscribe("audit", table.path)


def test_a_record_with_members_of_other_types_is_damaged(table: FeedTable) -> None:
    again(table)
    path = table.path.parents[2] / "Files/Mirrorlake/subscriptions/audit.json"
    known = json.loads(path.read_bytes())
    for wrong in ({"next": "3"}, {"delivered": None}, {"schema_changes": ["a"]}, {"more": 1}):
        path.write_text(json.dumps(known | wrong))
        with pytest.raises(UsageError, match="cannot be read"):
            subscribe("audit", table.path)


def test_unknown_arguments_are_refused(table: FeedTable) -> None:
    with pytest.raises(FeedError, match="after the latest version, which is 2"):
        subscribe("audit", table.path, start=9)
    with pytest.raises(UsageError, match="excludeRegex"):
        subscribe("audit", table.path, excludeRegex="x")  # type: ignore[call-overload]
    with pytest.raises(FeedError, match="not a time"):
        subscribe("audit", table.path, start="yesterday")


def test_following_gives_what_comes_until_it_is_stopped(table: FeedTable) -> None:
    waits = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        if len(waits) == 2:
            table.change((INSERT, (3, "d")))
        return len(waits) == 4

    with subscribe("audit", table.path, start="beginning") as subscription:
        assert [one.version for one in subscription.follow(wait, 0.1)] == [1, 2, 3]


@given(st.data())
@settings(max_examples=tries(40), deadline=None)
def test_every_change_is_seen_once_by_who_stores_its_position(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Whatever dies when: between effect and position, or before the effect."""
    root = tmp_path_factory.mktemp("root")
    table = FeedTable(root / "Tables/t")
    effect: list[int] = []
    position: str | None = None
    changed = []
    for _ in range(data.draw(st.integers(1, 5))):
        for _ in range(data.draw(st.integers(0, 3))):
            if data.draw(st.booleans()):
                changed.append(table.change((INSERT, (len(changed), "a"))))
            else:
                table.commit([])
        dies = data.draw(st.integers(0, 6))
        with subscribe("audit", table.path, start=0, after=position) as subscription:
            for step, delivery in enumerate(subscription):
                if step == dies:
                    break
                effect.append(delivery.version)
                position = str(delivery.position)
    with subscribe("audit", table.path, start=0, after=position) as subscription:
        effect += versions(subscription)
    assert effect == changed
