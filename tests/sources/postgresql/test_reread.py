"""Rows read again by their keys, whatever type the key has."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from mirrorlake.errors import TableAltered
from mirrorlake.model.arrow import arrow_schema
from mirrorlake.sources.postgresql.reading import by_key
from tests.sources.postgresql.captured import Captured

pytestmark = pytest.mark.postgres

KEYS = {
    "boolean": "true",
    "smallint": "-7",
    "bigint": "9223372036854775807",
    "real": "1.1",
    "double precision": "'NaN'",
    "numeric": "1.50",
    "numeric(38,10)": "-1.5",
    "text": "E'it''s \\\\ \"é\" %s'",
    "char(5)": "'ab'",
    "bytea": r"'\x00ff27'",
    "date": "'0001-01-01'",
    "timestamp": "'2024-01-02 03:04:05.123456'",
    "timestamptz": "'9999-12-31 23:59:59.999999+00'",
    "uuid": "'123e4567-e89b-12d3-a456-426614174000'",
    "inet": "'10.1.2.3/8'",
    "jsonb": """'{"a": [1, null]}'""",
    "interval": "'1 year -2 days'",
    "int4range": "'[1,5)'",
    "mood": "'calm'",
    "integer[]": "'{1,NULL,3}'",
    "text[]": "array['a', NULL, 'it''s \"odd\"']",
}


@pytest.mark.full
@pytest.mark.parametrize("type_", KEYS)
def test_a_row_is_found_by_a_key_as_it_was_captured(captured: Captured, type_: str) -> None:
    captured.begin(
        "create type mood as enum ('calm')", f"create table apples (k {type_} primary key, n int)"
    )
    (event,) = captured.changes(f"insert into apples values ({KEYS[type_]}, 7)")
    (table,) = captured.tables
    keys = pa.table({"k": [event.row["k"]]}, pa.schema([arrow_schema(table.schema).field("k")]))
    assert captured.source().reread(table, keys)["n"].to_pylist() == [7]


@pytest.mark.parametrize("type_", ["date", "timestamp", "timestamptz"])
def test_a_row_is_found_by_an_infinity_in_its_key(captured: Captured, type_: str) -> None:
    captured.begin(
        f"create table apples (a {type_}, k int, b {type_}, n int, primary key (a, k, b))"
    )
    changes = captured.changes(
        "insert into apples values ('-infinity', 1, 'infinity', 1), "
        "('2024-02-29', 1, 'infinity', 2), ('-infinity', 1, '2024-02-29', 3), "
        "('-infinity', 2, '0001-01-01', 4), ('2024-02-29', 1, '2024-02-29', 5)"
    )
    (table,) = captured.tables
    fields = [arrow_schema(table.schema).field(name) for name in "akb"]
    keys = [{name: event.row[name] for name in "akb"} for event in changes]
    found = captured.source().reread(table, pa.Table.from_pylist(keys, pa.schema(fields)))
    assert sorted(found["n"].to_pylist()) == [1, 2, 3, 4, 5]
    assert {tuple(row[name] for name in "akb") for row in found.to_pylist()} == {
        tuple(key.values()) for key in keys
    }


def test_names_are_read_as_they_are_captured(captured: Captured) -> None:
    captured.run("create schema other", "create sequence other.things")
    captured.begin("create table apples (k int primary key, v regclass)")
    captured.run(f"alter database {captured.database.name} set search_path = other")
    (event,) = captured.changes("insert into apples values (1, 'other.things')")
    assert event.row["v"] == "other.things"
    (table,) = captured.tables
    keys = pa.table({"k": pa.array([1], pa.int32())})
    assert captured.source().reread(table, keys).to_pylist() == [event.row]


def test_rows_are_found_by_keys_that_name_objects(captured: Captured) -> None:
    captured.run("create domain kind as regtype", "create sequence things")
    captured.begin("create table apples (k regclass, d kind, n int, primary key (k, d))")
    insert = "insert into apples values ('things', 'int', 1), ('things', 'text', 2)"
    (event, _other) = captured.changes(insert)
    (table,) = captured.tables
    keys = pa.Table.from_pylist([{"k": event.row["k"], "d": event.row["d"]}])
    assert captured.source().reread(table, keys).to_pylist() == [event.row]


def test_rows_are_found_by_keys_of_several_columns(captured: Captured) -> None:
    captured.begin("create table apples (a int, b text, n int, primary key (a, b))")
    captured.run("insert into apples values (1, 'x', 10), (1, 'y', 20), (2, 'x', 30)")
    keys = pa.table({"a": pa.array([1, 2], pa.int32()), "b": ["y", "y"]})
    found = captured.source().reread(captured.tables[0], keys)
    assert found.to_pylist() == [{"a": 1, "b": "y", "n": 20}]


@pytest.mark.parametrize(
    "change", ["alter table apples drop column n", "alter table apples rename n to m"]
)
def test_a_table_that_has_changed_since_is_an_error_of_the_table(
    captured: Captured, change: str
) -> None:
    captured.begin("create table apples (k int primary key, n int)")
    captured.run("insert into apples values (1, 7)", change)
    keys = pa.table({"k": pa.array([1], pa.int32())})
    with pytest.raises(TableAltered, match="cannot be read again"):
        captured.source().reread(captured.tables[0], keys)


def test_a_type_cannot_change_between_a_look_at_it_and_the_rows(
    captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured.begin("create table apples (k int primary key, n bigint)")
    captured.run("insert into apples values (1, 7)", "set lock_timeout to '50ms'")
    look = by_key.named_columns

    def altered(*given: Any) -> Any:
        found = look(*given)
        with suppress(psycopg.errors.LockNotAvailable):
            captured.run("alter table apples alter n type float8")
        return found

    monkeypatch.setattr(by_key, "named_columns", altered)
    keys = pa.table({"k": pa.array([1], pa.int32())})
    assert captured.source().reread(captured.tables[0], keys)["n"].to_pylist() == [7]
