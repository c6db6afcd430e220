"""Unified types: what each looks like in Avro, and what becomes one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from fastavro.schema import parse_schema
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlake.events import types
from mirrorlake.events.avro_schema import (
    TRUE_NAME,
    column_at,
    event_schema,
    payload_columns,
    schema_key,
    unified_of,
)
from mirrorlake.events.envelope import EventSource
from mirrorlake.events.maps import mysql, oracle, others, postgresql, unified_type
from mirrorlake.events.maps.declared import DateProfile
from mirrorlake.events.types import EventColumn, UnifiedKind, UnifiedType
from tests.docs.event_types import DECLARED
from tests.profiles import tries

MICROS = {"type": "long", "logicalType": "timestamp-micros"}
TIME = {"type": "long", "logicalType": "time-micros"}
OFFSET = {"type": "int", "logicalType": "time-millis"}
DATE = {"type": "int", "logicalType": "date"}


def record(name: str, **fields: Any) -> dict[str, Any]:
    told = [{"name": field, "type": kind} for field, kind in fields.items()]
    return {"type": "record", "name": name, "fields": told}


AVRO = [
    ("ST-112", types.BOOLEAN, "boolean"),
    ("ST-113", types.BYTES, "bytes"),
    ("ST-114", types.DATE, DATE),
    ("ST-115", types.DATETIME, record("datetime", date=DATE, time=TIME)),
    (
        "ST-116",
        types.decimal(50, 7),
        {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 7},
    ),
    ("ST-117", types.DOUBLE, "double"),
    ("ST-118", types.FLOAT, "float"),
    ("ST-119", types.GEOMETRY, record("geometry", value="bytes", srid="int", type="string")),
    ("ST-120", types.INTEGER, "int"),
    ("ST-121", types.INTERVAL, record("interval", months="int", hours="int", micros="long")),
    ("ST-122", types.JSON, {"type": "string", "logicalType": "json"}),
    ("ST-123", types.LONG, "long"),
    ("ST-124", types.NUMBER, {"type": "string", "logicalType": "number"}),
    ("ST-125", types.STRING, "string"),
    ("ST-126", types.TIME, TIME),
    ("ST-127", types.TIME_INTERVAL, {"type": "long", "logicalType": "time-interval-micros"}),
    ("ST-128", types.TIMESTAMP, MICROS),
    (
        "ST-129",
        types.TIMESTAMP_WITH_TIME_ZONE,
        record("timestampTz", timestamp=MICROS, offset=OFFSET),
    ),
    ("ST-130", types.TIME_WITH_TIME_ZONE, record("timeTz", time=TIME, offset=OFFSET)),
    ("ST-132", types.varchar(9), {"type": "string", "logicalType": "varchar", "length": 9}),
]


def payload(*columns: EventColumn) -> list[dict[str, Any]]:
    schema = event_schema("o", EventSource.POSTGRESQL, columns)
    fields: list[dict[str, Any]] = schema["fields"][-1]["type"]["fields"]
    return fields


@pytest.mark.clause("ST-023", "ST-133")
@pytest.mark.parametrize(
    ("kind", "avro"),
    [
        pytest.param(kind, avro, marks=pytest.mark.clause(clause), id=str(kind))
        for clause, kind, avro in AVRO
    ],
)
def test_a_type_has_its_avro_form_in_a_union_with_null(kind: UnifiedType, avro: Any) -> None:
    assert payload(EventColumn("a", kind)) == [
        {"name": "a", "type": ["null", avro], "default": None}
    ]


@pytest.mark.clause("ST-131")
def test_an_unsupported_column_is_null_alone_because_null_stands_in_no_union_twice() -> None:
    avro = {"type": "null", "logicalType": "unsupported"}
    assert payload(EventColumn("a", types.UNSUPPORTED)) == [{"name": "a", "type": avro}]


@pytest.mark.clause("ST-134")
def test_an_array_is_a_record_of_itself() -> None:
    array = {
        "type": "record",
        "name": "multidimensionalArray_tags",
        "fields": [
            {
                "name": "nestedArray",
                "type": ["null", {"type": "array", "items": "multidimensionalArray_tags"}],
                "default": None,
            },
            {"name": "elementValue", "type": ["null", "string"], "default": None},
        ],
    }
    (found,) = payload(EventColumn("tags", types.array(types.STRING)))
    assert found["type"] == ["null", array]


def every_type() -> st.SearchStrategy[UnifiedType]:
    simple = st.sampled_from([kind for _clause, kind, _avro in AVRO])
    return simple | simple.map(types.array) | st.just(types.UNSUPPORTED)


names = st.text('abZ9_.-é "', min_size=1, max_size=6)


@pytest.mark.clause("ST-017", "ST-018", "ST-021")
@settings(max_examples=tries(200))
@given(columns=st.lists(st.tuples(names, every_type()), max_size=8, unique_by=lambda c: c[0]))
def test_the_columns_of_a_schema_are_read_back_and_every_reader_takes_it(
    columns: list[tuple[str, UnifiedType]],
) -> None:
    told = [EventColumn(name, kind) for name, kind in columns]
    schema = event_schema("ea-main.all types", EventSource.MYSQL, told)
    parse_schema(schema)
    assert payload_columns(schema) == told
    assert [column_at(schema, index) for index in range(len(told))] == told
    with pytest.raises(IndexError):
        column_at(schema, len(told))


@pytest.mark.clause("ST-021")
def test_records_are_named_after_the_object() -> None:
    schema = event_schema("ea-main_alltypes", EventSource.MYSQL, [])
    assert schema["name"] == "ea_main_alltypes"
    assert [f["type"]["name"] for f in schema["fields"][-2:]] == ["source_metadata", "payload"]


def test_names_that_avro_cannot_carry_stand_beside_ones_it_can() -> None:
    found = payload(*(EventColumn(name, types.LONG) for name in ("a b", "a-b", "a_b", "1", "é")))
    told = [(field["name"], field.get(TRUE_NAME)) for field in found]
    assert told == [("a_b_2", "a b"), ("a_b_3", "a-b"), ("a_b", None), ("_1", "1"), ("_", "é")]


@pytest.mark.clause("ST-023")
def test_a_union_without_a_default_and_types_without_a_union_are_read() -> None:
    assert unified_of(["null", "long"]) == unified_of("long") == types.LONG
    assert unified_of([{"type": "string", "logicalType": "number"}, "null"]) == types.NUMBER
    assert unified_of("timestampTz") == types.TIMESTAMP_WITH_TIME_ZONE


@pytest.mark.parametrize("kind", [["null"], ["null", "int", "string"], "enum", 5, {"type": "map"}])
def test_an_avro_type_that_is_no_unified_type_is_an_error(kind: Any) -> None:
    with pytest.raises(ValueError, match=r"unified|Avro|union"):
        unified_of(kind)


@pytest.mark.clause("ST-039")
def test_the_schema_key_follows_stream_object_metadata_and_columns() -> None:
    def key(stream: str = "s", name: str = "o", source: EventSource = EventSource.MYSQL) -> str:
        return schema_key(stream, name, event_schema(name, source, [column]))

    column = EventColumn("a", types.LONG)
    keys = [key(), key(stream="t"), key(name="p"), key(source=EventSource.ORACLE)]
    column = EventColumn("a", types.DOUBLE)
    keys.append(key())
    assert len(set(keys)) == len(keys)
    assert key() == key()
    assert all(re.fullmatch("[0-9a-f]{40}", one) for one in keys)


MAPS = [
    ("ST-136", "mysql", "tinyint smallint mediumint int year bool tinyint(1) int(11)", "INTEGER"),
    ("ST-137", "mysql", "int_unsigned bigint bit(7) int(10)_unsigned bigint(20)", "LONG"),
    ("ST-137", "mysql", "bigint_unsigned bigint(20)_unsigned bigint(20)_zerofill", "NUMBER"),
    ("ST-138", "mysql", "float float(10,2)", "FLOAT"),
    ("ST-138", "mysql", "double double(10,2)", "DOUBLE"),
    ("ST-138", "mysql", "decimal(10,2)", "DECIMAL(10,2)"),
    ("ST-138", "mysql", "decimal", "DECIMAL(10,0)"),
    ("ST-138", "mysql", "decimal(65,30)_unsigned", "DECIMAL(65,30)"),
    (
        "ST-139",
        "mysql",
        "char(3) varchar(9) tinytext text longtext enum('a','(b)') set('a')",
        "STRING",
    ),
    ("ST-140", "mysql", "binary(3) varbinary(3) blob longblob", "STRING"),
    ("ST-141", "mysql", "json", "JSON"),
    ("ST-143", "mysql", "date datetime(6) timestamp", "TIMESTAMP"),
    ("ST-143", "mysql", "time time(3)", "TIME_INTERVAL"),
    ("ST-147", "oracle", "NUMBER(4) NUMBER(6,0) NUMBER(18)", "LONG"),
    ("ST-147", "oracle", "NUMBER(19)", "DECIMAL(19,0)"),
    ("ST-147", "oracle", "NUMBER(9,2)", "DECIMAL(9,2)"),
    ("ST-147", "oracle", "NUMBER(2,5)", "DECIMAL(5,5)"),
    ("ST-147", "oracle", "NUMBER(5,-2)", "DECIMAL(7,0)"),
    ("ST-147", "oracle", "NUMBER", "NUMBER"),
    ("ST-148", "oracle", "VARCHAR2(20) VARCHAR2(20_CHAR)", "VARCHAR(20)"),
    ("ST-148", "oracle", "DATE", "TIMESTAMP"),
    ("ST-149", "oracle", "CHAR(1) NCHAR NVARCHAR2(3) ROWID UROWID RAW(9) LONG LONG_RAW", "STRING"),
    ("ST-149", "oracle", "BINARY_FLOAT", "FLOAT"),
    ("ST-149", "oracle", "BINARY_DOUBLE FLOAT(126)", "DOUBLE"),
    ("ST-149", "oracle", "TIMESTAMP(6)", "TIMESTAMP"),
    ("ST-149", "oracle", "TIMESTAMP(6)_WITH_TIME_ZONE", "TIMESTAMP_WITH_TIME_ZONE"),
    ("ST-149", "oracle", "BFILE XMLTYPE", "UNSUPPORTED"),
    ("ST-151", "postgresql", "smallint int2 int integer int4 serial smallserial", "INTEGER"),
    ("ST-151", "postgresql", "bigint int8 bigserial oid", "LONG"),
    ("ST-152", "postgresql", "real float4", "FLOAT"),
    ("ST-152", "postgresql", "double_precision float8", "DOUBLE"),
    ("ST-152", "postgresql", "numeric numeric(9,2) decimal money", "NUMBER"),
    ("ST-153", "postgresql", "bool boolean", "BOOLEAN"),
    ("ST-153", "postgresql", "bytea bit(3) bit_varying(9) varbit", "BYTES"),
    ("ST-154", "postgresql", "date", "DATE"),
    ("ST-154", "postgresql", "time time(3)_without_time_zone", "TIME"),
    ("ST-154", "postgresql", "timetz", "TIME_WITH_TIME_ZONE"),
    ("ST-154", "postgresql", "timestamp timestamp(3)_without_time_zone", "TIMESTAMP"),
    ("ST-154", "postgresql", "timestamptz timestamp(3)_with_time_zone", "TIMESTAMP_WITH_TIME_ZONE"),
    ("ST-154", "postgresql", "interval interval(3)", "INTERVAL"),
    ("ST-155", "postgresql", "char(3) varchar text citext uuid inet cidr", "STRING"),
    ("ST-155", "postgresql", "json jsonb", "JSON"),
    ("ST-156", "postgresql", "macaddr pg_lsn xml tsvector mood point hstore", "STRING"),
    ("ST-134", "postgresql", "int4[]", "ARRAY(INTEGER)"),
    ("ST-158", "sqlserver", "tinyint smallint int", "INTEGER"),
    ("ST-158", "sqlserver", "bigint", "LONG"),
    ("ST-158", "sqlserver", "bit", "BOOLEAN"),
    ("ST-158", "sqlserver", "real float(24)", "FLOAT"),
    ("ST-158", "sqlserver", "float float(53)", "DOUBLE"),
    ("ST-158", "sqlserver", "decimal(9,2) numeric(9,2)", "DECIMAL(9,2)"),
    ("ST-158", "sqlserver", "money", "DECIMAL(19,4)"),
    ("ST-158", "sqlserver", "smallmoney", "DECIMAL(10,4)"),
    ("ST-158", "sqlserver", "date", "DATE"),
    ("ST-158", "sqlserver", "time(7)", "TIME"),
    ("ST-158", "sqlserver", "datetime datetime2(7) smalldatetime", "DATETIME"),
    ("ST-158", "sqlserver", "datetimeoffset(7)", "TIMESTAMP_WITH_TIME_ZONE"),
    ("ST-158", "sqlserver", "binary(3) varbinary(max) image", "BYTES"),
    ("ST-158", "sqlserver", "nvarchar(max) xml uniqueidentifier sql_variant", "STRING"),
    ("ST-159", "salesforce", "checkbox boolean", "BOOLEAN"),
    ("ST-159", "salesforce", "integer int", "INTEGER"),
    ("ST-159", "salesforce", "number currency percent double", "DOUBLE"),
    ("ST-159", "salesforce", "date", "DATE"),
    ("ST-159", "salesforce", "date-time datetime", "TIMESTAMP"),
    ("ST-159", "salesforce", "picklist reference id", "STRING"),
    ("ST-160", "mongodb", "_id", "STRING"),
    ("ST-160", "mongodb", "data", "JSON"),
    ("ST-161", "mysql", "vector(3) unheard", "UNSUPPORTED"),
    ("ST-161", "oracle", "sdo_geometry", "UNSUPPORTED"),
]


@pytest.mark.parametrize(
    ("source", "declared", "unified"),
    [
        pytest.param(s, d, u, marks=pytest.mark.clause(clause), id=f"{s} {d}")
        for clause, s, d, u in MAPS
    ],
)
def test_source_types_become_unified_types(source: str, declared: str, unified: str) -> None:
    for one in declared.split():
        as_is = one in {"pg_lsn", "sdo_geometry", "sql_variant", "BINARY_FLOAT", "BINARY_DOUBLE"}
        text = one if as_is or source == "mongodb" else one.replace("_", " ")
        assert str(unified_type(EventSource(source), text)) == unified, one


def test_the_page_of_types_has_every_type_that_is_mapped() -> None:
    known = {
        EventSource.MYSQL: mysql._TYPES.keys() | mysql._DATES.keys(),
        EventSource.ORACLE: oracle._TYPES.keys(),
        EventSource.POSTGRESQL: postgresql._TYPES.keys(),
        EventSource.SQLSERVER: others._SQLSERVER.keys(),
        EventSource.SALESFORCE: others._SALESFORCE.keys(),
        EventSource.MONGODB: others._MONGODB.keys(),
    }
    assert known.keys() == set(EventSource)
    for source, names in known.items():
        assert names <= set(DECLARED[source])


@pytest.mark.clause("ST-142", "ST-144")
def test_dates_of_mysql_are_written_as_genuine_files_have_them_or_as_their_own_types() -> None:
    for profile, expected in (
        (DateProfile.COMPAT, [types.TIMESTAMP] * 3),
        (DateProfile.UNIFIED, [types.DATE, types.DATETIME, types.TIMESTAMP]),
    ):
        declared = ("date", "datetime(6)", "timestamp")
        found = [unified_type(EventSource.MYSQL, one, profile) for one in declared]
        assert found == expected


def test_a_domain_of_postgresql_is_of_the_type_it_stands_on() -> None:
    assert unified_type(EventSource.POSTGRESQL, "date (int4)") == types.INTEGER
    assert unified_type(EventSource.POSTGRESQL, "a (b (int4[]))") == types.array(types.INTEGER)
    assert unified_type(EventSource.POSTGRESQL, "price (numeric(9,2))") == types.NUMBER


def test_every_kind_is_in_the_specification() -> None:
    text = (Path(__file__).parents[2] / "docs/spec/streams.md").read_text()
    told = set(re.findall(r"Unified type ([A-Z_]+)", text))
    assert told == {str(kind) for kind in UnifiedKind} - {"ARRAY"}


def test_impossible_types_are_refused() -> None:
    for make in (
        lambda: types.decimal(0, 0),
        lambda: types.decimal(2, 3),
        lambda: types.varchar(0),
        lambda: UnifiedType(UnifiedKind.ARRAY),
    ):
        with pytest.raises(ValueError, match="no"):
            make()


@pytest.mark.clause("ST-132")
def test_a_varchar_without_a_length_is_a_text_of_any_length() -> None:
    assert unified_of({"type": "string", "logicalType": "varchar"}) == types.STRING


@pytest.mark.clause("ST-116", "ST-132")
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (
            {"type": "bytes", "logicalType": "decimal", "scale": 2},
            "column price: the logical type decimal has no precision",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": "ten"},
            "column price: the precision of the logical type decimal is no number: 'ten'",
        ),
        (
            {"type": "string", "logicalType": "varchar", "length": None},
            "column price: the logical type varchar has no length",
        ),
        ("int96", "column price: 'int96' is no unified type"),
    ],
)
def test_the_column_that_has_no_unified_type_is_named(kind: Any, reason: str) -> None:
    whole = record("t", payload=record("payload", id="long", price=["null", kind]))
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}$"):
        payload_columns(whole)
