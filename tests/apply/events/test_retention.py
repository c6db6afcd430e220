"""What is remembered beside tables of events is bounded, and nothing comes back by it."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from mirrorlake.apply.events import consumer
from mirrorlake.apply.events.remembered import merging, retention
from mirrorlake.apply.events.table import EventTable
from mirrorlake.storage.local import LocalStore
from tests.apply.events.bucket import Bucket, event
from tests.apply.events.drawn_files import as_written, read, rows_of, settings
from tests.apply.events.killed_tables import ORDERS
from tests.mirror.event_order.drawn import SOURCES, many
from tests.mirror.event_order.model import Event, place, table_of
from tests.profiles import tries

DAY = 24 * 3600 * 1000
LATE = 15
"""How much later than a later one an event may come, and how long a transaction takes."""


def remembered(bucket: Bucket) -> list[dict[str, Any]]:
    """The records beside the table, of its keys or of its events."""
    table = EventTable(LocalStore(bucket.root), ORDERS_PUBLIC, bucket.settings)
    state = table._load().state
    with table._folder.open():
        files = merging.files_of(state, table._folder.files)[0]
        return [row for add in files.files for row in files.live(add).to_pylist()]


ORDERS_PUBLIC = replace(ORDERS, schema="public")


@pytest.mark.clause("ST-232", "ST-248")
@pytest.mark.parametrize("mode", ["merge", "append"])
def test_deletions_and_events_are_forgotten_after_the_retention(tmp_path: Path, mode: str) -> None:
    bucket = Bucket(tmp_path, is_append=mode == "append", retention=timedelta(days=5))
    now = int(bucket.clock.moment.timestamp() * 1000)
    gone = [event(now - 90 * DAY + n, {"id": n}, uuid=f"i{n}") for n in range(5)]
    gone += [event(now - 80 * DAY + n, {"id": n}, "DELETE", uuid=f"d{n}") for n in range(5)]
    gone.append(event(now - 70 * DAY, {"id": 9}, uuid="kept"))
    bucket.put("a.jsonl", *gone)
    bucket.cycle()
    before = len(remembered(bucket))
    assert before == (6 if mode == "merge" else 11)
    bucket.put("b.jsonl", event(now - DAY, {"id": 7}, "DELETE", uuid="x"))
    bucket.cycle()
    left = remembered(bucket)
    assert len(left) == (2 if mode == "merge" else 1)
    rows = bucket.plain()
    version = bucket.log().snapshot().version
    bucket.put("c.jsonl", event(now - DAY, {"id": 7}, "DELETE", uuid="x"))
    bucket.put("d.jsonl", event(now - 2 * DAY, {"id": 7}, uuid="y"))  # older than its deletion
    bucket.cycle(anew=True)
    if mode == "merge":
        assert bucket.plain() == rows == [{"id": 9}]
    else:
        assert len(bucket.plain()) == len(rows) + 1
    # No more than once a day, however many batches come.
    assert bucket.log().snapshot().version <= version + 1


@pytest.mark.clause("ST-248")
def test_a_wrong_clock_forgets_nothing(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, retention=timedelta(days=5))
    now = int(bucket.clock.moment.timestamp() * 1000)
    bucket.put("a.jsonl", event(now - DAY, {"id": 1}, "DELETE"))
    bucket.put("b.jsonl", event(now + 9_000 * DAY, {"id": 2}))
    bucket.cycle()
    bucket.put("c.jsonl", event(now - 2 * DAY, {"id": 1}))
    bucket.cycle()
    assert bucket.plain() == [{"id": 2}]


def in_time(source: str, events: list[Event]) -> list[Event]:
    """The events with other times: no log goes back in time, what is at one place has one time, and
    no transaction is long."""
    logs: dict[str, list[Event]] = {}
    for one in events:
        if not one["backfill"]:
            logs.setdefault(place(source, one)[0], []).append(one)
    for changes in logs.values():
        times = sorted(one["source_timestamp"] for one in changes)
        changes.sort(key=lambda one: place(source, one)[1])
        before: Event | None = None
        for one, time in zip(changes, times, strict=True):
            is_same = before is not None and place(source, before)[1] == place(source, one)[1]
            one["source_timestamp"] = before["source_timestamp"] if before and is_same else time
            one["tx_id"] = f"{one['tx_id']} {one['source_timestamp'] // LATE}"
            before = one
    return events


@pytest.mark.full
@pytest.mark.clause("ST-219", "ST-248")
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("seed", range(tries(1, long=100)))
def test_what_is_forgotten_changes_no_table(
    source: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of events that come no later than the retention after later ones."""
    monkeypatch.setattr(retention, "STEP_MS", 1)
    events = in_time(source, many(source, seed, 60))
    random = Random(seed)
    arriving = sorted(
        events + random.choices(events, k=60),
        key=lambda one: one["source_timestamp"] + random.random() * LATE,
    )
    asked = settings(source, retention=timedelta(milliseconds=2 * LATE))
    with tempfile.TemporaryDirectory() as root:
        table = EventTable(LocalStore(Path(root)), ORDERS, asked)
        while arriving:
            batch, arriving = arriving[:40], arriving[40:]
            table.apply(read(source, batch))
            table.prune(datetime.now(UTC))
        rows = rows_of(f"{root}/Tables/shop/orders")
    assert {row["id"]: row["v"] for row in rows} == table_of(source, as_written(events))


