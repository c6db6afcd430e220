"""Every built-in type: loaded and captured as the documentation says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from mirrorlake.sources.postgresql.catalog import read_types
from tests.conformance.scene import changes_now, loaded
from tests.conftest import VERSIONS, Database, database_on
from tests.sources.postgresql.captured import BEGINNING, Captured
from tests.sources.postgresql.type_cases import CASES, SETUP, Case, shown

pytestmark = pytest.mark.postgres


def test_only_the_types_of_the_server_are_remembered_between_two_looks(database: Database) -> None:
    """There are hundreds of them, and a stream in which nothing happens looks every 30 seconds."""
    database.execute("create type mood as enum ('glad')")
    first = read_types(database.sql)
    database.execute("alter type mood rename to feeling", "create domain short as varchar(3)")
    again = read_types(database.sql, first)
    oids = [oid for (oid,) in database.sql.execute("select oid::bigint from pg_type")]
    assert all(oid in again for oid in oids)
    number = "select oid::bigint from pg_type where typname = %s"
    for name, told in [("int4", "int4"), ("feeling", "feeling"), ("short", "short (varchar)")]:
        ((oid,),) = database.sql.execute(number, [name])
        assert again.resolve(oid, -1).name == told
    assert again.builtin == first.builtin


@dataclass
class Read:
    """One table with a column for each case, a row for each literal, and a row of NULL."""

    types: dict[str, str]
    loaded: list[dict[str, Any]]
    captured: list[dict[str, Any]]


@pytest.fixture(scope="module", params=VERSIONS)
def read(request: pytest.FixtureRequest) -> Iterator[Read]:
    for database in database_on(request.getfixturevalue(f"postgres{request.param}")):
        yield read_both_ways(database)


def read_both_ways(database: Database) -> Read:
    captured = Captured(database, database.settings())
    captured.run(SETUP)
    cases = {name(case): case for case in CASES if can_be_had(database, case)}
    columns = ", ".join(f"{column} {case.type}" for column, case in cases.items())
    captured.run(f"create table things (id int primary key, {columns})")
    captured.run(*rows_of(cases))
    source = captured.source()
    tables = source.discover()
    snapshot = source.objects.establish(tables).snapshot
    first = loaded(snapshot, tables[0])
    snapshot.close()
    captured.run("truncate things", *rows_of(cases))
    later = [event.row for event in changes_now(source, tables, BEGINNING) if event.row]
    captured.close()
    return Read(
        types={column.name: str(column.type) for column in tables[0].schema},
        loaded=sorted(first, key=lambda row: row["id"]),
        captured=sorted(later, key=lambda row: row["id"]),
    )


def can_be_had(database: Database, case: Case) -> bool:
    return bool(database.sql.execute(f"select {case.needs}").fetchone()[0])


def name(case: Case) -> str:
    return f"c{CASES.index(case)}"


def rows_of(cases: dict[str, Case]) -> Iterator[str]:
    """Row i has the i-th literal of each case, the last one nothing but NULL."""
    most = max(len(case.values) for case in cases.values())
    for number in range(most + 1):
        literals = [[*case.values, *["null"] * (most + 1)][number] for case in cases.values()]
        yield f"insert into things values ({number}, {', '.join(literals)})"


@pytest.mark.parametrize("case", CASES, ids=str)
class TestTypes:
    def test_a_column_becomes_what_is_documented(self, read: Read, case: Case) -> None:
        needs(read, case)
        assert read.types[name(case)] == case.becomes

    def test_loaded_values_are_those_documented(self, read: Read, case: Case) -> None:
        needs(read, case)
        found = [row[name(case)] for row in read.loaded]
        assert shown(found) == shown(expected(case, len(found)))

    def test_captured_values_are_those_documented(self, read: Read, case: Case) -> None:
        needs(read, case)
        found = [row[name(case)] for row in read.captured]
        assert shown(found) == shown(expected(case, len(found)))


def needs(read: Read, case: Case) -> None:
    if name(case) not in read.types:
        pytest.skip(f"this server does not have {case.type}: {case.needs}")


def expected(case: Case, rows: int) -> list[Any]:
    return [*case.values.values(), *[None] * rows][:rows]
