"""The source-specific metadata, field by field."""

from __future__ import annotations

from typing import Any

import pytest

from mirrorlake.events.avro_schema import event_schema
from mirrorlake.events.envelope import EventSource
from mirrorlake.events.metadata import (
    ALIASES,
    AS_CHOSEN,
    BACKFILL_VALUES,
    FIELDS_OF,
    OBJECT_PARTS,
    SORT_KEYS_OF,
    MetadataSwitches,
    metadata_fields,
)

STRINGS = {"type": "array", "items": "string"}
MYSQL, ORACLE, POSTGRESQL = EventSource.MYSQL, EventSource.ORACLE, EventSource.POSTGRESQL
SQLSERVER, SALESFORCE = EventSource.SQLSERVER, EventSource.SALESFORCE
MONGODB = EventSource.MONGODB

FIELDS = [
    (MYSQL, "ST-045", "log_file", "string"),
    (MYSQL, "ST-046", "log_position", "long"),
    (MYSQL, "ST-047", "primary_keys", STRINGS),
    (MYSQL, "ST-048", "is_deleted", "boolean"),
    (MYSQL, "ST-049", "database", "string"),
    (MYSQL, "ST-050", "table", "string"),
    (MYSQL, "ST-051", "change_type", "string"),
    (ORACLE, "ST-052", "log_file", "string"),
    (ORACLE, "ST-053", "scn", "long"),
    (ORACLE, "ST-054", "row_id", "string"),
    (ORACLE, "ST-055", "is_deleted", "boolean"),
    (ORACLE, "ST-056", "database", "string"),
    (ORACLE, "ST-057", "schema", "string"),
    (ORACLE, "ST-058", "table", "string"),
    (ORACLE, "ST-059", "change_type", "string"),
    (ORACLE, "ST-060", "tx_id", "string"),
    (ORACLE, "ST-061", "rs_id", "string"),
    (ORACLE, "ST-062", "ssn", "long"),
    (ORACLE, "ST-063", "primary_keys", STRINGS),
    (POSTGRESQL, "ST-064", "schema", "string"),
    (POSTGRESQL, "ST-065", "table", "string"),
    (POSTGRESQL, "ST-066", "is_deleted", "boolean"),
    (POSTGRESQL, "ST-067", "change_type", "string"),
    (POSTGRESQL, "ST-068", "tx_id", "string"),
    (POSTGRESQL, "ST-070", "lsn", "string"),
    (POSTGRESQL, "ST-071", "primary_keys", STRINGS),
    (SQLSERVER, "ST-072", "table", "string"),
    (SQLSERVER, "ST-075", "database", "string"),
    (SQLSERVER, "ST-075", "schema", "string"),
    (SQLSERVER, "ST-076", "is_deleted", "boolean"),
    (SQLSERVER, "ST-077", "lsn", "string"),
    (SQLSERVER, "ST-078", "tx_id", "string"),
    (SQLSERVER, "ST-079", "physical_location", {"type": "array", "items": "int"}),
    (SQLSERVER, "ST-080", "replication_index", STRINGS),
    (SQLSERVER, "ST-081", "change_type", "string"),
    (SALESFORCE, "ST-082", "object_name", "string"),
    (SALESFORCE, "ST-083", "domain", "string"),
    (SALESFORCE, "ST-084", "is_deleted", "boolean"),
    (SALESFORCE, "ST-085", "change_type", "string"),
    (SALESFORCE, "ST-086", "primary_keys", STRINGS),
    (MONGODB, "ST-087", "database", "string"),
    (MONGODB, "ST-088", "collection", "string"),
    (MONGODB, "ST-089", "change_type", "string"),
    (MONGODB, "ST-090", "is_deleted", "boolean"),
    (MONGODB, "ST-091", "primary_keys", STRINGS),
]


