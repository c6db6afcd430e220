"""The dead letters of a file that is held, because one of its tables has stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from mirrorlake.apply.events.consumer import EVENTS_DEAD
from mirrorlake.apply.events.journal import ReadFile
from mirrorlake.apply.events.table import EventTable
from mirrorlake.apply.in_process.runner import InProcessRunner
from mirrorlake.model.table import TableId
from tests.apply.events.bucket import MINUTE, Bucket, event

ORDERS = TableId("public", "orders")


def begun(folder: Path) -> Bucket:
    """A bucket with rows of two tables."""
    bucket = Bucket(folder)
    bucket.put("a.jsonl", event(1, {"id": 1, "v": 1}), event(1, {"id": 1, "v": 1}, table="others"))
    bucket.cycle()
    return bucket


def other(number: int, value: Any) -> dict[str, Any]:
    return event(number, {"id": number, "v": value}, table="others")


def rekeyed(number: int) -> dict[str, Any]:
    """An event that stops its table."""
    return event(number, {"id": number, "v": number}, key=("id", "v"))


def dead(bucket: Bucket) -> list[ReadFile]:
    """As another process sees it."""
    return bucket.consumer()._journal.dead


def told(bucket: Bucket) -> list[tuple[str, str, tuple[int, ...], int]]:
    """File, table, rows and number of retries of all dead letters."""
    return [
        (file.path.rpartition("/")[2], letter.table, letter.rows, file.retries)
        for file in dead(bucket)
        for letter in file.letters
    ]


@pytest.mark.parametrize("is_spread", [False, True])
@pytest.mark.clause("ST-253", "ST-263")
def test_a_table_that_has_stopped_hides_no_dead_letter_of_another(
    tmp_path: Path, *, is_spread: bool
) -> None:
    bucket = begun(tmp_path)
    if is_spread:
        bucket.runner = InProcessRunner()
    with capture_logs() as logs:
        bucket.put("b.jsonl", rekeyed(2), other(3, "bad"), other(4, 4))
        assert bucket.cycle(anew=True) == 0
        assert told(bucket) == [("b.jsonl", "public.others", (1,), 0)]
        records = bucket.consumer()._journal.numbers
        for number in (5, 6):
            assert bucket.cycle(anew=True) == 0  # as at each start
            assert bucket.consumer()._journal.numbers == records
            bucket.put(f"{number}.jsonl", other(number, number))
            bucket.cycle()
            records = bucket.consumer()._journal.numbers
        assert "public.orders" in bucket.errors
        assert told(bucket) == [("b.jsonl", "public.others", (1,), 0)]
    assert [one["events"] for one in logs if one["event"] == EVENTS_DEAD] == [1]
    assert [row["id"] for row in bucket.plain("public/others")] == [1, 4, 5, 6]
    bucket.put("b.jsonl", event(2, {"id": 2, "v": 2}), other(3, 3), other(4, 4))
    assert bucket.cycle(anew=True) == 1
    assert (told(bucket), bucket.errors) == ([], {})
    assert [row["id"] for row in bucket.plain("public/others")] == [1, 3, 4, 5, 6]
    assert [row["id"] for row in bucket.plain()] == [1, 2]


@pytest.mark.clause("ST-253")
def test_the_dead_letters_of_a_held_file_are_the_same_ones_once_it_is_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = begun(tmp_path)
    bucket.put("b.jsonl", event(2, {"id": 2, "v": 2}), other(3, "bad"))
    refused = {ORDERS}
    stop(monkeypatch, refused)
    with capture_logs() as logs:
        assert bucket.cycle() == 0
        refused.add(TableId("public", "others"))
        for _start in range(2):  # while the table of the dead letter has stopped as well
            assert bucket.cycle(anew=True) == 0
            assert told(bucket) == [("b.jsonl", "public.others", (1,), 0)]
        refused.clear()
        assert bucket.cycle(anew=True) == 1
        assert bucket.cycle(anew=True) == 0
    assert told(bucket) == [("b.jsonl", "public.others", (1,), 0)]
    assert len([one for one in logs if one["event"] == EVENTS_DEAD]) == 1
    assert [row["id"] for row in bucket.plain()] == [1, 2]
    bucket.consumer().replay()
    assert told(bucket) == [("b.jsonl", "public.others", (1,), 1)]


@pytest.mark.clause("ST-254")
def test_the_dead_letters_of_a_held_file_can_be_replayed(tmp_path: Path) -> None:
    bucket = begun(tmp_path)
    bucket.put("b.jsonl", rekeyed(2), other(3, "bad"), other(4, 4))
    bucket.cycle()
    assert bucket.consumer().replay() == 1
    assert told(bucket) == [("b.jsonl", "public.others", (1,), 1)]
    bucket.put("b.jsonl", rekeyed(2), other(3, 3), other(4, 4))
    assert bucket.consumer().replay() == 1
    assert told(bucket) == []
    assert [row["id"] for row in bucket.plain("public/others")] == [1, 3, 4]
    assert bucket.cycle(anew=True) == 0  # the file is still held
    assert "public.orders" in bucket.errors
    assert told(bucket) == []


@pytest.mark.clause("ST-254")
def test_a_file_that_was_applied_is_not_held_by_a_replay_that_meets_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = begun(tmp_path)
    bucket.put("b.jsonl", event(2, {"id": None, "v": 2}), other(3, "bad"), other(4, 4))
    assert bucket.cycle() == 1
    before = dead(bucket)
    refused = {ORDERS}
    stop(monkeypatch, refused)
    bucket.consumer().replay()
    assert dead(bucket) == before
    refused.clear()
    assert bucket.cycle(anew=True) == 0
    assert dead(bucket) == before


def stop(monkeypatch: pytest.MonkeyPatch, tables: set[TableId]) -> None:
    """Stop these tables when events are applied to them."""
    apply = EventTable.apply

    def refusing(table: EventTable, *events: Any) -> Any:
        if table.table in tables:
            raise table._error("stopped")
        return apply(table, *events)

    monkeypatch.setattr(EventTable, "apply", refusing)


@pytest.mark.clause("ST-253", "ST-254")
def test_dead_letters_of_files_that_are_gone_are_dropped(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bad = event(2, {"id": 2}, "PUT")
    gone = bucket.put("a.jsonl", event(1, {"id": 1}), bad)
    bucket.put("b.jsonl", event(3, {"id": 3}), bad)
    bucket.cycle()
    gone.unlink()
    consumer = bucket.consumer()
    assert consumer.drop_gone() == [f"public_orders/{MINUTE}/a.jsonl"]
    assert consumer.replay() == 1
    (left,) = bucket.consumer()._journal.dead
    assert left.path.endswith("b.jsonl")
    assert bucket.consumer().drop_gone() == []
    assert bucket.cycle(anew=True) == 0
    # One that comes back is read again; what was applied changes nothing.
    bucket.put("a.jsonl", event(1, {"id": 1}), event(2, {"id": 2}))
    bucket.cycle(anew=True)
    assert bucket.plain() == [{"id": 1}, {"id": 2}, {"id": 3}]


@pytest.mark.clause("ST-253")
def test_a_file_that_comes_back_unchanged_has_its_dead_letters_again(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    path = bucket.put("a.jsonl", event(1, {"id": 1}), event(2, {"id": 2}, "PUT"))
    bucket.put("b.jsonl", event(3, {"id": 3}))
    bucket.cycle()
    path.rename(tmp_path / "aside")
    assert len(bucket.consumer().drop_gone()) == 1
    (tmp_path / "aside").rename(path)
    bucket.cycle(anew=True)
    (file,) = bucket.consumer()._journal.dead
    assert [one.rows for one in file.letters] == [(1,)]
    assert bucket.plain() == [{"id": 1}, {"id": 3}]


def test_no_dead_letters_are_dropped_while_the_place_seems_not_to_be_there(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": 1}), event(2, {"id": 2}, "PUT"))
    bucket.cycle()
    bucket.folder.rename(tmp_path / "aside")
    assert bucket.consumer().drop_gone() == []
    assert len(bucket.consumer()._journal.dead) == 1
