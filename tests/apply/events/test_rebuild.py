"""What is remembered beside tables of events is computed anew, and nothing comes back by it."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from mirrorlake import read_feed
from mirrorlake.apply.events import file_reader, rebuild
from mirrorlake.apply.events import journal as journals
from mirrorlake.apply.events.columns import column_name
from mirrorlake.apply.events.journal import MOST_ROWS
from mirrorlake.delta.schema import OF_EVENTS
from mirrorlake.errors import EventRecordsUnreadable, EventStateDamaged, EventTableError
from mirrorlake.events.envelope import EventSource
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.model.table import TableId
from tests.apply.events import drawn_files
from tests.apply.events.bucket import Bucket, event
from tests.apply.events.drawn_files import as_written, line, rows_of
from tests.apply.events.killed_tables import ORDERS, Killed
from tests.mirror.event_order.drawn import SOURCES, many
from tests.mirror.event_order.model import table_of
from tests.profiles import some, tries

PUBLIC = TableId("public", "orders")
STATE = "Files/Mirrorlake/events/tables"
PASSED = "Files/Mirrorlake/events/files/passed"


def data_removed(folder: Path) -> None:
    for file in folder.rglob("*.parquet"):
        file.unlink()


def data_cut(folder: Path) -> None:
    for file in folder.rglob("*.parquet"):
        file.write_bytes(file.read_bytes()[:-20])


def record_removed(folder: Path) -> None:
    for file in folder.rglob("0*.json"):
        file.unlink()


def record_cut(folder: Path) -> None:
    for file in folder.rglob("0*.json"):
        file.write_text(file.read_text()[:-20])


DAMAGES = [data_removed, data_cut, record_removed, record_cut, shutil.rmtree]


@pytest.mark.clause("ST-232", "ST-234")
@pytest.mark.parametrize("damaged", some(DAMAGES))
@pytest.mark.parametrize("mode", ["merge", "append", "keyless"])
def test_events_change_nothing_again_after_a_repair(
    tmp_path: Path, damaged: Callable[[Path], None], mode: str
) -> None:
    bucket, key = Bucket(tmp_path, is_append=mode == "append"), [] if mode == "keyless" else ["id"]
    old = [event(n, {"id": n % 4, "a b": n}, "UPDATE", key) for n in range(1, 9)]
    old += [event(9, {"id": 3, "a b": None}, "DELETE", key)]
    bucket.put("a.jsonl", *old[:5])
    bucket.cycle()
    bucket.put("b.jsonl", *old[5:])
    bucket.cycle(anew=True)
    rows = bucket.plain()
    damaged(bucket.root / STATE / "public~2Eorders")
    new = event(10, {"id": 1, "a b": 10}, "UPDATE", key)
    bucket.put("c.jsonl", *old, new)
    bucket.cycle(anew=True)
    assert isinstance(bucket.errors["public.orders"], EventStateDamaged)
    assert "mirrorlake repair public.orders" in bucket.errors["public.orders"].hint
    version = bucket.log().snapshot().version
    bucket.consumer().rebuild(PUBLIC)
    assert bucket.plain() == rows
    bucket.put("d.jsonl", *old)
    bucket.cycle(anew=True)
    assert not bucket.errors
    kept = [row for row in rows if mode != "merge" or row["id"] != 1]
    assert bucket.plain() == sorted([*kept, {"id": 1, "a_b": 10}], key=repr)
    feed = read_feed(bucket.root / "Tables/public/orders", from_version=version + 1).to_arrow()
    told = [row["a_b"] for row in feed.to_pylist() if row["_change_type"] != "update_preimage"]
    assert told == [10]


def test_a_row_whose_event_is_in_no_file_is_later_than_what_is_earlier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuild, "MOST_ROWS", 1)
    bucket = Bucket(tmp_path)
    first = [event(5, {"id": 1, "v": "a"}), event(6, {"id": 2, "v": "b"})]
    path = bucket.put("a.jsonl", *first)
    bucket.cycle()
    path.unlink()
    shutil.rmtree(bucket.root / STATE)
    earlier = [event(4, {"id": 1, "v": "x"}, "DELETE"), event(5, {"id": 1, "v": "y"}, uuid="y")]
    bucket.put("b.jsonl", *earlier, event(7, {"id": 2, "v": "c"}, "UPDATE"))
    bucket.consumer().rebuild(PUBLIC)
    bucket.cycle(anew=True)
    assert bucket.plain() == [{"id": 1, "v": "a"}, {"id": 2, "v": "c"}]


def test_a_dead_letter_is_not_remembered_as_applied(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": 1}), event(2, {"id": 2}, "SOMETHING"))
    bucket.cycle()
    data_removed(bucket.root / STATE)
    bucket.consumer().rebuild(PUBLIC)
    bucket.put("a.jsonl", event(1, {"id": 1}), event(2, {"id": 2}))
    bucket.cycle(anew=True)
    assert bucket.plain() == [{"id": 1}, {"id": 2}]


def test_a_repair_that_dies_is_repeated(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(2, {"id": 1}, "UPDATE"), event(3, {"id": 2}, "DELETE"))
    bucket.cycle()
    shutil.rmtree(bucket.root / STATE)

    def dies(point: CrashPoint) -> None:
        assert point is CrashPoint.KEYS_WRITTEN
        raise Killed

    with pytest.raises(Killed):
        bucket.consumer(dies).rebuild(PUBLIC)
    bucket.put("b.jsonl", event(1, {"id": 2}))
    bucket.cycle(anew=True)
    assert "is missing" in bucket.errors["public.orders"].what
    bucket.consumer().rebuild(PUBLIC)
    bucket.cycle(anew=True)
    assert bucket.plain() == [{"id": 1}]
    names = {file.name for file in (bucket.root / STATE).rglob("*.parquet")}
    named = "".join(file.read_text() for file in (bucket.root / STATE).rglob("0*.json"))
    assert all(name in named for name in names)


@pytest.mark.full
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("seed", range(tries(3, long=50)))
def test_any_order_makes_the_same_table_with_repairs_between(source: str, seed: int) -> None:
    """The files are there, so that the state is the same as before the damage."""
    events = many(source, seed, 60)
    random = Random(seed)
    arriving: Sequence[dict[str, object]] = events + random.choices(events, k=30)
    arriving = random.sample(arriving, len(arriving))
    with tempfile.TemporaryDirectory() as root:
        bucket = Bucket(Path(root))
        bucket.settings = drawn_files.settings(source, bucket.folder)
        for number in range(0, len(arriving), 40):
            batch = arriving[number : number + 40]
            bucket.put(f"{number}.jsonl", *(line(source, one) for one in batch), minute="")
            bucket.cycle(anew=True)
            random.choice(DAMAGES)(bucket.root / STATE / "shop~2Eorders")
            bucket.consumer().rebuild(ORDERS)
        bucket.cycle(anew=True)
        assert not bucket.errors
        rows = rows_of(bucket.root / "Tables/shop/orders")
    assert {int(row["id"]): row["v"] for row in rows} == table_of(source, as_written(events))


def test_dead_letters_that_are_not_listed_are_not_remembered_as_applied(tmp_path: Path) -> None:
    bucket, count = Bucket(tmp_path), MOST_ROWS + 20
    bucket.put("a.jsonl", event(1, {"id": 0}), minute="")
    dead = [event(2, {"id": n}, read_method="cdc", uuid=f"u{n}") for n in range(1, count + 1)]
    bucket.put("b.jsonl", event(1, {"id": 0}), *dead, minute="")
    bucket.cycle()
    assert bucket.plain() == [{"id": 0}]
    data_removed(bucket.root / STATE)
    bucket.settings = replace(bucket.settings, source=EventSource.POSTGRESQL)
    bucket.consumer().rebuild(PUBLIC)
    bucket.consumer().replay()
    assert sorted(row["id"] for row in bucket.plain()) == list(range(count + 1))


def test_a_key_that_was_deleted_beside_dead_letters_stays_deleted(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    kept, old = event(1, {"id": 1}), event(2, {"id": 0})
    dead = [event(3, {}, uuid=f"u{n}") for n in range(MOST_ROWS + 1)]
    bucket.put("a.jsonl", kept, old, event(4, {"id": 0}, "DELETE"), *dead, minute="")
    bucket.cycle()
    assert bucket.plain() == [{"id": 1}]
    data_removed(bucket.root / STATE)
    bucket.consumer().rebuild(PUBLIC)
    bucket.put("b.jsonl", kept, old, minute="")
    bucket.cycle(anew=True)
    assert bucket.plain() == [{"id": 1}]


@pytest.mark.clause("ST-234")
@pytest.mark.parametrize("mode", ["append", "keyless"])
def test_events_without_a_uuid_beside_dead_letters_are_told_by_their_rows(
    tmp_path: Path, mode: str
) -> None:
    key = () if mode == "keyless" else ("id",)
    bucket = Bucket(tmp_path, is_append=mode == "append")

    def unnamed(number: int, place: int, **changed: str) -> dict[str, object]:
        """Events of one number have equal rows in a table without a key, at every place."""
        payload = {"id": number, "odd name": f"v{number}"}
        told = {"lsn": f"0/{place:X}", "sort_keys": [number, f"0/{place:X}"]}
        return event(number, payload, key=key, uuid=None, **told, **changed)

    def row_counts() -> list[int]:
        return sorted(row["id"] for row in bucket.plain())

    applied = [unnamed(1, 1), unnamed(2, 2), unnamed(2, 3), event(3, {"id": 3}, key=key)]
    dead = [unnamed(n, n, read_method="cdc") for n in range(10, 11 + MOST_ROWS)]
    # Equal to applied ones in all that rows tell without a key.
    dead += [unnamed(2, 4, read_method="cdc"), unnamed(4, 6, read_method="cdc")]
    bucket.put("a.jsonl", *applied, *dead, minute="")
    bucket.put("b.jsonl", unnamed(4, 5), minute="")
    bucket.cycle()
    assert row_counts() == [1, 2, 2, 3, 4]
    data_removed(bucket.root / STATE)
    bucket.consumer().rebuild(PUBLIC)
    bucket.consumer().replay()
    assert row_counts() == [1, 2, 2, 3, 4]
    bucket.settings = replace(bucket.settings, source=EventSource.POSTGRESQL)
    for _again in range(2):
        bucket.consumer().replay()
        assert row_counts() == [1, 2, 2, 2, 3, 4, 4, *range(10, 11 + MOST_ROWS)]


@pytest.mark.parametrize("together", [64 << 20, 1_000], ids=["whole", "in parts"])
def test_a_row_of_an_applied_file_does_not_count_for_a_large_one_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    """Files that do not fit in memory are read after the others of a batch."""
    monkeypatch.setattr(file_reader, "MOST_TOGETHER", together)
    bucket = Bucket(tmp_path)

    def unnamed(number: int, place: int, **changed: str) -> dict[str, object]:
        told = {"lsn": f"0/{place:X}", "sort_keys": [number, f"0/{place:X}"]}
        return event(number, {"id": number}, key=(), uuid=None, **told, **changed)

    dead = [unnamed(n, n, read_method="cdc") for n in range(10, 10 + MOST_ROWS)]
    dead.append(unnamed(4, 6, read_method="cdc"))  # the one that is not listed
    bucket.put("a.jsonl", unnamed(1, 1), *dead, minute="")
    bucket.put("b.jsonl", unnamed(4, 5), minute="")
    bucket.cycle()
    assert sorted(row["id"] for row in bucket.plain()) == [1, 4]
    data_removed(bucket.root / STATE)
    bucket.settings = replace(bucket.settings, source=EventSource.POSTGRESQL)
    bucket.consumer().rebuild(PUBLIC)
    bucket.consumer().replay()
    found = sorted(row["id"] for row in bucket.plain())
    assert found == [1, 4, 4, *range(10, 10 + MOST_ROWS)]


@pytest.mark.parametrize("name", ["odd name", "note"])
def test_rows_are_told_by_content_whatever_their_columns_are_named(
    tmp_path: Path, name: str
) -> None:
    bucket = Bucket(tmp_path)
    dead = [event(3, {}, uuid=f"u{n}") for n in range(MOST_ROWS + 1)]
    bucket.put("a.jsonl", event(5, {"id": 1, name: "a"}, uuid=None), *dead, minute="")
    bucket.cycle()
    data_removed(bucket.root / STATE)
    bucket.consumer().rebuild(PUBLIC)
    # Later by position, of the same time: it would lose against a row whose event is unknown.
    later = event(5, {"id": 1, name: "b"}, "UPDATE", uuid=None, lsn="0/6")
    bucket.put("b.jsonl", later, minute="")
    bucket.cycle(anew=True)
    (row,) = bucket.plain()
    assert row == {"id": 1, column_name(name): "b"}


def file_removed(file: Path) -> None:
    file.unlink()


def file_cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


@pytest.mark.parametrize("damaged", [file_removed, file_cut])
@pytest.mark.parametrize("mode", ["merge", "append"])
def test_a_table_with_a_damaged_file_is_not_repaired(
    tmp_path: Path, damaged: Callable[[Path], None], mode: str
) -> None:
    bucket = Bucket(tmp_path, is_append=mode == "append")
    bucket.put("a.jsonl", event(1, {"id": 1}))
    bucket.cycle()
    shutil.rmtree(bucket.root / STATE)
    (file,) = (bucket.root / "Tables/public/orders").glob("*.parquet")
    damaged(file)
    with pytest.raises(EventTableError, match="a file of it cannot be read") as caught:
        bucket.consumer().rebuild(PUBLIC)
    assert "mirrorlake reset public.orders" in caught.value.hint


def test_a_table_that_does_not_say_what_it_is_is_not_repaired(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": 1}))
    bucket.cycle()
    shutil.rmtree(bucket.root / STATE)
    (first,) = (bucket.root / "Tables/public/orders/_delta_log").glob("*0.json")
    first.write_text(re.sub(f'"{OF_EVENTS}": *"{{', f'"{OF_EVENTS}":"', first.read_text()))
    with pytest.raises(EventTableError, match="what it says of itself"):
        bucket.consumer().rebuild(PUBLIC)


@pytest.mark.clause("ST-222", "ST-234")
@pytest.mark.parametrize("mode", ["merge", "append", "keyless"])
@pytest.mark.parametrize("most", [journals.MOST_RECORDS, 1], ids=["recorded", "passed"])
def test_a_repair_does_not_take_a_file_as_applied_that_was_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, most: int
) -> None:
    """Beside others of its day that were applied, whose events change nothing again: also a
    truncation, and changes before it."""
    monkeypatch.setattr(journals, "MOST_RECORDS", most)
    bucket, key = Bucket(tmp_path, is_append=mode == "append"), () if mode == "keyless" else ("id",)
    old = [event(1, {"id": 1}, key=key), event(2, {}, "TRUNCATE", key=key)]
    old += [event(3, {"id": 3}, "UPDATE", key=key)]
    bucket.put("a.jsonl", *old, minute="2026/11/10/10/05")
    bucket.cycle()
    for number in range(3):
        new = event(10 + number, {"id": 10 + number}, key=key)
        bucket.put("b.jsonl", new, minute=f"2026/11/2{number}/10/05")
        bucket.cycle()
    late = event(5, {"id": 5}, key=key)
    bucket.put("late.jsonl", late, minute="2026/11/10/10/05")
    assert bucket.cycle() == 0
    rows = bucket.plain()
    data_removed(bucket.root / STATE)
    bucket.consumer().rebuild(PUBLIC)
    bucket.settings = replace(bucket.settings, look_back=timedelta(days=20))
    bucket.cycle(anew=True)
    bucket.put("again.jsonl", *old)
    bucket.cycle()
    assert not bucket.errors
    assert bucket.plain() == sorted([*rows, {"id": 5}], key=repr)


def passed_days(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: Sequence[int]
) -> tuple[Bucket, Path]:
    """A bucket with a file in each of these days of November, and where is told of those before
    the look-back that they were applied."""
    monkeypatch.setattr(journals, "MOST_RECORDS", 1)
    bucket = Bucket(tmp_path, retention=timedelta(days=10))
    for day in days:
        bucket.put("a.jsonl", event(day, {"id": day}), minute=f"2026/11/{day:02}/10/05")
        bucket.cycle()
    return bucket, bucket.root / PASSED


@pytest.mark.clause("ST-248")
def test_what_is_told_of_applied_files_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _bucket, passed = passed_days(tmp_path, monkeypatch, range(1, 23))
    assert sorted(day.name for day in passed.iterdir()) == [f"202611{n}" for n in range(12, 19)]
    assert all(len([*day.iterdir()]) == 1 for day in passed.iterdir())


def test_files_that_nothing_tells_of_are_not_taken_as_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those that an earlier release has applied: a row counts, and what has none is read."""
    bucket, passed = passed_days(tmp_path, monkeypatch, [13, 14, 20, 21])
    shutil.rmtree(passed)
    bucket.put("late.jsonl", event(5, {"id": 5}), minute="2026/11/13/10/05")
    rows = bucket.plain()
    data_removed(bucket.root / STATE)
    bucket.consumer().rebuild(PUBLIC)
    bucket.settings = replace(bucket.settings, look_back=timedelta(days=9))
    bucket.cycle(anew=True)
    assert bucket.plain() == sorted([*rows, {"id": 5}], key=repr)


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 2, "files": []}'])
def test_what_is_told_of_applied_files_is_refused_where_it_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    bucket, passed = passed_days(tmp_path, monkeypatch, [13, 14, 20, 21])
    damaged = next(passed.rglob("*.json"))
    damaged.write_text(text)
    with pytest.raises(EventRecordsUnreadable, match="which event files were applied") as caught:
        bucket.consumer().rebuild(PUBLIC)
    assert damaged.name in caught.value.where
    damaged.unlink()
    bucket.consumer().rebuild(PUBLIC)
