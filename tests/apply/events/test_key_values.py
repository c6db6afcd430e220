"""Keys that are written in several ways are one, and those of several types are several."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.apply.events.remembered.key_values import MOST_ZEROS, canonical_number
from mirrorlake.apply.events.remembered.state import FOLDER
from mirrorlake.model.table import TableId
from tests.apply.events.bucket import Bucket, event
from tests.apply.events.genuine import avro

NUMBER = {"type": "string", "logicalType": "number"}
ORDERS = TableId("shop", "orders")
FORMS = pytest.mark.parametrize("form", ["avro", "json"])
OID = "64c13ab08edf48a008793cac"


def put(bucket: Bucket, name: str, form: str, events: Sequence[Any], **kinds: Any) -> None:
    if form == "avro":
        bucket.put(f"{name}.avro").write_bytes(avro(events, **kinds))
    else:
        bucket.put(f"{name}.jsonl", *events)


def as_of_an_earlier_release(bucket: Bucket) -> None:
    """The newest record of each table, as one that did not know of values."""
    for record in (bucket.root / FOLDER / "tables").glob("*/0*.json"):
        said = json.loads(record.read_text())
        assert said.pop("is_by_value") is True
        record.write_text(json.dumps(said))


def damaged(bucket: Bucket) -> None:
    for record in (bucket.root / FOLDER / "tables").glob("*/0*.json"):
        record.write_text("damaged")


@pytest.mark.parametrize(
    ("texts", "canonical"),
    [
        (["10", "10.0", "1E1", "+10", "010.", "1e+1", "100e-1", "0.1E2"], "10"),
        (["0", "-0", "0.00", ".0", "0E9", "-0e-999999999999999999"], "0"),
        (["-12.50", "-12.5", "-1250E-2", "-.125e2"], "-12.5"),
        ([".001", "1E-3", "0.0010"], "0.001"),
        (["9" * 500, f"{'9' * 500}.000"], "9" * 500),
        ([f"1E{MOST_ZEROS}", f"1{'0' * MOST_ZEROS}.0"], f"1{'0' * MOST_ZEROS}"),
        ([f"1.5E{MOST_ZEROS + 9}", f"15{'0' * (MOST_ZEROS + 8)}"], f"1.5E+{MOST_ZEROS + 9}"),
        (["1E-999999999", "10E-1000000000"], "1E-999999999"),
        (["nan", "NaN", "-nan"], "NaN"),
        (["inf", "Infinity", "+infinity"], "Infinity"),
        (["-inf", "-Infinity"], "-Infinity"),
    ],
    ids=lambda one: one if isinstance(one, str) and len(one) < 20 else "",
)
def test_equal_numbers_have_one_text(texts: list[str], canonical: str) -> None:
    assert {canonical_number(text) for text in texts} == {canonical}
    assert canonical_number(canonical) == canonical


WRITTEN = st.builds(
    "{}{}.{}E{}".format,
    st.sampled_from(["", "+", "-"]),
    st.integers(0, 200),
    st.sampled_from(["", "0", "5", "050"]),
    st.integers(-3, 3) | st.sampled_from([-500, 500]),
)


@given(WRITTEN, WRITTEN)
def test_the_texts_of_numbers_are_equal_where_the_numbers_are(one: str, other: str) -> None:
    same = Decimal(one) == Decimal(other)
    assert (canonical_number(one) == canonical_number(other)) == same
    assert Decimal(canonical_number(one)) == Decimal(one)


@pytest.mark.clause("ST-249", "ST-250")
@FORMS
@pytest.mark.parametrize("is_together", [True, False])
def test_numbers_of_any_length_are_one_key_however_they_are_written(
    tmp_path: Path, form: str, *, is_together: bool
) -> None:
    """As those of Oracle without precision, numeric of PostgreSQL, and numbers of JSON are."""
    bucket, keys = Bucket(tmp_path), ["10", "10.0", "1E1", "0.5", ".50", "7"]
    for number, key in enumerate(keys, 1):
        change = "DELETE" if key == ".50" else "INSERT"
        line = event(number, {"id": key, "v": number}, change)
        if form == "json":  # as a number of JSON, which may not begin with a point
            digits = key if key[0] != "." else f"0{key}"
            put(bucket, str(number), form, [json.dumps(line).replace(f'"{key}"', digits)])
        else:
            put(bucket, str(number), form, [line], id=NUMBER)
        if not is_together and number > 3:  # the first are the numbers that tell the type
            bucket.cycle(anew=True)
    bucket.cycle()
    assert bucket.plain() == [{"id": "10", "v": 3}, {"id": "7", "v": 6}]
    assert not bucket.consumer()._journal.dead
    damaged(bucket)
    bucket.consumer().rebuild(TableId("public", "orders"))
    put(bucket, "z", "avro", [event(9, {"id": "1.0E1", "v": 9})], id=NUMBER)
    bucket.cycle(anew=True)
    assert bucket.plain() == [{"id": "10", "v": 9}, {"id": "7", "v": 6}]


def test_a_table_of_an_earlier_release_keeps_the_keys_that_it_has(tmp_path: Path) -> None:
    """Each of them stays one row: what is written as before is found as before."""
    bucket = Bucket(tmp_path)
    put(bucket, "a", "avro", [event(1, {"id": "7", "v": 1})], id=NUMBER)
    bucket.cycle()
    as_of_an_earlier_release(bucket)
    put(bucket, "b", "avro", [event(2, {"id": "10.0", "v": 2})], id=NUMBER)
    bucket.cycle(anew=True)
    put(bucket, "c", "avro", [event(3, {"id": "10.0", "v": 3})], id=NUMBER)
    bucket.cycle(anew=True)
    assert bucket.plain() == [{"id": "10.0", "v": 3}, {"id": "7", "v": 1}]


def document(number: int, key: Any, change: str = "CREATE") -> dict[str, Any]:
    names = {"database": "shop", "collection": "orders", "sort_keys": [1, number]}
    method = {"read_method": "mongodb-cdc", "is_deleted": change == "DELETE"}
    found = event(number, {"_id": key, "data": {"v": number}}, change, ("_id",), **names, **method)
    for name in ("schema", "table", "lsn"):
        found["source_metadata"].pop(name)
    return found


def as_avro(number: int, key: str, change: str = "CREATE") -> dict[str, Any]:
    found = document(number, key, change)
    return {**found, "payload": {"_id": key, "data": json.dumps(found["payload"]["data"])}}


def found(bucket: Bucket) -> dict[str, int]:
    return {row["_id"]: json.loads(row["data"])["v"] for row in bucket.plain("shop/orders")}


TYPES = [17, "17", True, "true", {"$oid": OID}, "plain", ["a"], "null", '"quoted"', "{", 0.5, "NaN"]
TEXTS = ["17", '"17"', "true", '"true"', f'{{"$oid": "{OID}"}}', "plain", '["a"]', '"null"']


@pytest.mark.clause("ST-160", "ST-106")
@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("is_together", [True, False])
def test_documents_whose_keys_differ_in_their_type_alone_are_several(
    tmp_path: Path, order: int, *, is_together: bool
) -> None:
    bucket = Bucket(tmp_path)
    for number, key in list(enumerate(TYPES))[::order]:
        bucket.put(f"{number}.jsonl", document(number, key))
        if not is_together:
            bucket.cycle(anew=True)
    bucket.cycle()
    # A text is itself where it cannot be mistaken for another type.
    texts = [*TEXTS, r'"\"quoted\""', "{", "0.5", '"NaN"']
    assert found(bucket) == {text: number for number, text in enumerate(texts)}
    assert not bucket.consumer()._journal.dead
    bucket.put("z.jsonl", document(50, 17.0, "DELETE"), document(51, "17", "UPDATE"))
    bucket.cycle()
    assert "17" not in found(bucket)
    assert found(bucket)['"17"'] == 51


@pytest.mark.clause("ST-160")
@pytest.mark.parametrize("order", ["0123", "3210", "2031", "1302"])
def test_a_key_is_one_in_every_form_in_which_a_document_is_written(
    tmp_path: Path, order: str
) -> None:
    """An object or its text, with blanks or without, in JSON and in Avro."""
    bucket = Bucket(tmp_path)
    written = [
        ("a.jsonl", document(1, {"$oid": OID})),
        ("b.jsonl", document(2, f'{{"$oid":"{OID}"}}')),
        ("c.avro", as_avro(3, f'{{ "$oid" :\n"{OID}"}}')),
        ("d.avro", as_avro(4, f'{{"$oid": "{OID}"}}')),
    ]
    for index in order:
        name, one = written[int(index)]
        if name.endswith("avro"):
            bucket.put(name).write_bytes(avro([one]))
        else:
            bucket.put(name, one)
        bucket.cycle(anew=True)
    assert found(bucket) == {f'{{"$oid": "{OID}"}}': 4}
    bucket.put("e.avro").write_bytes(avro([as_avro(5, "17"), as_avro(6, '"17"')]))
    bucket.put("f.jsonl", document(7, "17"), document(8, 17))
    bucket.cycle()
    assert found(bucket) == {f'{{"$oid": "{OID}"}}': 4, '"17"': 7, "17": 8}


@pytest.mark.clause("ST-160")
def test_the_order_of_the_members_of_a_key_counts_as_it_does_in_mongodb(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", document(1, {"b": 1, "a": {"c": [1, None]}}), document(2, {"a": 1}))
    bucket.cycle()
    assert found(bucket) == {'{"b": 1, "a": {"c": [1, null]}}': 1, '{"a": 1}': 2}


@pytest.mark.clause("ST-160")
@pytest.mark.parametrize("is_append", [False, True])
def test_types_of_keys_are_told_apart_after_a_repair(tmp_path: Path, *, is_append: bool) -> None:
    bucket = Bucket(tmp_path, is_append=is_append)
    bucket.put("a.jsonl", document(1, 17), document(2, "x"))
    bucket.put("b.avro").write_bytes(avro([as_avro(3, "y")]))
    bucket.cycle()
    damaged(bucket)
    bucket.consumer().rebuild(ORDERS)
    bucket.put("c.jsonl", document(4, "17"), document(5, 18))
    bucket.cycle(anew=True)
    assert found(bucket) == {"17": 1, "x": 2, "y": 3, '"17"': 4, "18": 5}


@pytest.mark.parametrize("key", ["x", {"$oid": OID}], ids=str)
def test_documents_of_an_earlier_release_keep_their_keys(tmp_path: Path, key: Any) -> None:
    """That had the type of the first ones, and objects without blanks."""
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", document(1, key))
    bucket.cycle()
    as_of_an_earlier_release(bucket)
    (record,) = (bucket.root / FOLDER / "tables").glob("*/0*.json")
    said = json.loads(record.read_text())
    assert [one["type"] for one in said["columns"]] == ["JSON", "JSON"]
    said["columns"][0]["type"] = "JSON" if isinstance(key, dict) else "STRING"
    record.write_text(json.dumps(said))
    text = json.dumps(key, separators=(",", ":")) if isinstance(key, dict) else key
    bucket.put("b.jsonl", document(2, key), document(3, key))
    bucket.cycle(anew=True)
    assert found(bucket)[text] == 3


def test_a_key_that_is_nested_deep_or_half_a_character_stops_nothing(tmp_path: Path) -> None:
    bucket, deep = Bucket(tmp_path), "[" * 400 + "]" * 400
    line = json.dumps(document(1, 0)).replace('"_id": 0', '"_id": "\\ud800"')
    bucket.put("a.jsonl", line, document(2, json.loads(deep)), document(3, "x"))
    bucket.cycle()
    assert found(bucket) == {'"\\ud800"': 1, deep: 2, "x": 3}
    assert not bucket.errors
