"""What is built from the change feed of a table of events, whose rows have a struct."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mirrorlake import archive, history, read_feed, replay
from tests.apply.events.bucket import Bucket, event
from tests.apply.events.drawn_files import rows_of


def told(table: Path, *names: str) -> list[tuple[Any, ...]]:
    """Columns of the rows of a table, and the uuid of their events."""
    return sorted(
        (*(row[name] for name in names), row["datastream_metadata"]["UUID"])
        for row in rows_of(table)
    )


def filled(bucket: Bucket) -> Path:
    """A table with two versions: 1 is changed, and gets a column, and 2 is deleted."""
    bucket.put("a.jsonl", *(event(at, {"id": at, "v": 1}, uuid=f"{at}") for at in (1, 2)))
    bucket.cycle()
    later = event(3, {"id": 1, "v": 1, "new": 5}, "UPDATE", uuid="3")
    bucket.put("b.jsonl", later, event(4, {"id": 2}, "DELETE", uuid="4"))
    return bucket.root / "Tables" / "public" / "orders"


def test_a_history_an_archive_and_a_copy_are_built_of_rows_with_what_is_told_of_events(
    tmp_path: Path,
) -> None:
    bucket = Bucket(tmp_path)
    orders = filled(bucket)
    targets = [tmp_path / name for name in ("every", "newest", "archive", "copy")]
    for _version in range(2):
        history(orders, targets[0])
        history(orders, targets[1], type=1)
        archive(orders, targets[2])
        replay(orders, targets[3])
        bucket.cycle()
    starts = [(0, 1, "1"), (0, 2, "2"), (1, 1, "3")]
    assert told(targets[0], "__START_AT", "id") == starts
    ends = {row["id"]: row["__END_AT"] for row in rows_of(targets[0]) if row["__START_AT"] == 0}
    assert ends == {1: 1, 2: 1}
    assert told(targets[1], "id", "new") == [(1, 5, "3")]
    assert told(targets[2], "id", "change_type") == [
        (1, "insert", "1"),
        (1, "update_postimage", "3"),
        (1, "update_preimage", "1"),
        (2, "delete", "2"),
        (2, "insert", "2"),
    ]
    assert told(targets[3], "id", "v", "new") == told(orders, "id", "v", "new")


def test_a_history_of_one_column_begins_nothing_where_only_the_event_is_another(
    tmp_path: Path,
) -> None:
    bucket, target = Bucket(tmp_path), tmp_path / "history"
    orders = filled(bucket)
    bucket.cycle()
    history(orders, target, track=["v"])
    assert told(target, "__START_AT", "id", "new") == [(0, 1, 5, "3"), (0, 2, None, "2")]


def test_every_event_of_a_table_that_keeps_them_is_a_row_of_what_is_built_from_it(
    tmp_path: Path,
) -> None:
    bucket = Bucket(tmp_path, is_append=True)
    places = [event(at, {"id": 1, "n": at}, "UPDATE", uuid=f"{at}") for at in (1, 2, 3)]
    bucket.put("a.jsonl", *places)
    bucket.cycle()
    orders = bucket.root / "Tables" / "public" / "orders"
    history(orders, tmp_path / "history", key=["n"])
    archive(orders, tmp_path / "archive")
    for target in ("history", "archive"):
        assert told(tmp_path / target, "id", "n") == [(1, 1, "1"), (1, 2, "2"), (1, 3, "3")]


def test_updates_that_change_nothing_are_found_by_what_is_told_of_their_events_too(
    tmp_path: Path,
) -> None:
    bucket = Bucket(tmp_path)
    orders = filled(bucket)
    bucket.cycle()
    found = read_feed(orders, from_version=1, skip_unchanged=True).to_arrow()
    assert sorted(found["_change_type"].to_pylist()) == [
        "delete",
        "update_postimage",
        "update_preimage",
    ]
