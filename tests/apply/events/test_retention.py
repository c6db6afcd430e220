"""What is remembered beside tables of events is bounded, and nothing comes back by it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from mirrorlake.apply.events import consumer
from mirrorlake.apply.events.batches import divided
from mirrorlake.apply.events.journal import MOST_ROWS
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
    assert {int(row["id"]): row["v"] for row in rows} == table_of(source, as_written(events))


@pytest.mark.clause("ST-219")
def test_what_is_found_together_is_in_any_order_however_old_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(divided, "BATCH_FILES", 1)
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


def times(bucket: Bucket) -> tuple[int, int]:
    """Now, and long before the retention."""
    now = int(bucket.clock.moment.timestamp() * 1000)
    return now, now - 90 * DAY


@pytest.mark.clause("ST-248", "ST-254")
@pytest.mark.parametrize("is_replaced", [True, False], ids=["mended", "same"])
@pytest.mark.parametrize("many", [0, MOST_ROWS], ids=["listed", "unlisted"])
@pytest.mark.parametrize("mode", ["merge", "append", "keyless"])
def test_a_replay_after_the_retention_obeys_the_order_and_makes_no_duplicates(
    tmp_path: Path, mode: str, many: int, is_replaced: bool
) -> None:
    key = () if mode == "keyless" else ("id",)
    bucket = Bucket(tmp_path, is_append=mode == "append", retention=timedelta(days=5))
    now, old = times(bucket)

    def file(change: str) -> list[dict[str, Any]]:
        dead = [event(old + 1, {"id": 1}, change, key=key, uuid=f"x{n}") for n in range(many + 1)]
        return [event(old, {"id": 1}, key=key, uuid="a"), *dead]

    bucket.put("a.jsonl", *file("PUT"))
    bucket.cycle()
    bucket.put("b.jsonl", event(old + 2, {"id": 1}, "DELETE", key=key, uuid="b"))
    bucket.cycle()
    for day in range(3):
        new = event(now - day * DAY, {"id": 3 + day}, "UPDATE", key=key, uuid=f"c{day}")
        bucket.put(f"c{day}.jsonl", new)
        bucket.cycle(anew=True)
    before = bucket.plain()
    if is_replaced:
        bucket.put("a.jsonl", *file("UPDATE"))
    assert bucket.consumer().replay() == 1
    count = 1 + many if is_replaced and mode != "merge" else 0
    assert len(bucket.plain()) == len(before) + count
    if mode == "merge":
        assert bucket.plain() == before == [{"id": n} for n in (3, 4, 5)]


def letters_of(bucket: Bucket, name: str, time: int, **changed: Any) -> Path:
    """Apply a file with an event and a dead letter."""
    good = event(time, {"id": time}, "DELETE", uuid=f"{name}g", **changed)
    bad = event(time + 1, {"id": time}, "PUT", uuid=f"{name}b", **changed)
    path = bucket.put(f"{name}.jsonl", good, bad)
    bucket.cycle()
    return path


def deleted(bucket: Bucket) -> list[int]:
    return sorted(row["k0"] for row in remembered(bucket) if row["deletion"])


def link_made(path: Path) -> None:
    """One that leads out of the bucket."""
    path.unlink()
    path.symlink_to(__file__)


def folder_made(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.clause("ST-248", "ST-254")
@pytest.mark.parametrize("removed", [Path.unlink, link_made, folder_made])
def test_what_dead_letters_need_is_forgotten_when_they_cannot_be_replayed_any_more(
    tmp_path: Path, removed: Callable[[Path], None]
) -> None:
    bucket = Bucket(tmp_path, retention=timedelta(days=5))
    now, old = times(bucket)
    bucket.put("0.jsonl", event(old - 9 * DAY, {"id": 1}, "DELETE"), event(old - DAY, {"id": 2}))
    bucket.cycle()
    first = letters_of(bucket, "a", old)
    second = letters_of(bucket, "b", old + 20 * DAY)
    bucket.put("c.jsonl", event(now, {"id": 3}))
    bucket.cycle()
    assert deleted(bucket) == [old, old + 20 * DAY]
    removed(first)
    bucket.clock.moment += consumer.LOOK
    bucket.put("d.jsonl", event(now + 1, {"id": 3}))
    bucket.cycle()
    assert deleted(bucket) == [old + 20 * DAY]
    # Mended, it is not waited for any more. Its event is older than the deletion.
    second.unlink()
    bucket.put("b.jsonl", event(old + 20 * DAY - 1, {"id": old + 20 * DAY}, uuid="bb"))
    bucket.cycle()
    assert bucket.plain() == [{"id": 2}, {"id": 3}]
    bucket.put("e.jsonl", event(now + 2, {"id": 3}))
    bucket.cycle()
    assert deleted(bucket) == []


@pytest.mark.clause("ST-248", "ST-254")
def test_dead_letters_hold_what_is_remembered_of_their_tables_only(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, retention=timedelta(days=5))
    now, old = times(bucket)
    bucket.put("0.jsonl", event(old, {"id": 1}, "DELETE"))
    letters_of(bucket, "a", old, table="others")
    bucket.put("b.jsonl", event(now, {"id": 3}))
    bucket.cycle()
    assert deleted(bucket) == []


@pytest.mark.clause("ST-254")
@pytest.mark.parametrize("line", ["{", '{"payload": {"id": 1}}'])
def test_while_it_is_not_known_what_dead_letters_need_nothing_is_forgotten(
    tmp_path: Path, line: str
) -> None:
    bucket = Bucket(tmp_path, retention=timedelta(days=5))
    now, old = times(bucket)
    bucket.put("0.jsonl", event(old, {"id": 1}, "DELETE"))
    bucket.put("bad.jsonl", line)
    bucket.put("bad.avro", "Obj\x01 and no header")
    bucket.cycle()
    for number in range(2):
        bucket.put(f"b{number}.jsonl", event(now + number, {"id": 3}))
        bucket.cycle(anew=True)
    assert deleted(bucket) == [1]


@pytest.mark.clause("ST-254")
def test_dead_letters_of_an_earlier_release_hold_what_is_remembered(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, retention=timedelta(days=5))
    now, old = times(bucket)
    letters_of(bucket, "a", old)
    (record,) = (bucket.root / "Files/Mirrorlake/events/files").glob("*.json")
    content = json.loads(record.read_text())
    content["files"] = [file[:6] for file in content["files"]]
    record.write_text(json.dumps(content))
    bucket.put("b.jsonl", event(now, {"id": 3}))
    bucket.cycle(anew=True)
    assert deleted(bucket) == [old]
    assert bucket.consumer().replay() == 1
    (file,) = bucket.consumer()._journal.dead
    assert (file.oldest_ms, file.retries) == (old, 1)


@pytest.mark.clause("ST-254")
def test_a_repair_reads_what_dead_letters_need(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, retention=timedelta(days=5))
    now, old = times(bucket)

    def minute(time: int) -> str:
        return f"{datetime.fromtimestamp(time / 1000, UTC):%Y/%m/%d/%H/%M}"

    bad = bucket.put("a.jsonl", event(old, {"id": 1}, "PUT"), minute=minute(old))
    bucket.put("b.jsonl", event(old + 1, {"id": 1}, "DELETE"), minute=minute(old + DAY))
    bucket.put("c.jsonl", event(now, {"id": 3}), minute=minute(now))
    bucket.cycle()
    bucket.cycle()
    for file in (bucket.root / "Files/Mirrorlake/events/tables").rglob("*.parquet"):
        file.unlink()
    bucket.consumer().rebuild(ORDERS_PUBLIC)
    bad.write_text(json.dumps(event(old, {"id": 1})))
    assert bucket.consumer().replay() == 1
    assert bucket.plain() == [{"id": 3}]
