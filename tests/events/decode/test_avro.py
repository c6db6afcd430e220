"""Avro files: every type, every codec, layouts of every age."""

from __future__ import annotations

import io
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlake.events import types
from mirrorlake.events.reading import read_events
from mirrorlake.events.rows import payload_type
from mirrorlake.events.types import EventColumn, UnifiedType
from tests.events.decode.files import (
    COLUMNS,
    avro,
    column,
    event,
    in_memory,
    nested,
    payload,
    read,
    repacked,
    schema,
)
from tests.profiles import tries

_EXACT = Context(prec=100)
LONGS = st.integers(-(2**63), 2**63 - 1)
INTEGERS = st.integers(-(2**31), 2**31 - 1)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
WIDE = st.integers(-(10**38) + 1, 10**38 - 1)

KINDS: list[tuple[UnifiedType, st.SearchStrategy[Any]]] = [
    (types.BOOLEAN, st.booleans()),
    (types.BYTES, st.binary(max_size=300)),
    (types.DATE, INTEGERS),
    (
        types.DATETIME,
        st.fixed_dictionaries(
            {"date": st.integers(-700_000, 2_900_000), "time": st.integers(0, 86_399_999_999)}
        ),
    ),
    (types.decimal(38, 10), WIDE.map(lambda n: Decimal(n).scaleb(-10, _EXACT))),
    (types.decimal(50, 0), st.integers(-(10**50) + 1, 10**50 - 1).map(Decimal)),
    (types.DOUBLE, st.floats(allow_nan=False)),
    (types.FLOAT, st.floats(allow_nan=False, width=32)),
    (
        types.GEOMETRY,
        st.fixed_dictionaries({"value": st.binary(max_size=9), "srid": INTEGERS, "type": TEXTS}),
    ),
    (types.INTEGER, INTEGERS),
    (
        types.INTERVAL,
        st.fixed_dictionaries({"months": INTEGERS, "hours": INTEGERS, "micros": LONGS}),
    ),
    (types.JSON, TEXTS),
    (types.LONG, LONGS),
    (types.NUMBER, LONGS.map(str)),
    (types.STRING, TEXTS),
    (types.TIME, LONGS),
    (types.TIME_INTERVAL, LONGS),
    (types.TIMESTAMP, LONGS),
    (
        types.TIMESTAMP_WITH_TIME_ZONE,
        st.fixed_dictionaries({"timestamp": LONGS, "offset": st.integers(0, 43_200_000)}),
    ),
    (
        types.TIME_WITH_TIME_ZONE,
        st.fixed_dictionaries({"time": LONGS, "offset": st.integers(0, 43_200_000)}),
    ),
    (types.UNSUPPORTED, st.none()),
    (types.varchar(20), TEXTS),
    (types.array(types.INTEGER), st.lists(st.none() | INTEGERS, max_size=12)),
    (types.array(types.STRING), st.lists(st.none() | TEXTS, max_size=3)),
]


def expected(values: list[Any], kind: UnifiedType) -> pa.Array:
    target = payload_type(kind)
    if kind == types.DATETIME:
        values = [v and v["date"] * 86_400_000_000 + v["time"] for v in values]
    if kind.element is not None:
        shaped = [
            None if v is None else {"dimensions": [len(v)] if v else [], "elements": v}
            for v in values
        ]
        return pa.array(shaped, target)
    return in_memory(values, target)


@pytest.mark.clause("ST-017", "ST-023", "ST-024", "ST-134", "ST-135")
@settings(max_examples=tries(160))
@given(data=st.data())
def test_what_fastavro_writes_is_read_value_by_value(data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=5))
    columns = [EventColumn(f"c{n}", kind) for n, (kind, _values) in enumerate(chosen)]
    rows = data.draw(st.integers(1, 5))
    values = [
        data.draw(st.lists(st.none() | drawn, min_size=rows, max_size=rows))
        for _kind, drawn in chosen
    ]
    events = []
    for row in range(rows):
        told = {}
        for one, of_column in zip(columns, values, strict=True):
            value = of_column[row]
            is_array = one.type.element is not None and value is not None
            told[one.name] = nested([len(value)] if value else [], value) if is_array else value
        events.append(event(row, payload=told))
    codec = data.draw(st.sampled_from(["null", "deflate", "bzip2", "xz"]))
    content = avro(events, schema(columns), codec, data.draw(st.sampled_from([1, 16_000])))
    if codec == "null":
        packer = data.draw(st.sampled_from(["", "snappy", "zstandard"]))
        content = repacked(content, packer) if packer else content
    found = read(content)
    assert list(found.columns) == columns
    assert not found.rejected
    for one, of_column in zip(columns, values, strict=True):
        got = found.payload.column(one.name).combine_chunks()
        assert got.equals(expected(of_column, one.type)), one
    assert found.head.column("uuid").to_pylist() == [one["uuid"] for one in events]
    assert found.head.column("log_position").to_pylist() == [2550] * rows
    assert found.head.column("sort_keys").to_pylist()[0] == [
        "1737457695000",
        "mysql-bin.000131",
        "2550",
    ]