@pytest.mark.clause("ST-219")
def test_what_is_found_together_is_in_any_order_however_old_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "BATCH_FILES", 1)
    bucket = Bucket(tmp_path, retention=timedelta(days=5))
    now = int(bucket.clock.moment.timestamp() * 1000)
    bucket.put("a.jsonl", event(now - 90 * DAY, {"id": 1}, "DELETE"))
    bucket.put("b.jsonl", event(now - DAY, {"id": 2}))
    bucket.put("c.jsonl", event(now - 91 * DAY, {"id": 1}))
    assert bucket.cycle() == 3
    assert bucket.plain() == [{"id": 2}]
    bucket.put("d.jsonl", event(now, {"id": 3}))
    bucket.cycle()
    assert len(remembered(bucket)) == 2


@pytest.mark.clause("ST-219")
def test_nothing_is_forgotten_while_a_file_waits_for_a_stopped_table(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, retention=timedelta(days=5))
    now = int(bucket.clock.moment.timestamp() * 1000)
    other: dict[str, Any] = {"table": "others", "object": "public_others"}
    deleted = event(now - 90 * DAY, {"id": 1}, "DELETE")
    bucket.put("a.jsonl", event(1, {"id": 1, "v": 1}, **other), deleted)
    bucket.cycle()
    changed = event(2, {"id": 1, "v": 1}, key=["v"], **other)
    bucket.put("b.jsonl", event(now - DAY, {"id": 2}), changed)
    bucket.cycle()
    assert [*bucket.errors] == ["public.others"]
    assert len(remembered(bucket)) == 2
    bucket.put("b.jsonl", event(now - DAY, {"id": 2}))
    bucket.put("c.jsonl", event(now, {"id": 3}))
    bucket.cycle()
    assert len(remembered(bucket)) == 2
    assert bucket.plain() == [{"id": 2}, {"id": 3}]


@pytest.mark.clause("ST-254")
@pytest.mark.parametrize("key", [["id"], []])
def test_a_replay_leaves_what_was_applied_before_the_retention(
    tmp_path: Path, key: list[str]
) -> None:
    bucket = Bucket(tmp_path, retention=timedelta(days=5))
    now = int(bucket.clock.moment.timestamp() * 1000)
    old = now - 90 * DAY
    bucket.put(
        "a.jsonl",
        event(old, {"id": 1}, key=key, uuid="a"),
        event(old + 1, {"id": 2}, "PUT", key=key, uuid="b"),
    )
    bucket.cycle()
    bucket.put("b.jsonl", event(old + 2, {"id": 1}, "DELETE", key=key, uuid="c"))
    bucket.put("c.jsonl", event(now, {"id": 3}, key=key, uuid="d"))
    bucket.cycle()
    before = bucket.plain()
    assert bucket.consumer().replay() == 1
    assert bucket.plain() == before
