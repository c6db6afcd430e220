"""Event files of ours as Spark's own readers and Avro's own tools read them: of each source, with a
column of every unified type that it has, and all that its metadata can tell."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mirrorlake.events import types
from mirrorlake.events.envelope import EventSource
from mirrorlake.events.metadata import MetadataType, metadata_fields
from mirrorlake.events.types import UnifiedKind, UnifiedType
from tests.events.every_type import TypedEvents
from tests.events.test_encode import as_json
from tests.events.values import physical
from tests.spark.event_reading import BY_TOOLS, GIVEN, INFERRED

pytestmark = [pytest.mark.full, pytest.mark.spark]

SOURCES = pytest.mark.parametrize("source", list(EventSource))
DDL = {
    UnifiedKind.BOOLEAN: "boolean",
    UnifiedKind.DATE: "date",
    UnifiedKind.DATETIME: "timestamp_ntz",
    UnifiedKind.DOUBLE: "double",
    UnifiedKind.FLOAT: "float",
    UnifiedKind.GEOMETRY: "struct<value: string, srid: int, type: string>",
    UnifiedKind.INTEGER: "int",
    UnifiedKind.LONG: "bigint",
    UnifiedKind.TIME_INTERVAL: "bigint",
    UnifiedKind.TIMESTAMP: "timestamp",
    UnifiedKind.TIMESTAMP_WITH_TIME_ZONE: "timestamp",
}
"""The types of Spark that have values of JSON; all others are texts."""
METADATA = {
    MetadataType.STRING: "string",
    MetadataType.LONG: "bigint",
    MetadataType.BOOLEAN: "boolean",
    MetadataType.STRINGS: "array<string>",
    MetadataType.INTEGERS: "array<int>",
}


def ddl(kind: UnifiedType, depth: int = 2) -> str:
    if kind.kind is UnifiedKind.DECIMAL:
        return f"decimal({kind.precision}, {kind.scale})"
    if kind.kind is UnifiedKind.ARRAY:
        assert kind.element is not None
        inner = f"nestedArray: array<{ddl(kind, depth - 1)}>, " if depth else ""
        return f"struct<{inner}elementValue: {ddl(kind.element)}>"
    return DDL.get(kind.kind, "string")


def schema(told: TypedEvents) -> str:
    """Of the JSON lines, as Spark takes it."""
    times = "read_timestamp timestamp, source_timestamp timestamp"
    texts = "uuid string, object string, read_method string, stream_name string, schema_key string"
    facts = [f"{one.name}: {METADATA[one.type]}" for one in metadata_fields(told.events.source)]
    columns = [f"`{one.column.name}`: {ddl(one.column.type)}" for one in told.drawn]
    return (
        f"{times}, {texts}, sort_keys array<string>, "
        f"source_metadata struct<{', '.join(facts)}>, payload struct<{', '.join(columns)}>"
    )


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of each source, and with what was read of them."""
    folder = tmp_path_factory.mktemp("events")
    for source in EventSource:
        told = TypedEvents.of(source)
        (folder / f"{source}.avro").write_bytes(told.written("avro"))
        (folder / f"{source}.jsonl").write_bytes(told.written("json"))
        (folder / f"{source}.ddl").write_text(schema(told))
    program = [sys.executable, "-m", "tests.spark.event_reading", str(folder)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


def numbers(kind: pa.DataType, unit: str = "") -> pa.DataType:
    """The type with moments as numbers. unit: as moments in this unit first."""
    if pa.types.is_struct(kind):
        return pa.struct([(one.name, numbers(one.type, unit)) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(numbers(kind.value_type, unit))
    if pa.types.is_timestamp(kind):
        return pa.timestamp(unit, kind.tz) if unit else pa.int64()
    if pa.types.is_time(kind):
        return pa.time64(unit) if unit else pa.int64()
    return pa.int32() if pa.types.is_date32(kind) and not unit else kind


def read(path: Path) -> list[dict[str, Any]]:
    """Events as Spark has read them; moments as microseconds, dates as days."""
    with pa.OSFile(str(path)) as file:
        table = pa.ipc.open_file(file).read_all()
    columns = [
        column.cast(numbers(column.type, "us")).cast(numbers(column.type))
        for column in table.columns
    ]
    return pa.table(dict(zip(table.column_names, columns, strict=True))).to_pylist()


def exact(value: Any) -> Any:
    """With NaN as something that is equal to itself, and without null in what is nested."""
    if isinstance(value, dict):
        return {name: exact(one) for name, one in value.items() if one is not None}
    if isinstance(value, list):
        return [exact(one) for one in value]
    return repr(value) if isinstance(value, float) else value


def same(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """Field by field and column by column, which a failure names."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert set(one) == set(other)
        for name, value in other.items():
            if isinstance(value, dict):
                assert list(one[name]) == list(value)
                for inner in value:
                    assert exact(one[name][inner]) == exact(value[inner]), (name, inner)
            else:
                assert one[name] == value, name


@SOURCES
def test_spark_reads_every_value_of_an_avro_file(found: Path, source: EventSource) -> None:
    expected = TypedEvents.of(source).expected(int, physical)
    for event in expected:
        for name in ("read_timestamp", "source_timestamp"):
            event[name] *= 1000  # Spark has no milliseconds
        event["sort_keys"] = [
            {"member0": key, "member1": None}
            if isinstance(key, str)
            else {"member0": None, "member1": key}
            for key in event["sort_keys"]
        ]
    same(read(found / f"{source}.avro{INFERRED}"), expected)


def as_given(kind: UnifiedType, value: Any) -> Any:
    """A value of JSON as Spark has it in the type of `DDL`."""
    match kind.kind:
        case _ if value is None:
            return None
        case UnifiedKind.DATE | UnifiedKind.DATETIME | UnifiedKind.TIMESTAMP:
            return value
        case UnifiedKind.DOUBLE | UnifiedKind.FLOAT | UnifiedKind.DECIMAL:
            return value
        case UnifiedKind.TIMESTAMP_WITH_TIME_ZONE:
            return value["timestamp"]
        case UnifiedKind.ARRAY if kind.element == types.TIMESTAMP_WITH_TIME_ZONE:
            return _with_moments(as_json(kind, value), iter(value["elements"]))
        case _:
            return as_json(kind, value)


def _with_moments(level: Any, elements: Any) -> Any:
    if level["nestedArray"] is None:
        element = next(elements)
        return {"elementValue": element and element["timestamp"]}
    return {"nestedArray": [_with_moments(one, elements) for one in level["nestedArray"]]}


@SOURCES
def test_spark_reads_every_value_of_json_lines(found: Path, source: EventSource) -> None:
    told = TypedEvents.of(source)
    expected = told.expected(int, as_given)
    events = read(found / f"{source}.jsonl{GIVEN}")
    for event, one in zip(events, expected, strict=True):
        for name in ("read_timestamp", "source_timestamp"):
            one[name] *= 1000
        one["sort_keys"] = [*map(str, one["sort_keys"])]
        for drawn in told.drawn:
            name = drawn.column.name
            if drawn.column.type == types.JSON and event["payload"][name] is not None:
                # What is nested is text for Spark where the schema says so; a text is itself.
                text = event["payload"][name]
                is_text = isinstance(one["payload"][name], str)
                event["payload"][name] = (
                    text if is_text else json.loads(text, parse_float=Decimal, parse_int=Decimal)
                )
    same(events, expected)
    inferred = read(found / f"{source}.jsonl{INFERRED}")
    assert [one["uuid"] for one in inferred] == [one["uuid"] for one in expected]
    assert {*inferred[0]["payload"]} == {drawn.column.name for drawn in told.drawn}


class ToolsJson:
    """Reads the JSON encoding of Avro, by the schema of the file."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}

    def value(self, schema: Any, told: Any) -> Any:  # noqa: PLR0911
        if isinstance(schema, list):
            return self._branch(schema, told)
        kind = self._named.get(schema, schema) if isinstance(schema, str) else schema
        kind = kind if isinstance(kind, Mapping) else {"type": kind}
        match kind["type"]:
            case "record":
                self._named[kind["name"]] = kind
                assert list(told) == [one["name"] for one in kind["fields"]]
                return {
                    one["name"]: self.value(one["type"], told[one["name"]])
                    for one in kind["fields"]
                }
            case "array":
                return [self.value(kind["items"], one) for one in told]
            case "bytes":
                content = told.encode("latin-1")
                if kind.get("logicalType") != "decimal":
                    return content
                number = int.from_bytes(content, "big", signed=True)
                return Decimal(number).scaleb(-kind["scale"])
            case "float":
                return float(np.float32(told))
            case "double":
                return float(told)
            case _:
                return told

    def _branch(self, schema: list[Any], told: Any) -> Any:
        if told is None:
            assert "null" in schema
            return None
        ((name, value),) = told.items()
        for one in schema:
            own = one if isinstance(one, str) else one.get("name", one["type"])
            if own == name:
                return self.value(one, value)
        raise AssertionError(f"{name} is not in {schema}")


@SOURCES
def test_the_tools_of_avro_read_every_value(found: Path, source: EventSource) -> None:
    told = TypedEvents.of(source)
    text = (found / f"{source}.avro{BY_TOOLS}").read_text(encoding="utf-8")
    reader = ToolsJson()
    events = [reader.value(told.described.schema, json.loads(line)) for line in text.splitlines()]
    assert all(
        list(event["payload"]) == [one.column.name for one in told.drawn] for event in events
    )
    same(events, told.expected(int, physical))
