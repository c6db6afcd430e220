"""Truncations as events (ST-256) delete the rows of earlier changes, in any order of the files."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.apply.events.batches import divided
from mirrorlake.delta.schema import parse
from mirrorlake.feed.bounds import FeedRequest
from mirrorlake.feed.reader import Feed
from mirrorlake.model.crash_points import CrashPoint
from tests.apply.events.bucket import Bucket, event
from tests.apply.events.genuine import avro, oracle
from tests.apply.events.killed_tables import Killed


def truncation(number: int, key: Sequence[str] = ("id",)) -> dict[str, Any]:
    return event(number, {"id": None, "v": None}, "TRUNCATE", key, is_deleted=True)


def changes(bucket: Bucket, version: int) -> list[tuple[str, int]]:
    """What the feed tells of one version."""
    request = FeedRequest.of(
        str(bucket.root / "Tables/public/orders"), from_version=version, to_version=version
    )
    found = Feed(request).reader(lambda rows: rows).read_all().to_pylist()
    return sorted((row["_change_type"], row["id"]) for row in found)


@pytest.mark.clause("ST-256")
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


def test_a_backfill_that_comes_again_before_a_killed_truncation_brings_no_row_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row was deleted by the first commit, before the truncation is remembered."""
    monkeypatch.setattr(divided, "BATCH_FILES", 1)
    bucket = Bucket(tmp_path)
    row = event(1, {"id": 1, "v": 1}, read_method="postgresql-backfill-fulldump")
    bucket.put("a.jsonl", row, event(9, {"id": 9, "v": 9}))
    bucket.cycle()
    bucket.put("c.jsonl", truncation(5))

    def reached(point: CrashPoint) -> None:
        if point is CrashPoint.EVENTS_COMMITTED:
            raise Killed

    with suppress(Killed):
        bucket.cycle(reached)
    bucket.put("b.jsonl", row)
    bucket.cycle(anew=True)
    assert bucket.plain() == [{"id": 9, "v": 9}]


def test_a_late_truncation_brings_no_row_back_that_a_rollback_has_deleted(tmp_path: Path) -> None:
    """The deletion of Oracle has no key of its own."""
    bucket = Bucket(tmp_path)
    inserted = {"row_id": "AA", "tx_id": "T1"}
    bucket.put("a.jsonl", oracle(30, {"ID": 1, "V": 1}, "INSERT", **inserted))
    bucket.put("b.jsonl", oracle(40, {"ID": None, "V": None}, "DELETE", **inserted))
    bucket.put("c.jsonl", oracle(50, {"ID": 9, "V": 9}, "INSERT", row_id="AB", tx_id="T2"))
    bucket.cycle()
    late = {"row_id": None, "tx_id": "T0", "is_deleted": True}
    bucket.put("d.jsonl", oracle(20, {"ID": None, "V": None}, "TRUNCATE", **late))
    bucket.cycle()
    assert [row["ID"] for row in bucket.plain("SHOP/ORDERS")] == [9]


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


@pytest.mark.clause("ST-256", "ST-262")
@pytest.mark.parametrize("comes_first", [True, False])
def test_a_file_of_truncations_alone_says_nothing_of_the_types_of_columns(
    tmp_path: Path, comes_first: bool
) -> None:
    """Read before there is a table it could not, so that the order of files would count."""
    bucket = Bucket(tmp_path)
    files = [
        avro([truncation(7)], id="long", v="double"),
        avro([event(8, {"id": 1, "v": 8})], id="int", v="int"),
    ]
    for number, content in enumerate(files if comes_first else reversed(files)):
        bucket.put(f"{number}.avro").write_bytes(content)
        bucket.cycle()
    assert bucket.plain() == [{"id": 1, "v": 8}]
    schema = parse(bucket.log().snapshot().metadata).schema
    assert [str(schema[name].type) for name in ("id", "v")] == ["integer", "integer"]
