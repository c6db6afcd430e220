"""Truncations as events (ST-256) delete the rows of earlier changes, in any order of the files."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlake.feed.bounds import FeedRequest
from mirrorlake.feed.reader import Feed
from mirrorlake.model.crash_points import CrashPoint
from tests.apply.events.bucket import Bucket, event
from tests.apply.events.drawn_files import as_written
from tests.apply.events.killed_tables import Killed, rows_after
from tests.mirror.event_order import drawn
from tests.mirror.event_order.model import Event, table_of
from tests.profiles import tries


@st.composite
def arrivals(draw: st.DrawFn, source: str) -> tuple[list[Event], list[list[Event]]]:
    """As those without truncations, with some."""
    events, batches = draw(drawn.arrivals(source))
    for one in draw(st.lists(drawn.event(source), min_size=1, max_size=2)):
        emptied = {**one, "key": None, "backfill": False, "deletion": True, "truncation": True}
        events.append(emptied)
        for _time in range(draw(st.integers(1, 2))):
            batch = draw(st.sampled_from(batches))
            batch.insert(draw(st.integers(0, len(batch))), emptied)
    return events, batches


def expected(source: str, events: Sequence[Event]) -> dict[int, int]:
    """A truncation is a deletion of each key, of no transaction."""
    each: list[Event] = []
    for one in as_written(events):
        if one.get("truncation"):
            each += [{**one, "key": key, "tx_id": None, "row_id": None} for key in range(1, 4)]
        else:
            each.append(one)
    return table_of(source, each)


@pytest.mark.full
@pytest.mark.clause("ST-256")
@pytest.mark.parametrize("source", drawn.SOURCES)
@settings(max_examples=tries(12, long=3_000), deadline=None)
@given(data=st.data())
def test_truncations_in_any_order_with_crashes_make_the_same_table(
    source: str, data: st.DataObject
) -> None:
    events, batches = data.draw(arrivals(source))
    rows = rows_after(data, source, batches)
    assert len(rows) == len({row["id"] for row in rows})
    assert {row["id"]: row["v"] for row in rows} == expected(source, events)


def truncation(number: int, key: Sequence[str] = ("id",)) -> dict[str, Any]:
    return event(number, {"id": None, "v": None}, "TRUNCATE", key, is_deleted=True)


def changes(bucket: Bucket, version: int) -> list[tuple[str, int]]:
    """What the feed tells of one version."""
    request = FeedRequest.of(
        str(bucket.root / "Tables/public/orders"), from_version=version, to_version=version
    )
    found = Feed(request).reader(lambda rows: rows).read_all().to_pylist()
    return sorted((row["_change_type"], row["id"]) for row in found)


def test_a_truncation_is_one_commit_that_deletes_every_row_and_later_ones_stay(
    tmp_path: Path,
) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", *(event(n, {"id": n, "v": n}) for n in range(1, 5)))
    bucket.cycle()
    bucket.put("b.jsonl", event(5, {"id": 4}, "DELETE"))
    bucket.cycle()
    bucket.put("c.jsonl", event(8, {"id": 2, "v": 8}), truncation(7))
    bucket.cycle()
    assert bucket.plain() == [{"id": 2, "v": 8}]
    # A deletion vector had deleted key 4 already.
    assert changes(bucket, 2) == [("delete", 1), ("delete", 2), ("delete", 3)]
    assert changes(bucket, 3) == [("insert", 2)]
    bucket.put("d.jsonl", event(6, {"id": 3, "v": 6}))
    bucket.cycle(anew=True)
    assert bucket.plain() == [{"id": 2, "v": 8}]


def test_a_truncation_that_comes_late_leaves_later_rows_as_they_are(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    for numbers in ((1, 8), (2, 9), (7,)):
        bucket.put(f"{numbers}.jsonl", *(event(n, {"id": n, "v": n}) for n in numbers))
        bucket.cycle()
    bucket.put("late.jsonl", truncation(5))
    bucket.cycle()
    assert bucket.plain() == [{"id": n, "v": n} for n in (7, 8, 9)]
    # Both files of what is remembered of them are one commit each.
    assert [changes(bucket, version) for version in (3, 4)] == [[("delete", 1)], [("delete", 2)]]


def test_a_killed_truncation_is_repeated(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": 1, "v": 1}), event(9, {"id": 9, "v": 9}))
    bucket.cycle()
    bucket.put("b.jsonl", truncation(5), event(6, {"id": 1, "v": 6}))

    def reached(point: CrashPoint) -> None:
        if point is CrashPoint.EVENTS_COMMITTED:
            raise Killed

    with suppress(Killed):
        bucket.cycle(reached)
    assert bucket.plain() == [{"id": 9, "v": 9}]
    bucket.cycle(anew=True)
    assert bucket.plain() == [{"id": 1, "v": 6}, {"id": 9, "v": 9}]


def test_a_table_that_keeps_every_event_keeps_truncations(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, is_append=True)
    bucket.put("a.jsonl", event(1, {"id": 1, "v": 1}), truncation(2), truncation(2))
    bucket.cycle()
    told = [row["datastream_metadata"]["CHANGE_TYPE"] for row in bucket.rows()]
    assert sorted(told) == ["INSERT", "TRUNCATE"]


def test_a_truncation_of_a_table_without_key_is_a_row_that_is_deleted(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", event(1, {"id": 1, "v": 1}, key=()), truncation(2, ()))
    bucket.cycle()
    found = [(row["id"], row["datastream_metadata"]["IS_DELETED"]) for row in bucket.rows()]
    assert sorted(found, key=repr) == [(1, False), (None, True)]
