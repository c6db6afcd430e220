"""Old files of a bucket cost nothing: neither to list their folders, nor to remember them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from mirrorlake.apply.events import journal as journals
from tests.apply.events.bucket import Bucket, event

OLD = ["2019/12/31/23/59", "2026/10/01/00/00", "2026/10/02/00/00", "2026/11/01/00/00"]
NEW = "2026/11/20/10/05"


def filled(bucket: Bucket) -> None:
    for number, minute in enumerate([*OLD, NEW]):
        bucket.put("a.jsonl", event(number, {"id": number}), minute=minute)
    assert bucket.cycle() == len(OLD) + 1


def listed(bucket: Bucket) -> set[str]:
    """The folders below the object that one cycle lists."""
    bucket.opened.clear()
    bucket.cycle()
    return {one.removeprefix("public_orders/") for one in bucket.opened if "/" in one}


@pytest.mark.clause("ST-178")
def test_years_and_months_of_past_days_are_listed_once_a_day(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    filled(bucket)
    present = {"2026", "2026/11", "2026/11/20"}
    past = {"2019", "2019/12", "2026/10"}
    assert listed(bucket) & (present | past) == present | past
    assert listed(bucket) & (present | past) == present
    # A late file within the look-back is found all the same.
    bucket.put("late.jsonl", event(9, {"id": 9}), minute="2026/11/18/00/00")
    assert bucket.cycle() == 1
    # The next day's file moves the look-back, and the others are looked at again.
    bucket.clock.moment += timedelta(days=1)
    bucket.put("next.jsonl", event(10, {"id": 10}), minute="2026/11/21/00/00")
    bucket.put("loose.jsonl", event(11, {"id": 11}), minute="2019/12")
    assert bucket.cycle() == 1
    assert bucket.cycle() == 1
    assert {row["id"] for row in bucket.plain()} == {*range(5), 9, 10, 11}


@pytest.mark.clause("ST-178")
def test_folders_that_have_more_than_past_days_are_listed_each_time(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    filled(bucket)
    bucket.put("loose.jsonl", event(8, {"id": 8}), minute="2026/10")
    (bucket.folder / "public_orders/2018").mkdir()  # of which the months are to come
    bucket.cycle()
    bucket.cycle()
    bucket.put("other.jsonl", event(9, {"id": 9}), minute="2026/10")
    bucket.put("first.jsonl", event(10, {"id": 10}), minute="2018/part=1")
    assert bucket.cycle() == 2


def test_after_the_first_pass_over_a_bucket_its_old_files_are_not_in_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "MOST_PAST", 2)
    bucket = Bucket(tmp_path)
    filled(bucket)
    journal = bucket.consumer()._journal
    assert [file.minute for file in journal.files.values()] == [NEW.replace("/", "")]
    assert len(journal.numbers) == 1
    assert bucket.cycle() == bucket.cycle(anew=True) == 0
    assert {row["id"] for row in bucket.plain()} == set(range(5))
