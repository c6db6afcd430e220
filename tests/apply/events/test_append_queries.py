"""The query of the page that finds the last rows in a table of all events."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.apply.events.bucket import Bucket
from tests.apply.events.genuine import SECOND, backfill, change, oracle
from tests.docs.blocks import blocks


def answers(
    rows: Sequence[Mapping[str, Any]], *, deletion_last: bool = False
) -> list[tuple[int, int]]:
    """What the query of the page finds in the rows of a table of all events. deletion_last: with
    the two numbers exchanged."""
    connection = duckdb.connect()
    connection.execute("create schema shop")
    connection.execute(
        "create table shop.orders (id bigint, v bigint, datastream_metadata struct("
        '"UUID" varchar, "SOURCE_TIMESTAMP" bigint, "CHANGE_SEQUENCE_NUMBER" varchar, '
        '"CHANGE_TYPE" varchar, "SORT_KEYS" varchar[]))'
    )
    for row in rows:
        values = {name.lower(): value for name, value in row.items()}
        connection.execute(
            "insert into shop.orders values (?, ?, ?)",
            [values["id"], values["v"], values["datastream_metadata"]],
        )
    (query,) = blocks("how-to/tables-from-events.md", "sql")
    if deletion_last:
        assert "then 1 else 0" in query
        query = query.replace("then 1 else 0", "then 0 else 1")
    found = connection.execute(query).fetchall()
    return sorted(row[:2] for row in found)


@pytest.mark.clause("ST-382")
def test_the_query_of_the_page_finds_the_last_rows_by_their_times(tmp_path: Path) -> None:
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
    rows = bucket.rows("shop/orders")
    assert answers(rows) == [(3, 4), (4, 1)]


BY_POSITION = {
    # The key 1 becomes 2, which is changed within the second; 3 is deleted after the clock was set
    # back; 4 and 5 are exchanged by one statement.
    "mysql": [
        change(10, {"id": 1, "v": 1}, "INSERT"),
        change(20, {"id": 1, "v": 1}, "UPDATE-DELETE"),
        change(20, {"id": 2, "v": 1}, source_timestamp=SECOND + 1000),
        change(30, {"id": 2, "v": 6}),
        change(40, {"id": 3, "v": 3}, "INSERT", source_timestamp=SECOND + 2000),
        change(50, {"id": 3, "v": 3}, "DELETE"),
        change(60, {"id": 4, "v": 4}, "INSERT"),
        change(70, {"id": 5, "v": 5}, "INSERT"),
        change(80, {"id": 4, "v": 4}, "UPDATE-DELETE", uuid="1"),
        change(80, {"id": 5, "v": 4}, uuid="2"),
        change(80, {"id": 5, "v": 5}, "UPDATE-DELETE", uuid="3"),
        change(80, {"id": 4, "v": 5}, uuid="4"),
        backfill({"id": 2, "v": 9}, source_timestamp=SECOND + 1500, uuid="5"),
        backfill({"id": 6, "v": 6}),
    ],
    "oracle": [
        oracle(10, {"ID": 1, "V": 1}, "INSERT"),
        oracle(20, {"ID": 1, "V": 1}, "UPDATE-DELETE"),
        oracle(20, {"ID": 2, "V": 1}, source_timestamp=SECOND + 1000),
        oracle(30, {"ID": 2, "V": 6}),
        oracle(40, {"ID": 3, "V": 3}, "INSERT", source_timestamp=SECOND + 2000),
        oracle(50, {"ID": 3, "V": 3}, "DELETE"),
        oracle(60, {"ID": 4, "V": 4}, "INSERT"),
        oracle(70, {"ID": 5, "V": 5}, "INSERT"),
        oracle(80, {"ID": 4, "V": 4}, "UPDATE-DELETE"),
        oracle(80, {"ID": 5, "V": 4}, rs_id=" 0x000155.00000050.0020 "),
        oracle(80, {"ID": 5, "V": 5}, "UPDATE-DELETE"),
        oracle(80, {"ID": 4, "V": 5}, rs_id=" 0x000155.00000050.0020 "),
        oracle(9, {"ID": 6, "V": 6}, "INSERT", source_timestamp=SECOND + 9000),
    ],
}


@pytest.mark.clause("ST-382", "ST-205", "ST-206", "ST-220")
@pytest.mark.parametrize("source", ["mysql", "oracle"])
def test_the_query_of_the_page_finds_the_last_rows_by_their_positions(
    tmp_path: Path, source: str
) -> None:
    """As merge mode does."""
    kept = Bucket(tmp_path / "kept", is_append=True)
    merged = Bucket(tmp_path / "merged")
    for bucket in (kept, merged):
        bucket.put("a.jsonl", *BY_POSITION[source])
        bucket.cycle()
    table = "SHOP/ORDERS" if source == "oracle" else "shop/orders"
    expected = [(2, 6), (4, 5), (5, 4), (6, 6)]
    assert sorted(tuple(row.values()) for row in merged.plain(table)) == expected
    assert answers(kept.rows(table)) == expected


@pytest.mark.clause("ST-382", "ST-198", "ST-220")
def test_the_query_of_the_page_finds_the_last_documents_by_their_positions(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, is_append=True)

    def document(number: int, name: str, kind: str, time: int) -> dict[str, Any]:
        one = change(number, {"_id": name, "data": {"v": number}}, kind)
        one |= {"read_method": "mongodb-cdc", "sort_keys": [SECOND // 1000, number]}
        place = {"database": "shop", "collection": "orders", "primary_keys": ["_id"]}
        kinds = {"change_type": kind, "is_deleted": kind == "DELETE"}
        return {**one, "source_timestamp": time, "source_metadata": {**place, **kinds}}

    bucket.put(
        "a.jsonl",
        document(9, "1", "CREATE", SECOND + 1000),
        document(10, "1", "UPDATE", SECOND),
        document(11, "2", "CREATE", SECOND + 1000),
        document(12, "2", "DELETE", SECOND),
    )
    bucket.cycle()
    rows = [
        {**row, "id": int(json.loads(row["_id"])), "v": json.loads(row["data"])["v"]}
        for row in bucket.rows("shop/orders")
    ]
    assert answers(rows) == [(1, 10)]


@pytest.mark.clause("ST-382", "ST-212", "ST-214")
@pytest.mark.parametrize("is_salesforce", [False, True], ids=["postgresql", "salesforce"])
@pytest.mark.parametrize("is_turned", [False, True])
def test_the_query_of_the_page_knows_what_is_last_at_one_place(
    tmp_path: Path, *, is_salesforce: bool, is_turned: bool
) -> None:
    """As merge mode does, in whatever order the events were read."""
    place: dict[str, Any] = {"read_method": "postgres-cdc-wal", "lsn": "0/10", "schema": "shop"}
    if is_salesforce:
        place = {"read_method": "salesforce-cdc", "object_name": "orders", "domain": "shop"}
    place |= {"log_file": None, "log_position": None}
    events = [
        change(1, {"id": 1, "v": 1}, "DELETE", **place),
        change(2, {"id": 1, "v": 2}, "INSERT", **place),
    ]
    if is_turned:
        events.reverse()
    kept = Bucket(tmp_path / "kept", is_append=True)
    merged = Bucket(tmp_path / "merged")
    for bucket in (kept, merged):
        for number, event in enumerate(events):
            bucket.put(f"{number}.jsonl", event)
            bucket.cycle()
    expected = [] if is_salesforce else [(1, 2)]
    assert [tuple(row.values()) for row in merged.plain("shop/orders")] == expected
    assert answers(kept.rows("shop/orders"), deletion_last=is_salesforce) == expected