@pytest.mark.clause("ST-134")
def test_arrays_of_several_dimensions_keep_them() -> None:
    kind = types.array(types.INTEGER)
    shapes = [([2, 3], [1, 2, 3, 4, None, 6]), ([1, 1, 2], [7, 8]), ([], []), ([20], [*range(20)])]
    events = [event(n, payload={"c": nested(*one)}) for n, one in enumerate(shapes)]
    found = read(avro(events, schema([column(kind)]))).payload.column("c").to_pylist()
    assert found == [{"dimensions": d, "elements": e} for d, e in shapes]


@pytest.mark.clause("ST-014", "ST-092", "ST-094", "ST-107")
def test_old_layouts_lack_fields_and_have_others() -> None:
    nullable = ["null", "string"]
    metadata = [
        {"name": "binlog_file", "type": nullable},
        {"name": "binlog_position", "type": ["null", "long"]},
        {"name": "primary_key", "type": nullable},
        {"name": "change_type", "type": nullable},
    ]
    fields = [
        {"name": "unknown", "type": {"type": "map", "values": "long"}},
        {"name": "read_method", "type": "string"},
        {"name": "source_metadata", "type": _record("source_metadata", metadata)},
        {"name": "payload", "type": _record("payload", [{"name": "id", "type": nullable}])},
        {"name": "source_timestamp", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "uuid", "type": nullable},
    ]
    row = {
        "unknown": {"a": 1, "b": 2},
        "read_method": "mysql_dump",
        "source_metadata": {
            "binlog_file": "mysql-bin.000131",
            "binlog_position": None,
            "primary_key": "id",
            "change_type": None,
        },
        "payload": {"id": "5"},
        "source_timestamp": -1,
        "uuid": None,
    }
    found = read(avro([row, row], _record("r", fields)))
    assert not found.rejected
    (head, _second) = found.head.to_pylist()
    assert (head["log_file"], head["log_position"]) == ("mysql-bin.000131", None)
    assert head["primary_keys"] == ["id"]
    assert head["source_timestamp"] == -1  # microseconds are milliseconds that begin before
    assert (head["uuid"], head["schema_key"], head["sort_keys"]) == (None, None, None)
    assert found.payload.to_pylist() == [{"id": "5"}] * 2


@pytest.mark.clause("ST-069", "ST-075")
def test_fields_that_are_printed_with_other_types_are_read() -> None:
    kinds = {"tx_id": "long", "database": "long", "schema": {"type": "array", "items": "string"}}
    metadata = [{"name": name, "type": kind} for name, kind in kinds.items()]
    fields = [
        {"name": "source_metadata", "type": _record("source_metadata", metadata)},
        {"name": "payload", "type": _record("payload", [])},
    ]
    rows = [
        {"source_metadata": {"tx_id": 7, "database": 5, "schema": names}, "payload": {}}
        for names in (["dbo"], ["dbo", "two"])
    ]
    found = read(avro(rows, _record("r", fields)))
    head = found.head.to_pylist()[0]
    assert (head["tx_id"], head["database"], head["schema"]) == ("7", "5", "dbo")
    assert list(found.rejected) == [1]
    assert found.empty.all()


def test_events_whose_payload_looks_like_an_event_are_told_apart() -> None:
    lookalike = avro([event(1)])[-200:].decode("latin-1") + "\x20ea-main_my_table"
    events = [event(n, payload={"id": n, "val": lookalike if n % 2 else None}) for n in range(50)]
    assert payload(avro(events)) == [one["payload"] for one in events]


def test_a_large_file_comes_in_batches() -> None:
    events = [event(n, payload={"id": n, "val": "x" * 100_000}) for n in range(200)]
    batches = list(read_events(io.BytesIO(avro(events, codec="deflate"))))
    assert len(batches) > 1
    assert [one.first for one in batches][1] == len(batches[0])
    ids = [row for one in batches for row in one.payload.column("id").to_pylist()]
    assert ids == list(range(200))


@pytest.mark.clause("ST-178")
def test_a_file_of_no_bytes_has_no_events() -> None:
    assert list(read_events(io.BytesIO(b""))) == []
    assert list(read_events(io.BytesIO(avro([])))) == []


def test_columns_are_those_of_the_header() -> None:
    assert tuple(read(avro([event()])).columns) == COLUMNS


def _record(name: str, fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": fields}


@pytest.mark.clause("ST-124", "ST-253")
def test_a_text_that_is_no_number_is_said_of_its_event_alone() -> None:
    values = ["1", "-0.50", None, "NaN", "abc", "", "1e5"]
    events = [event(payload={"c": value}) for value in values]
    found = read(avro(events, schema([column(types.NUMBER)])))
    reason = "the value of column c is no NUMBER"
    assert found.rejected == {4: reason, 5: reason}
    assert found.payload.column("c").to_pylist() == [*values[:4], None, None, "1e5"]
