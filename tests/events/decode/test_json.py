"""Lines of JSON: every form that was seen, digit by digit."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from mirrorlake.events import types
from mirrorlake.events.decode.errors import UnreadableEvents
from mirrorlake.events.decode.json.events import json_events, schema_columns
from mirrorlake.events.reading import read_events
from mirrorlake.events.rows import payload_type
from mirrorlake.events.types import UnifiedType
from tests.events.decode.files import avro, column, event, in_memory, lines, read, schema

DAY = 86_400_000_000


@pytest.mark.clause("ST-019", "ST-025", "ST-170", "ST-176")
@pytest.mark.parametrize("packed", [False, True])
def test_the_same_events_are_read_from_json_and_from_avro(packed: bool) -> None:
    events = [event(n) for n in range(3)]
    found, same = read(lines(events, packed=packed)), read(avro(events))
    assert found.head.equals(same.head)
    assert found.payload.equals(same.payload)
    assert found.columns == same.columns
    assert not found.rejected


@pytest.mark.clause("ST-027", "ST-376")
@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("2021-05-16T01:13:01.000Z", 1621127581000),
        ("2025-11-05T18:23:46.698000Z", 1762367026698),
        ("2021-12-25 05:42:04.408", 1640410924408),
        ("2019-11-07T02:15:39", 1573092939000),
        ("2019-11-07T02:15:39.123456789+02:00", 1573085739123),
        ("2019-11-07 02:15-0030", 1573094700000),
        (1737457695000, 1737457695000),
        ("1737457695000", 1737457695000),
        ("1969-12-31T23:59:59.9999Z", -1),
    ],
)
def test_times_are_read_in_every_form(text: Any, milliseconds: int) -> None:
    found = read(lines([event(source_timestamp=text), event(read_timestamp=text)]))
    assert not found.rejected
    assert found.head.column("source_timestamp")[0].as_py() == milliseconds
    assert found.head.column("read_timestamp")[1].as_py() == milliseconds


@pytest.mark.parametrize(
    "text",
    ["2021-13-01T00:00:00Z", "yesterday", "2021-01-01T25:00:00", "2021-01-01T00:00:00+99:99", True],
)
def test_what_is_no_time_is_said_of_its_event_alone(text: Any) -> None:
    found = read(lines([event(0), event(1, source_timestamp=text), event(2)]))
    assert found.rejected == {1: "the value of source_timestamp does not fit its type"}


VALUES: list[tuple[UnifiedType, str, Any]] = [
    (types.BOOLEAN, "true", True),
    (types.BYTES, '"AAH/"', b"\x00\x01\xff"),
    (types.DATE, '"1970-01-02"', 1),
    (types.DATETIME, '"1970-01-02T00:00:00.000001"', DAY + 1),
    (types.decimal(20, 4), "1234567890123456.7890", Decimal("1234567890123456.7890")),
    (types.decimal(20, 4), '"-0.0001"', Decimal("-0.0001")),
    (
        types.decimal(38, 0),
        "12345678901234567890123456789012345678",
        Decimal("1234567890" * 3 + "12345678"),
    ),
    (types.decimal(20, 4), "-1.5E+3", Decimal("-1500.0000")),
    (types.decimal(20, 4), "1.0000000000000000000000000000000000000000", Decimal("1.0000")),
    (types.decimal(76, 38), '"0.5"', Decimal("0.5")),
    (types.DOUBLE, "0.1", 0.1),
    (types.DOUBLE, "Infinity", float("inf")),
    (types.DOUBLE, "NaN", float("nan")),
    (types.FLOAT, "45.67", 45.66999816894531),
    (
        types.GEOMETRY,
        '{"value": "AQ==", "srid": 4326, "type": "POINT"}',
        {"value": b"\x01", "srid": 4326, "type": "POINT"},
    ),
    (types.INTEGER, "-2147483648", -(2**31)),
    (types.INTEGER, '"5"', 5),
    (types.INTERVAL, '"P1Y2M3DT4H5M6.789S"', {"months": 14, "hours": 76, "micros": 306_789_000}),
    (types.INTERVAL, '"-P1M"', {"months": -1, "hours": 0, "micros": 0}),
    (types.INTERVAL, '"PT-0.5S"', {"months": 0, "hours": 0, "micros": -500_000}),
    (types.JSON, '{"a": [1.10, null, "é"]}', '{"a":[1.10,null,"é"]}'),
    (types.JSON, '"{\\"a\\": 1}"', '"{\\"a\\": 1}"'),
    (types.JSON, '"[1]"', '"[1]"'),
    (types.LONG, "9223372036854775807", 2**63 - 1),
    (types.NUMBER, "18446744073709551616.10", "18446744073709551616.10"),
    (types.NUMBER, '"NaN"', "NaN"),
    (types.NUMBER, '"-Infinity"', "-Infinity"),
    (types.NUMBER, '"007.50"', "007.50"),
    (types.NUMBER, '"-1.5e+3"', "-1.5e+3"),
    (types.LONG, '"-5"', -5),
    (types.DOUBLE, '"0.5"', 0.5),
    (types.STRING, '"é\\u0000"', "é\x00"),
    (types.STRING, "1.50", "1.50"),
    (types.DATE, '"1970-01-02T00:00:00.000Z"', 1),
    (types.DATETIME, '"1970-01-02T00:00:00.0000010Z"', DAY + 1),
    (types.DATETIME, '"1970-01-02 00:00:00.000001+00:00"', DAY + 1),
    (types.TIME, '"24:00:00"', DAY),
    (types.TIME, '"00:00:00.000001000Z"', 1),
    (types.TIME, '"08:15:30.5"', 29_730_500_000),
    (types.TIME_INTERVAL, "-29730000000", -29_730_000_000),
    (types.TIMESTAMP, '"1970-01-01T00:00:01Z"', 1_000_000),
    (types.TIMESTAMP, "9223372036825200000", types.POSITIVE_INFINITY),
    (
        types.TIMESTAMP_WITH_TIME_ZONE,
        '"1970-01-01T01:00:00+01:00"',
        {"timestamp": 0, "offset": 3_600_000},
    ),
    (types.TIME_WITH_TIME_ZONE, '"01:00:00-01:30"', {"time": 3_600_000_000, "offset": -5_400_000}),
    (types.UNSUPPORTED, "null", None),
    (types.varchar(3), '"abc"', "abc"),
    (
        types.array(types.INTEGER),
        "[[1, 2], [3, null]]",
        {"dimensions": [2, 2], "elements": [1, 2, 3, None]},
    ),
    (types.array(types.INTEGER), "[]", {"dimensions": [], "elements": []}),
]


@pytest.mark.clause("ST-028", "ST-135", "ST-157", "ST-175")
@pytest.mark.parametrize(("kind", "text", "value"), VALUES, ids=lambda one: str(one)[:40])
def test_a_value_is_read_as_its_type_says(kind: UnifiedType, text: str, value: Any) -> None:
    whole = json.dumps(event(payload={"c": 0})).replace('{"c": 0}', f'{{"c": {text}}}')
    null = json.dumps(event(payload={"c": None}))
    columns = schema_columns(json.dumps(schema([column(kind)])).encode())
    found = read(lines([whole, null]), columns)
    assert not found.rejected
    values = found.payload.column("c").combine_chunks()
    expected = in_memory([value, None], payload_type(kind))
    assert values.equals(expected) or (text == "NaN" and str(values) == str(expected))


@pytest.mark.clause("ST-160")
def test_a_string_is_a_document_only_in_a_collection() -> None:
    texts = ['{"$oid": 1}', "[1]", "{", "x", None, {"a": 1}]
    events = [event(payload={"c": text}) for text in texts]
    for one in events:
        del one["source_metadata"]["table"]
        one["source_metadata"]["collection"] = "orders"
    found = read(lines(events), [column(types.JSON)])
    expected = ['{"$oid": 1}', "[1]", '"{"', '"x"', None, '{"a":1}']
    assert found.payload.column("c").to_pylist() == expected


UNFIT: list[tuple[UnifiedType, str]] = [
    (types.BOOLEAN, '"maybe"'),
    (types.BOOLEAN, '"true"'),
    (types.BOOLEAN, "1"),
    (types.NUMBER, '"abc"'),
    (types.NUMBER, '""'),
    (types.NUMBER, '"1 2"'),
    (types.NUMBER, "true"),
    (types.LONG, "true"),
    (types.BYTES, '"*"'),
    (types.BYTES, "1234"),
    (types.TIME, '"24:30:00"'),
    (types.TIME, '"24:00:00.000001"'),
    (types.DATETIME, '"2026-01-02T24:00:01"'),
    (types.DATE, '"1970-02-30"'),
    (types.decimal(4, 2), "100.00"),
    (types.decimal(4, 2), "1.005"),
    (types.decimal(38, 2), "1e-400000000"),
    (types.decimal(38, 2), "1e400000000"),
    (types.decimal(38, 2), '"NaN"'),
    (types.DOUBLE, "1e999"),
    (types.FLOAT, "1e39"),
    (types.LONG, '"0x1F"'),
    (types.INTEGER, "2147483648"),
    (types.LONG, "9223372036854775808"),
    (types.LONG, "1.5"),
    (types.INTERVAL, '"P1H"'),
    (types.INTERVAL, '"PT400000000000000000M"'),
    (types.INTERVAL, '"PT153722867280912930M55S"'),
    (types.INTERVAL, '"PT9223372036854.775808S"'),
    (types.INTERVAL, '"-PT-9223372036854.775808S"'),
    (types.INTERVAL, '"P9000000000000000000W"'),
    (types.INTERVAL, '"P1317624576693539401W9223372036854775807D"'),
    (types.TIME, '"noon"'),
    (types.DATE, '"1970-01-02T00:00:01"'),
    (types.decimal(4, 2), '"1_0"'),
    (types.decimal(4, 2), '" 1"'),
    (types.TIMESTAMP, '"2021-01-01T00:00:00+99:99"'),
    (types.TIMESTAMP_WITH_TIME_ZONE, '"2021-01-01T00:00:00+02:60"'),
    (types.TIME_WITH_TIME_ZONE, '"00:00:00-24:00"'),
    (types.TIMESTAMP, '"2021-01-01T00:00:61Z"'),
    (types.STRING, '"\\ud800"'),
    (types.array(types.INTEGER), "[[1], [2, 3]]"),
    (types.array(types.INTEGER), '[1, "x"]'),
    (types.array(types.INTEGER), "5"),
]


@pytest.mark.clause("ST-253")
@pytest.mark.parametrize(("kind", "text"), UNFIT, ids=lambda one: str(one)[:40])
def test_a_value_that_is_none_of_its_type_is_said_of_its_event_alone(
    kind: UnifiedType, text: str
) -> None:
    whole = json.dumps(event(payload={"c": 0})).replace('{"c": 0}', f'{{"c": {text}}}')
    good = json.dumps(event(payload={"c": None}))
    found = read(lines([good, whole, good]), [column(kind)])
    assert found.rejected == {1: f"the value of column c is no {kind}"}
    assert found.payload.column("c").to_pylist() == [None] * 3


FLAWS: list[tuple[UnifiedType, str, str]] = [
    (types.INTEGER, "01", "as a number, the text would lose its leading zeros"),
    (types.LONG, "-007", "as a number, the text would lose its leading zeros"),
    (types.decimal(4, 2), "01.50", "as a number, the text would lose its leading zeros"),
    (types.DOUBLE, "00", "as a number, the text would lose its leading zeros"),
    (types.DATE, "1970-01-02T00:00:00+01:00", "it has an offset from UTC"),
    (types.DATETIME, "1970-01-02T00:00:00+02:00", "it has an offset from UTC"),
    (types.DATETIME, "1970-01-02T00:00:00.0000001", "it has a part of a microsecond"),
    (types.TIME, "08:15:30-00:30", "it has an offset from UTC"),
    (types.TIME, "08:15:30.123456789", "it has a part of a microsecond"),
    (types.TIMESTAMP, "1970-01-02T00:00:00.1234567Z", "it has a part of a microsecond"),
    (
        types.TIMESTAMP_WITH_TIME_ZONE,
        "1970-01-02T00:00:00.1234567+02:00",
        "it has a part of a microsecond",
    ),
    (types.TIME_WITH_TIME_ZONE, "08:15:30.00000001+02", "it has a part of a microsecond"),
]


@pytest.mark.clause("ST-135", "ST-253")
@pytest.mark.parametrize(("kind", "text", "flaw"), FLAWS, ids=lambda one: str(one)[:40])
def test_a_value_of_which_a_part_would_be_lost_is_said_of_its_event_alone(
    kind: UnifiedType, text: str, flaw: str
) -> None:
    events = [event(payload={"c": value}) for value in (None, text)]
    found = read(lines(events), [column(kind)])
    assert found.rejected == {1: f"the value of column c is no {kind}: {flaw}"}


def test_without_a_schema_a_column_has_the_type_that_holds_all_its_values() -> None:
    values = {
        "long": ([1, 2], "LONG"),
        "number": ([1, 2**70], "NUMBER"),
        "text": (["a", "b"], "STRING"),
        "mixed": (["a", 1], "STRING"),
        "flag": ([True, None], "BOOLEAN"),
        "nested": ([{"a": 1}, [2]], "JSON"),
        "null": ([None, None], "UNSUPPORTED"),
        "known": ([1, 2], "DOUBLE"),
    }
    rows = [{name: told[0][row] for name, told in values.items()} for row in (0, 1)]
    content = lines([event(payload=row) for row in rows])
    (found,) = json_events(io.BytesIO(content), known=lambda _head: {"known": types.DOUBLE})
    assert {one.name: str(one.type) for one in found.columns} == {
        name: kind for name, (_values, kind) in values.items()
    }
    assert found.payload.column("number").to_pylist() == ["1", str(2**70)]
    assert found.payload.schema.field("known").type == pa.float64()


BAD_LINES = [
    ("{", "the line is not JSON"),
    ("[1]", "the line is not an object"),
    ('{"uuid": "a", "uuid": "b"}', "an object has a name twice"),
    ('{"payload": {"id": 1, "id": 2}}', "an object has a name twice"),
    ('{"source_metadata": {"table": "a", "table": "b"}}', "an object has a name twice"),
    ('{"payload": [1]}', "payload is not an object"),
    ('{"payload": ' + "[" * 100_000 + "]" * 100_000 + "}", "the line is nested too deep"),
    ('{"uuid": "\\ud800"}', "the value of uuid is no text"),
    ('{"payload": {"id": ' + "[" * 600 + "]" * 600 + "}}", "column id is"),
    (
        '{"payload": {"id": ' + '{"a":' * 600 + "1" + "}" * 600 + "}}",
        "column id is",
    ),
    ('{"source_metadata": {"scn": 99999999999999999999}}', "the value of scn does not fit"),
]


@pytest.mark.clause("ST-253")
@pytest.mark.parametrize(("line", "reason"), BAD_LINES, ids=lambda one: one[:30])
def test_a_bad_line_is_said_of_itself_and_the_others_are_read(line: str, reason: str) -> None:
    found = read(lines([event(0), line, event(2)]))
    assert list(found.rejected) == [1]
    assert reason in found.rejected[1]
    assert [str(one) for one in found.payload.column("id").to_pylist()[::2]] == ["0", "2"]


@pytest.mark.clause("ST-253")
def test_a_line_that_is_not_utf_8_is_said_of_itself() -> None:
    content = lines([event(0)]) + b'{"uuid": "\xff"}\n\n' + lines([event(2)])
    assert read(content).rejected == {1: "the line is not UTF-8"}


@pytest.mark.clause("ST-177", "ST-253")
def test_a_line_that_is_larger_than_an_event_may_be_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mirrorlake.events.decode.json.lines.MOST_EVENT", 1000)
    large = event(1, payload={"id": 1, "val": "x" * 3_000_000})
    found = read(lines([event(0), large, event(2), large]))
    assert sorted(found.rejected) == [1, 3]
    assert "more than 1000" in found.rejected[1]
    assert found.payload.column("id").to_pylist()[::2] == [0, 2]


def test_a_large_file_comes_in_batches() -> None:
    content = lines([event(n, payload={"id": n, "val": "x" * 100_000}) for n in range(200)])
    batches = list(read_events(io.BytesIO(content)))
    assert [one.first for one in batches] == [
        0,
        *[len(batches[0])] * (len(batches) > 1),
        *[sum(map(len, batches[:n])) for n in range(2, len(batches))],
    ]
    assert sum(map(len, batches)) == 200


def test_events_with_a_column_each_are_refused_where_they_would_take_gigabytes() -> None:
    def named(events: int) -> list[dict[str, Any]]:
        return [event(number, payload={f"c{number}": 1}) for number in range(events)]

    assert len(read(lines(named(200))).columns) == 200
    with pytest.raises(UnreadableEvents, match="have 5000 columns, and each has few of them"):
        read(lines(named(5_000)))
