"""The schema of a table in its log, with and without column mapping."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from mirrorlake.delta.schema import UnknownColumnType, parse
from mirrorlake.model import types
from mirrorlake.model.arrow import arrow_schema
from mirrorlake.model.table import Column, Schema
from tests.delta.handmade import metadata

KINDS = [
    *(types.BOOLEAN, types.BYTE, types.SHORT, types.INTEGER, types.LONG, types.FLOAT),
    *(types.DOUBLE, types.STRING, types.BINARY, types.DATE, types.TIMESTAMP),
    *(types.decimal(1, 0), types.decimal(38, 38)),
]
SCHEMA = Schema.of([Column(f"c {n}", kind, n % 2 == 0) for n, kind in enumerate(KINDS)])


@pytest.mark.parametrize("mapped", [False, True])
def test_a_schema_comes_back_from_the_log(mapped: bool) -> None:
    assert parse(metadata(SCHEMA, mapped=mapped)).schema == SCHEMA


def test_without_mapping_files_have_the_names_of_the_table() -> None:
    found = parse(metadata(SCHEMA))
    assert list(found.physical) == SCHEMA.names
    assert found.file_schema().names == SCHEMA.names


def test_with_mapping_files_have_the_physical_names_and_ids() -> None:
    fields = list(parse(metadata(SCHEMA, mapped=True)).file_schema())
    assert [field.name for field in fields] == [f"col-{n}" for n in range(1, len(KINDS) + 1)]
    assert [field.metadata[b"PARQUET:field_id"] for field in fields] == [
        str(n).encode() for n in range(1, len(KINDS) + 1)
    ]


def test_leftovers_of_a_mapping_that_is_off_do_not_count() -> None:
    mapped = metadata(SCHEMA, mapped=True)
    mapped["configuration"]["delta.columnMapping.mode"] = "none"
    assert list(parse(mapped).physical) == SCHEMA.names


def test_files_hold_the_types_of_the_table() -> None:
    assert parse(metadata(SCHEMA)).file_schema().types == arrow_schema(SCHEMA).types


def test_columns_of_files_may_be_null_whatever_the_table_says() -> None:
    assert all(field.nullable for field in parse(metadata(SCHEMA)).file_schema())


@pytest.mark.parametrize(
    "kind",
    [
        "timestamp_ntz",
        "variant",
        {"type": "struct", "fields": []},
        {"type": "array", "elementType": "long", "containsNull": True},
    ],
    ids=str,
)
def test_a_column_of_another_type_is_refused_by_its_name(kind) -> None:
    text = {"fields": [{"name": "odd", "type": kind, "nullable": True, "metadata": {}}]}
    with pytest.raises(UnknownColumnType, match="odd"):
        parse({"schemaString": json.dumps(text)})


def test_moments_of_files_are_utc_microseconds() -> None:
    schema = Schema.of([Column("at", types.TIMESTAMP)])
    assert parse(metadata(schema)).file_schema().types == [pa.timestamp("us", "UTC")]
