"""Tables that are altered while they are captured, as only SQL can."""

from __future__ import annotations

from decimal import Decimal

import pytest

from mirrorlake.model.change import Marker
from mirrorlake.sources.chunk import Changes, SchemaChange
from tests.conformance.scene import events, faults, told
from tests.sources.postgresql.captured import Captured

pytestmark = pytest.mark.postgres

APPLES = "create table apples (id int primary key, size int)"
LOG = "create table log (id int)"


@pytest.mark.parametrize(
    "statement", ["alter table apples rename to pears", "alter table apples set schema other"]
)
def test_a_table_that_was_renamed_stops(any_captured: Captured, statement: str) -> None:
    any_captured.begin("create schema other", APPLES, LOG)
    chunks = any_captured.chunks(
        statement,
        "set search_path = public, other",
        f"insert into {'pears' if 'pears' in statement else 'apples'} values (1, 1)",
        "insert into log values (2)",
    )
    (fault,) = faults(chunks)
    assert str(fault.table) == "public.apples"
    assert fault.error.code == "table_recreated"
    assert told(events(chunks)) == [(Marker.INSERT, 2)]


def test_a_table_that_took_the_name_of_another_stops_both(any_captured: Captured) -> None:
    any_captured.begin(APPLES, "create table apples_new (id int primary key, size int)")
    chunks = any_captured.chunks(
        "drop table apples",
        "alter table apples_new rename to apples",
        "insert into apples values (1, 1)",
    )
    stopped = {str(part.table) for chunk in chunks for part in chunk.parts}
    assert stopped == {"public.apples", "public.apples_new"}


def test_a_column_that_gets_another_type_comes_with_it(any_captured: Captured) -> None:
    any_captured.begin(APPLES)
    chunks = any_captured.chunks(
        "insert into apples values (1, 2)",
        "alter table apples alter column size type bigint",
        "insert into apples values (2, 5000000000)",
    )
    parts = [part for chunk in chunks for part in chunk.parts if isinstance(part, Changes)]
    types = [str(part.table.schema["size"].type) for part in parts]
    assert types == ["integer", "long"]
    assert [event.row["size"] for event in events(chunks)] == [2, 5_000_000_000]


def test_a_column_of_a_type_that_was_made_meanwhile_comes(any_captured: Captured) -> None:
    any_captured.begin(APPLES)
    found = any_captured.changes(
        "create domain price as numeric(9, 2)",
        "alter table apples add column price price",
        "insert into apples values (1, 2, 3.5)",
    )
    assert found[0].row["price"] == Decimal("3.50")


def test_a_column_whose_type_was_dropped_comes_as_text(any_captured: Captured) -> None:
    any_captured.begin("create type mood as enum ('calm')", APPLES, "alter table apples add m mood")
    found = any_captured.changes(
        "insert into apples values (1, 2, 'calm')",
        "alter table apples drop column m",
        "drop type mood",
    )
    assert found[0].row == {"id": 1, "size": 2, "m": "calm"}


def test_a_rewritten_table_goes_on(any_captured: Captured) -> None:
    any_captured.begin(APPLES)
    found = any_captured.changes(
        "insert into apples values (1, 2)",
        "vacuum full apples",
        "update apples set size = 3",
    )
    assert [(event.kind, event.row["size"]) for event in found] == [
        (Marker.INSERT, 2),
        (Marker.UPDATE, 3),
    ]


def test_generated_columns_are_left_out(any_captured: Captured) -> None:
    any_captured.begin(
        "create table apples (id int primary key, twice int generated always as (id * 2) stored)"
    )
    found = any_captured.changes("insert into apples values (1)")
    assert told(found) == [(Marker.INSERT, 1)]
    assert any_captured.snapshot("apples") == [{"id": 1}]


def test_a_key_column_that_was_dropped_leaves_another_key(any_captured: Captured) -> None:
    any_captured.begin("create table apples (id int primary key, code int not null unique)")
    chunks = any_captured.chunks(
        "alter table apples drop column id",
        "alter table apples replica identity using index apples_code_key",
        "insert into apples values (1)",
        "delete from apples",
    )
    assert faults(chunks) == []
    parts = [part for chunk in chunks for part in chunk.parts]
    (told,) = [part.alteration for part in parts if isinstance(part, SchemaChange)]
    assert told is not None
    assert (told.key, told.whole_rows) == (("code",), False)
    assert {part.table.key for part in parts if isinstance(part, Changes)} == {("code",)}
