"""Forms that genuine files have (section 23 of the specification), as tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.events.paths import object_name
from mirrorlake.events.reading import read_events
from tests.apply.events.bucket import Bucket
from tests.apply.events.genuine import SECOND, avro, backfill, change, oracle


def without(one: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in one.items() if name not in names}


def put(
    bucket: Bucket, form: str, name: str, *events: Mapping[str, Any], of: str = "public_orders"
) -> Path:
    """Write a file in one of the two formats. of: the object."""
    if form == "json":
        return bucket.put(f"{name}.jsonl", *events, of=of)
    path = bucket.put(f"{name}.avro", of=of)
    path.write_bytes(avro(events))
    return path


FORMS = pytest.mark.parametrize("form", ["json", "avro"])


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


@FORMS
@pytest.mark.clause("ST-037", "ST-377")
def test_an_object_is_not_taken_apart_and_a_stream_is_named_in_full(
    tmp_path: Path, form: str
) -> None:
    stream = "projects/402918312233/locations/us-central1/streams/inventory"
    # The names of two of these objects differ by a dot alone.
    places = [("demo", "inventory.voters"), ("demo_inventory", "voters"), ("demo", "inventory")]
    bucket = Bucket(tmp_path)
    files = []
    for number, (database, table) in enumerate(places):
        name = object_name(database, table)
        named = {"database": database, "table": table, "object": name, "stream_name": stream}
        one = change(number, {"id": number, "v": 1}, "INSERT", **named)
        file = f"{'5' * 40}_mysql-cdc-binlog_1_6_{number}"
        files.append(put(bucket, form, file, one, of=name))
    assert object_name(*places[0]) == "demo_inventory.voters"
    bucket.cycle()
    assert not bucket.errors
    tables = [str(one) for one, _done in bucket.done]
    assert sorted(tables) == ["demo.inventory", "demo.inventory_voters", "demo_inventory.voters"]
    rows = [bucket.plain(table.replace(".", "/")) for table in tables]
    assert sorted(row["id"] for (row,) in rows) == [0, 1, 2]
    assert bucket.plain("demo/inventory_voters") == [{"id": 0, "v": 1}]
    with files[0].open("rb") as opened:
        (batch,) = read_events(opened)
        assert batch.head.column("stream_name").to_pylist() == [stream]
        assert batch.head.column("object").to_pylist() == ["demo_inventory.voters"]


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


@FORMS
@pytest.mark.clause("ST-371", "ST-210", "ST-230")
def test_files_of_oracle_have_blanks_and_transactions_in_base64(tmp_path: Path, form: str) -> None:
    bucket = Bucket(tmp_path)
    record = "0x000155.00000ccc."
    # As texts the first one would be the last: `fff` with a blank before it, `1000` without one.
    put(bucket, form, "a", oracle(70, {"ID": 1, "V": 3}, rs_id=f"{record}1000", ssn=0))
    put(bucket, form, "b", oracle(70, {"ID": 1, "V": 1}, rs_id=f" {record}0fff ", ssn=0))
    put(bucket, form, "c", oracle(70, {"ID": 1, "V": 2}, rs_id=f"{record}0fff ", ssn=1))
    bucket.cycle()
    assert bucket.plain("SHOP/ORDERS") == [{"ID": 1, "V": 3}]
    # A deletion that names its row by ROWID alone, of the same transaction as the insert.
    put(bucket, form, "d", oracle(90, {"ID": None, "V": None}, "DELETE", tx_id="CgAQAHMCAAE="))
    put(bucket, form, "e", oracle(80, {"ID": 2, "V": 1}, "INSERT", tx_id="CgAQAHMCAAE="))
    put(bucket, form, "f", oracle(81, {"ID": 3, "V": 1}, "INSERT", tx_id="CgAQAHMCAAI="))
    bucket.cycle()
    assert bucket.plain("SHOP/ORDERS") == [{"ID": 1, "V": 3}, {"ID": 3, "V": 1}]
    assert bucket.consumer()._journal.dead == []


@FORMS
@pytest.mark.clause("ST-230", "ST-239")
def test_a_deletion_of_oracle_without_its_key_is_kept_as_a_row_where_every_event_is(
    tmp_path: Path, form: str
) -> None:
    bucket = Bucket(tmp_path, is_append=True)
    put(bucket, form, "a", oracle(80, {"ID": 2, "V": 1}, "INSERT"))
    put(bucket, form, "b", oracle(90, {"ID": None, "V": None}, "DELETE"))
    put(bucket, form, "c", oracle(91, {"ID": None, "V": None}, "DELETE", row_id=None))
    bucket.cycle()
    assert bucket.plain("SHOP/ORDERS") == [{"ID": 2, "V": 1}, {"ID": None, "V": None}]
    (file,) = bucket.consumer()._journal.dead
    assert [one.reason for one in file.letters] == ["the key column ID is null"]


@FORMS
@pytest.mark.clause("ST-250")
def test_a_table_of_oracle_without_key_may_have_the_ids_of_its_rows_as_one(
    tmp_path: Path, form: str
) -> None:
    bucket = Bucket(tmp_path, keys={"SHOP.ORDERS": ["ROWID"]})

    def change(scn: int, row: str | None, payload: Mapping[str, Any], kind: str) -> dict[str, Any]:
        return oracle(scn, payload, kind, row_id=row, primary_keys=None)

    put(bucket, form, "a", change(5, "AAA", {"V": 1}, "INSERT"))
    put(
        bucket, form, "b", change(6, "AAB", {"V": 2}, "INSERT"), change(7, None, {"V": 9}, "INSERT")
    )
    bucket.cycle()
    put(bucket, form, "c", change(9, "AAB", {"V": None}, "DELETE"))
    put(bucket, form, "d", change(8, "AAA", {"V": 3}, "UPDATE-INSERT"))
    bucket.cycle()
    assert bucket.plain("SHOP/ORDERS") == [{"V": 3, "ROWID": "AAA"}]
    (file,) = bucket.consumer()._journal.dead
    assert [one.reason for one in file.letters] == ["the key column ROWID is null"]


@FORMS
@pytest.mark.clause("ST-371")
def test_every_form_of_a_backfill_of_oracle_is_one(tmp_path: Path, form: str) -> None:
    bucket = Bucket(tmp_path)
    read = {"read_method": "oracle-backfill", "rs_id": "", "ssn": 0, "log_file": ""}
    rows = [
        # Of March 2021: the second of the sort keys has no relation to anything.
        oracle(900, {"ID": 1, "V": 1}, None, **read, sort_keys=[SECOND, 7, "", 0], tx_id=None),
        oracle(900, {"ID": 2, "V": 2}, None, **read, sort_keys=[SECOND, 99999, "", 0], tx_id=None),
        oracle(900, {"ID": 3, "V": 3}, "INSERT", **read, sort_keys=[SECOND, 900, "", 0]),
        oracle(900, {"ID": 4, "V": 4}, None, **(read | {"rs_id": None, "ssn": None}))
        if form == "json"
        else oracle(900, {"ID": 4, "V": 4}, None, **read),
    ]
    put(bucket, form, "a", *rows)
    put(bucket, form, "b", oracle(5, {"ID": 2, "V": 20}), oracle(6, {"ID": 3, "V": 3}, "DELETE"))
    bucket.cycle()
    expected = [{"ID": 1, "V": 1}, {"ID": 2, "V": 20}, {"ID": 4, "V": 4}]
    assert bucket.plain("SHOP/ORDERS") == expected
    assert bucket.consumer()._journal.dead == []


@FORMS
@pytest.mark.clause("ST-368", "ST-014")
def test_fields_are_in_any_order_and_missing_as_in_files_of_2020_and_2021(
    tmp_path: Path, form: str
) -> None:
    bucket = Bucket(tmp_path)
    last = oracle(50, {"ID": 1, "V": 2})
    assert list(last)[-1] == "sort_keys"
    put(bucket, form, "2021", last, oracle(40, {"ID": 1, "V": 1}))
    dump = oracle(0, {"ID": 1, "V": 0}, None, read_method="oracle_dump", rs_id="", ssn=0)
    other = oracle(0, {"ID": 2, "V": 0}, None, read_method="oracle_dump", rs_id="", ssn=0)
    put(bucket, form, "2020", *(without(one, "schema_key", "sort_keys") for one in (dump, other)))
    place = change(3, {"id": 1, "v": 3}), change(1_000, {"id": 1, "v": 4})
    assert "sort_keys" not in place[0]
    put(bucket, form, "mysql", *place)
    bucket.cycle()
    assert bucket.plain("SHOP/ORDERS") == [{"ID": 1, "V": 2}, {"ID": 2, "V": 0}]
    assert bucket.plain("shop/orders") == [{"id": 1, "v": 4}]


@FORMS
@pytest.mark.clause("ST-372")
def test_files_of_postgresql_have_numbers_of_transactions_and_nested_json(
    tmp_path: Path, form: str
) -> None:
    bucket = Bucket(tmp_path)

    def one(lsn: str, row: int, table: str = "orders", *key: str) -> dict[str, Any]:
        found = change(row, {"id": 1, "doc": {"a": [row, None]}, "t": "2021-05-16T01:13:01.500Z"})
        place = {"schema": "public", "table": table, "is_deleted": False, "change_type": "UPDATE"}
        place |= {"tx_id": 770 + row, "lsn": lsn, "primary_keys": list(key)}
        found |= {"read_method": "postgresql-cdc", "uuid": f"{table}{row}", "schema_key": "6" * 40}
        return {**found, "sort_keys": [SECOND, lsn], "source_metadata": place}

    files = {
        "orders": [one("16/CB002DB0", 2, "orders", "id"), one("9/FFFFFFFF", 1, "orders", "id")],
        "keyless": [one("16/CB002DB0", 1, "keyless"), one("16/CB002DB0", 2, "keyless")],
    }
    moment = {"type": "long", "logicalType": "timestamp-micros"}
    document = {"type": "string", "logicalType": "json"}
    kinds = {"id": "long", "doc": document, "t": moment}
    for number, (name, events) in enumerate(files.items()):
        key = f"{number}" * 40
        path = bucket.put(f"{key}_postgresql-cdc_1_0_0.{form}l", *events)
        if form == "json":
            fields = [{"name": name, "type": ["null", kind]} for name, kind in kinds.items()]
            of_payload = {"type": "record", "name": "payload", "fields": fields}
            told = {"type": "record", "name": name, "fields": [
                {"name": "payload", "type": of_payload}]}  # fmt: skip
            (path.parent / f"{key}.avsc").write_text(json.dumps(told))
            continue
        path.unlink()
        for event in events:
            event["payload"] |= {"doc": json.dumps(event["payload"]["doc"])}
            event["payload"] |= {"t": datetime(2021, 5, 16, 1, 13, 1, 500_000, UTC)}
        path.with_suffix(".avro").write_bytes(avro(events, **kinds))
    bucket.cycle()
    assert bucket.consumer()._journal.dead == []
    (row,) = bucket.plain("public/orders")
    assert json.loads(row["doc"]) == {"a": [2, None]}
    assert row["t"].replace(tzinfo=UTC) == datetime(2021, 5, 16, 1, 13, 1, 500_000, UTC)
    keyless = bucket.rows("public/keyless")
    assert sorted(json.loads(row["doc"])["a"][0] for row in keyless) == [1, 2]
    assert [row["datastream_metadata"]["IS_DELETED"] for row in keyless] == [False, False]


DOCUMENT = (
    '{"at": {"$date": "2026-11-23T10:05:00Z"}, "d": {"$numberDecimal": "1.10"}, '
    '"l": {"$numberLong": "9007199254740993"}, "least": {"$minKey": 1}, "most": {"$maxKey": 1}, '
    '"r": {"$regex": "^a", "$options": "i"}, "ts": {"$timestamp": {"t": 1, "i": 2}}, '
    '"b": {"$binary": {"base64": "AP8=", "subType": "00"}}, "n": NaN, "i": [Infinity, -Infinity]}'
)


@pytest.mark.clause("ST-160")
@pytest.mark.parametrize("as_text", [False, True], ids=["object", "text"])
@pytest.mark.parametrize("form", ["json", "typed", "avro"])
def test_documents_are_extended_json_with_bare_numbers_that_are_none(
    tmp_path: Path, form: str, *, as_text: bool
) -> None:
    bucket = Bucket(tmp_path)
    names = ['{"$oid": "65f0a1b2c3d4e5f6a7b8c9d0"}', "plain", "17"]

    def document(number: int, name: str) -> dict[str, Any]:
        one = change(number, {"_id": name, "data": "DATA"}) | {"uuid": f"m{number}"}
        place = {"database": "shop", "collection": "orders", "change_type": "CREATE"}
        place |= {"is_deleted": False, "primary_keys": ["_id"]}
        method = {"read_method": "mongodb-cdc", "sort_keys": [SECOND // 1000, number]}
        return {**one, **method, "source_metadata": place}

    events = [document(number, name) for number, name in enumerate(names)]
    if form == "avro":
        for event in events:
            event["payload"]["data"] = DOCUMENT
        kind = "string" if as_text else {"type": "string", "logicalType": "json"}
        bucket.put("a.avro").write_bytes(avro(events, data=kind))
    else:
        key = "7" * 40
        data = json.dumps(DOCUMENT) if as_text else DOCUMENT
        # A scalar `_id` is a scalar.
        lines = [json.dumps(e).replace('"DATA"', data).replace('"17"', "17") for e in events]
        path = bucket.put(f"{key}_mongodb-cdc_1_0_0.jsonl", *lines)
        if form == "typed":
            fields = [{"name": "_id", "type": ["null", "string"]}, {"name": "data", "type": [
                "null", {"type": "string", "logicalType": "json"}]}]  # fmt: skip
            of_payload = {"type": "record", "name": "payload", "fields": fields}
            told = {"type": "record", "name": "x", "fields": [
                {"name": "payload", "type": of_payload}]}  # fmt: skip
            (path.parent / f"{key}.avsc").write_text(json.dumps(told))
    bucket.cycle()
    assert bucket.consumer()._journal.dead == []
    rows = bucket.plain("shop/orders")
    assert sorted(row["_id"] for row in rows) == sorted(names)
    for row in rows:
        # Texts, because no number equals what is none.
        found = json.loads(row["data"], parse_constant=str, parse_int=str, parse_float=str)
        assert found == json.loads(DOCUMENT, parse_constant=str, parse_int=str, parse_float=str)


@FORMS
@pytest.mark.clause("ST-231")
@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_row_that_was_read_after_a_rollback_stands_at_its_own_place_in_the_log(
    tmp_path: Path, form: str, *, is_reversed: bool
) -> None:
    bucket = Bucket(tmp_path)
    again = {"read_method": "oracle-supplementation", "tx_id": None}
    events = [
        oracle(70, {"ID": 1, "V": 1}, "INSERT"),
        oracle(80, {"ID": 1, "V": 2}, "INSERT", **again),
        oracle(90, {"ID": 1, "V": 3}),
        oracle(71, {"ID": 2, "V": 1}, "INSERT"),
        oracle(81, {"ID": 2, "V": 2}, "INSERT", **again),
        oracle(72, {"ID": 3, "V": 1}, "DELETE"),
        oracle(82, {"ID": 3, "V": 2}, "INSERT", **again),
        oracle(83, {"ID": 4, "V": 2}, "INSERT", **again),
        oracle(93, {"ID": 4, "V": 2}, "DELETE"),
    ]
    for number, one in enumerate(reversed(events) if is_reversed else events):
        put(bucket, form, f"{number}", one)
        bucket.cycle()
    expected = [{"ID": 1, "V": 3}, {"ID": 2, "V": 2}, {"ID": 3, "V": 2}]
    assert bucket.plain("SHOP/ORDERS") == expected
