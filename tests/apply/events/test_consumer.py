"""Which files are found, read again, and remembered; what cannot be applied."""

from __future__ import annotations

import gzip
from datetime import timedelta
from pathlib import Path

import pytest

from mirrorlake.apply.events import journal as journals
from tests.apply.events.bucket import Bucket, event


@pytest.mark.clause("ST-178", "ST-179", "ST-182")
def test_late_files_are_found_within_the_look_back_and_old_folders_are_not_listed(
    tmp_path: Path,
) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": 1}), minute="2026/11/01/00/00")
    bucket.put("b.jsonl", event(2, {"id": 2}), minute="2026/11/20/10/05")
    bucket.put("marker.jsonl", minute="2026/11/20/10/06")  # of zero bytes
    assert bucket.cycle() == 2
    bucket.opened.clear()
    bucket.put("late.jsonl", event(3, {"id": 3}), minute="2026/11/17/00/00")
    bucket.put("too_late.jsonl", event(4, {"id": 4}), minute="2026/11/16/23/59")
    assert bucket.cycle() == 1
    assert [one for one in bucket.opened if one.endswith(".jsonl")] == [
        "public_orders/2026/11/17/00/00/late.jsonl"
    ]
    assert "public_orders/2026/11/01" not in bucket.opened
    assert [row["id"] for row in bucket.plain()] == [1, 2, 3]
    assert bucket.cycle() == 0
    assert bucket.cycle(anew=True) == 0


def test_a_look_back_reaches_from_the_last_look_where_that_was_earlier(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": 1}), minute="2999/01/01/00/00")  # from a wrong clock
    bucket.cycle()
    bucket.clock.moment += timedelta(days=30)
    bucket.put("b.jsonl", event(2, {"id": 2}), minute="2026/11/21/00/00")
    assert bucket.cycle(anew=True) == 1


def test_what_is_remembered_does_not_grow_with_the_age_of_the_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "MOST_RECORDS", 6)
    bucket = Bucket(tmp_path)
    for number in range(15):
        day = f"2026/01/{1 + number:02}/00/00"
        bucket.put("a.jsonl", event(number + 1, {"id": number}), minute=day)
        bucket.cycle()
    journal = bucket.consumer()._journal
    assert len(journal.numbers) <= 6
    assert len(journal.files) < 12
    assert len(bucket.rows()) == 15


@pytest.mark.clause("ST-253")
def test_what_cannot_be_applied_is_told_and_everything_else_goes_on(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put(
        "a.jsonl",
        event(1, {"id": 1}),
        event(2, {"id": 2}, "MOVE"),
        event(3, {"id": None}),
        event(4, {}),
        event(5, {"id": 5}, lsn="nowhere"),
        event(6, {"id": 6}, table=None),
        "no JSON",
        event(7, {"id": 7}),
    )
    (bucket.folder / "b.avro").write_bytes(b"Obj\x01 and no header")
    (bucket.folder / "c.jsonl.gz").write_bytes(gzip.compress(b"{}" * 99)[:-9])
    assert bucket.cycle() == 3
    assert [row["id"] for row in bucket.plain()] == [1, 7]
    dead = {file.path.rpartition("/")[2]: file for file in bucket.consumer()._journal.dead}
    assert {row for one in dead["a.jsonl"].letters for row in one.rows} == {1, 2, 3, 4, 5, 6}
    assert [one.is_file for one in dead["b.avro"].letters] == [True]
    assert [one.is_file for one in dead["c.jsonl.gz"].letters] == [True]


@pytest.mark.clause("ST-253", "ST-254")
def test_a_replay_applies_what_was_mended_and_obeys_the_order(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put(
        "a.jsonl",
        event(1, {"id": 1, "v": 1}),
        event(3, {"id": 2, "v": 3}, "PUT"),
        event(2, {"id": 3, "v": 2}),
    )
    bucket.cycle()
    bucket.put("b.jsonl", event(9, {"id": 3, "v": 9}))
    bucket.cycle()
    consumer = bucket.consumer()
    assert consumer.replay() == 1
    assert [file.retries for file in consumer._journal.dead] == [1]
    bucket.put(
        "a.jsonl",
        event(1, {"id": 1, "v": 1}),
        event(3, {"id": 2, "v": 3}),
        event(2, {"id": 3, "v": 2}),
    )
    assert bucket.consumer().replay() == 1
    assert bucket.plain() == [{"id": 1, "v": 1}, {"id": 2, "v": 3}, {"id": 3, "v": 9}]
    assert bucket.consumer()._journal.dead == []


def test_a_file_that_grows_is_read_again(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    first, second = event(1, {"id": 1}), event(2, {"id": 2})
    bucket.put("a.jsonl", first)
    bucket.cycle()
    bucket.put("a.jsonl", first, second)
    assert bucket.cycle() == 1
    assert [row["id"] for row in bucket.plain()] == [1, 2]


def test_values_without_a_schema_file_have_the_type_that_holds_all_of_them(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": 1, "v": 1}))
    bucket.put("b.jsonl", event(2, {"id": 2, "v": 1.5}))
    bucket.put("c.jsonl", event(3, {"id": 3, "v": None}))
    bucket.cycle()
    bucket.put("d.jsonl", event(4, {"id": 4, "v": 4}))
    bucket.cycle(anew=True)
    assert [row["v"] for row in bucket.plain()] == ["1", "1.5", None, "4"]


def test_files_elsewhere_than_in_minute_folders_are_found(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": 1}), minute="")
    bucket.put("b.jsonl", event(2, {"id": 2}), minute="part=1/2026")
    bucket.cycle()
    bucket.put("c.jsonl", event(3, {"id": 3}), minute="part=1/2026")
    bucket.cycle(anew=True)
    assert [row["id"] for row in bucket.plain()] == [1, 2, 3]
