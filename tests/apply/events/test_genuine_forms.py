"""Forms that genuine files have (section 23 of the specification), as tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.apply.events.bucket import Bucket
from tests.docs.blocks import blocks

SECOND = 1_737_457_695_000


def change(
    number: int, payload: Mapping[str, Any], kind: str = "UPDATE-INSERT", **changed: Any
) -> dict[str, Any]:
    """A change of MySQL at a position of its log. changed: fields of the event or the metadata."""
    head = {
        "uuid": f"u{number}{kind}",
        "read_timestamp": SECOND,
        "source_timestamp": SECOND,
        "object": "shop_orders",
        "read_method": "mysql-cdc-binlog",
        "stream_name": "projects/0/locations/us-central1/streams/s",
    }
    metadata = {
        "table": "orders",
        "database": "shop",
        "primary_keys": ["id"],
        "log_file": "mysql-bin.000459",
        "log_position": number,
        "change_type": kind,
        "is_deleted": kind in {"DELETE", "UPDATE-DELETE"},
    }
    own = {name: changed.pop(name) for name in [*head, "sort_keys"] if name in changed}
    return {**head, **own, "source_metadata": metadata | changed, "payload": dict(payload)}


def backfill(payload: Mapping[str, Any], **changed: Any) -> dict[str, Any]:
    read = {"read_method": "mysql-backfill-fulldump", "log_file": "", "log_position": 0}
    return change(0, payload, "INSERT", **(read | changed))


@pytest.mark.clause("ST-105")
def test_an_update_of_a_key_that_is_not_known_is_an_upsert(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", change(1, {"id": 1, "v": 1}), change(2, {"id": 2, "v": 2}, "UPDATE"))
    bucket.cycle()
    assert bucket.plain("shop/orders") == [{"id": 1, "v": 1}, {"id": 2, "v": 2}]


@pytest.mark.clause("ST-103")
@pytest.mark.parametrize("delay", [0, 1000, -1000])
@pytest.mark.parametrize("is_reversed", [False, True])
def test_how_much_later_the_second_half_of_a_key_change_is_told_to_be_does_not_matter(
    tmp_path: Path, delay: int, *, is_reversed: bool
) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", change(1, {"id": 1, "v": 1}))
    halves = [
        change(9, {"id": 1, "v": 1}, "UPDATE-DELETE"),
        change(9, {"id": 2, "v": 1}, source_timestamp=SECOND + delay),
    ]
    for number, half in enumerate(reversed(halves) if is_reversed else halves):
        bucket.put(f"b{number}.jsonl", half)
        bucket.cycle()
    assert bucket.plain("shop/orders") == [{"id": 2, "v": 1}]


@pytest.mark.clause("ST-370")
def test_every_form_of_a_backfill_of_mysql_is_one(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    forms: list[dict[str, Any]] = [
        {"sort_keys": [SECOND, "", 0]},
        {"sort_keys": [SECOND, 0, 0]},
        {"log_file": None, "log_position": None},
        {"sort_keys": None, "change_type": None},
    ]
    rows = [backfill({"id": n, "v": n}, **form) for n, form in enumerate(forms)]
    bucket.put("a.jsonl", *rows, change(5, {"id": 0, "v": 50}))
    bucket.cycle()
    assert [row["v"] for row in bucket.plain("shop/orders")] == [50, 1, 2, 3]


@pytest.mark.clause("ST-374")
def test_rows_of_one_file_need_not_be_in_the_order_of_the_log(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    places = (222463, 222917, 221884)
    bucket.put("a.jsonl", *(change(place, {"id": 1, "v": place}) for place in places))
    bucket.cycle()
    assert bucket.plain("shop/orders") == [{"id": 1, "v": 222917}]


@pytest.mark.clause("ST-375")
def test_changes_of_one_second_are_told_apart_and_the_time_of_reading_is_not_looked_at(
    tmp_path: Path,
) -> None:
    bucket = Bucket(tmp_path)
    first = change(7, {"id": 1, "v": 7}, read_timestamp=SECOND + 435_000)
    bucket.put("a.jsonl", change(9, {"id": 1, "v": 9}), first)
    bucket.cycle()
    assert bucket.plain("shop/orders") == [{"id": 1, "v": 9}]


@pytest.mark.clause("ST-379")
def test_documents_that_were_read_name_their_key_otherwise(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)

    def document(number: int, data: object, kind: str, method: str) -> dict[str, Any]:
        one = change(number, {"_id": '{"$oid": "6"}', "data": data}, kind)
        one |= {"read_method": method, "sort_keys": [SECOND // 1000, number], "uuid": f"{number}"}
        place = {"database": "shop", "collection": "orders"}
        kinds = {"change_type": kind, "is_deleted": False}
        return {**one, "source_metadata": {**place, **kinds, "primary_key": ["_id"]}}

    bucket.put("a.jsonl", document(0, {"v": 1}, "READ", "mongodb-backfill"))
    bucket.cycle()
    assert [json.loads(row["data"]) for row in bucket.plain("shop/orders")] == [{"v": 1}]
    # The second of the sort values are nanoseconds in one form and an increment in another.
    late = document(999_999_999, {"v": 3}, "UPDATE", "mongodb-change-stream")
    bucket.put("b.jsonl", late, document(1_000, {"v": 2}, "UPDATE", "mongodb-cdc"))
    bucket.cycle()
    assert [json.loads(row["data"]) for row in bucket.plain("shop/orders")] == [{"v": 3}]


@pytest.mark.clause("ST-381")
def test_defects_of_other_consumers_are_not_those_of_this_one(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    exact = {"d": 12345678901234567.89, "id": 1}
    text = json.dumps(change(999_999, exact)).replace(str(exact["d"]), "12345678901234567.89")
    bucket.put("a.jsonl", text, change(1_000_000, {"id": 1, "d": 2}))
    bucket.cycle()
    (row,) = bucket.rows("shop/orders")
    assert row["d"] == "2"  # by position as a number
    uuid = row["datastream_metadata"]["UUID"]
    bucket.put("b.jsonl", text)
    bucket.cycle()
    (row,) = bucket.rows("shop/orders")
    assert row["datastream_metadata"] == {"UUID": uuid, "SOURCE_TIMESTAMP": SECOND}
    # A backfill repairs what a gap in the log has left.
    later = SECOND + 3_600_123
    bucket.put("c.jsonl", backfill({"id": 1, "d": 3}, source_timestamp=later, uuid="r"))
    bucket.cycle()
    (row,) = bucket.rows("shop/orders")
    assert (row["d"], row["datastream_metadata"]["SOURCE_TIMESTAMP"]) == ("3", later)
    schema = {"fields": [
        {"name": "payload", "type": {"type": "record", "name": "payload", "fields": [
            {"name": "id", "type": ["null", "long"]},
            {"name": "d", "type": ["null", {
                "type": "bytes", "logicalType": "decimal", "precision": 19, "scale": 2}]},
            {"name": "t", "type": ["null", {
                "type": "long", "logicalType": "timestamp-micros"}]},
        ]}},
    ], "type": "record", "name": "x"}  # fmt: skip
    key = "4" * 40
    folder = bucket.put(f"{key}_mysql-cdc-binlog_1_0_0.jsonl").parent
    (folder / f"{key}.avsc").write_text(json.dumps(schema))
    typed = text.replace('"orders"', '"typed"').replace('"id": 1', '"id": 1, "t": "T"')
    typed = typed.replace('"T"', '"2026-11-23T10:05:00.000001Z"')
    (folder / f"{key}_mysql-cdc-binlog_1_0_0.jsonl").write_text(typed)
    bucket.cycle()
    (row,) = bucket.rows("shop/typed")
    assert (str(row["d"]), row["t"].microsecond) == ("12345678901234567.89", 1)


@pytest.mark.clause("ST-382")
def test_the_query_of_the_page_finds_the_last_rows_of_a_table_of_all_events(
    tmp_path: Path,
) -> None:
    bucket = Bucket(tmp_path, is_append=True)
    bucket.put(
        "a.jsonl",
        change(1, {"id": 1, "v": 1}),
        change(2, {"id": 2, "v": 2}),
        change(3, {"id": 3, "v": 3}),
        change(9, {"id": 1, "v": 1}, "UPDATE-DELETE"),
        change(9, {"id": 4, "v": 1}, source_timestamp=SECOND + 1000),
        change(10, {"id": 2, "v": 2}, "DELETE"),
        change(11, {"id": 3, "v": 4}),
    )
    bucket.cycle()
    (query,) = blocks("how-to/tables-from-events.md", "sql")
    orders = bucket.rows("shop/orders")
    connection = duckdb.connect()
    connection.execute("create schema shop")
    connection.execute(
        "create table shop.orders (id bigint, v bigint, datastream_metadata struct("
        '"UUID" varchar, "SOURCE_TIMESTAMP" bigint, "CHANGE_SEQUENCE_NUMBER" varchar, '
        '"CHANGE_TYPE" varchar, "SORT_KEYS" varchar[]))'
    )
    for row in orders:
        connection.execute(
            "insert into shop.orders values (?, ?, ?)",
            [row["id"], row["v"], row["datastream_metadata"]],
        )
    found = connection.execute(query).fetchall()
    assert sorted(row[:2] for row in found) == [(3, 4), (4, 1)]