def types_of(source: EventSource, switches: MetadataSwitches = AS_CHOSEN) -> dict[str, Any]:
    schema = event_schema("o", source, [], switches)
    record = next(f["type"] for f in schema["fields"] if f["name"] == "source_metadata")
    found = {}
    for field in record["fields"]:
        kind = field["type"]
        found[field["name"]] = kind[1] if isinstance(kind, list) and kind[0] == "null" else kind
    return found


@pytest.mark.parametrize(
    ("source", "name", "kind"),
    [
        pytest.param(source, name, kind, marks=pytest.mark.clause(clause), id=f"{source}-{name}")
        for source, clause, name, kind in FIELDS
    ],
)
def test_a_field_has_the_type_of_the_event_page(source: EventSource, name: str, kind: Any) -> None:
    assert types_of(source)[name] == kind


@pytest.mark.clause("ST-008")
@pytest.mark.parametrize("source", EventSource)
def test_a_source_has_these_fields_and_no_others(source: EventSource) -> None:
    assert set(types_of(source)) == {name for one, _clause, name, _kind in FIELDS if one is source}


@pytest.mark.clause("ST-069")
def test_the_transaction_of_postgresql_is_a_text_or_by_a_switch_a_long() -> None:
    assert types_of(POSTGRESQL)["tx_id"] == "string"
    assert types_of(POSTGRESQL, MetadataSwitches(long_tx_id=True))["tx_id"] == "long"


@pytest.mark.clause("ST-073", "ST-074", "ST-075")
def test_the_printed_types_of_sql_server_are_written_by_a_switch() -> None:
    literal = types_of(SQLSERVER, MetadataSwitches(literal_types=True))
    assert (literal["database"], literal["schema"]) == ("long", STRINGS)


@pytest.mark.clause("ST-093")
def test_fields_of_a_position_hold_in_a_backfill_what_their_types_can() -> None:
    assert BACKFILL_VALUES[MYSQL] == {"log_file": "", "log_position": 0}
    told = {"rs_id": "", "ssn": 0, "log_file": "", "tx_id": None}
    assert BACKFILL_VALUES[ORACLE] == told
    assert BACKFILL_VALUES[POSTGRESQL] == BACKFILL_VALUES[SQLSERVER] == {"lsn": None, "tx_id": None}
    for source, values in BACKFILL_VALUES.items():
        nullable = {field.name: field.is_nullable for field in metadata_fields(source)}
        assert all(nullable[name] for name, value in values.items() if value is None)


@pytest.mark.clause("ST-094", "ST-107")
def test_other_names_stand_for_fields_that_there_are() -> None:
    assert ALIASES == {
        "binlog_file": "log_file",
        "binlog_position": "log_position",
        "primary_key": "primary_keys",
    }


@pytest.mark.parametrize(
    ("source", "fields", "backfill"),
    [
        pytest.param(*case, marks=pytest.mark.clause(clause))
        for clause, *case in [
            ("ST-199", MYSQL, ["source_timestamp", "log_file", "log_position"], [None, "", 0]),
            ("ST-200", ORACLE, ["source_timestamp", "scn", "rs_id", "ssn"], [None, None, "", 0]),
            ("ST-201", POSTGRESQL, ["source_timestamp", "lsn"], [None, ""]),
            ("ST-202", SQLSERVER, ["source_timestamp", "lsn"], [None, ""]),
            ("ST-203", SALESFORCE, ["source_timestamp"], [None]),
            ("ST-204", MONGODB, ["seconds", "increment"], [None, None]),
        ]
    ],
)
def test_sort_keys_repeat_the_fields_of_the_position(
    source: EventSource, fields: list[str], backfill: list[Any]
) -> None:
    assert [key.field for key in SORT_KEYS_OF[source]] == fields
    assert [key.backfill for key in SORT_KEYS_OF[source]] == backfill


def test_the_object_is_named_by_fields_that_the_source_has() -> None:
    for source, parts in OBJECT_PARTS.items():
        assert {*parts} <= {field.name for field in FIELDS_OF[source]}
