"""Databases that do not speak UTF-8."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mirrorlake.demo.server import EmbeddedServer
from mirrorlake.errors import BadValue
from tests.conformance.scene import faults, loaded
from tests.conftest import database_on
from tests.sources.postgresql.captured import Captured

pytestmark = pytest.mark.postgres


@pytest.fixture
def foreign(postgres18: EmbeddedServer, request: pytest.FixtureRequest) -> Iterator[Captured]:
    """A database in another encoding."""
    options = f"encoding '{request.param}' locale 'C' template template0"
    for database in database_on(postgres18, options):
        database.execute("set client_encoding to 'UTF8'")
        captured = Captured(database, database.settings())
        yield captured
        captured.close()


@pytest.mark.parametrize("foreign", ["LATIN1"], indirect=True)
def test_texts_of_another_encoding_come_as_utf_8(foreign: Captured) -> None:
    foreign.begin("create table things (id int primary key, v text)")
    found = foreign.changes("insert into things values (1, 'é')")
    assert [event.row["v"] for event in found] == ["é"]
    assert [row["v"] for row in foreign.snapshot("things")] == ["é"]


@pytest.mark.parametrize("foreign", ["SQL_ASCII"], indirect=True)
def test_a_text_that_is_not_utf_8_stops_its_table(foreign: Captured) -> None:
    foreign.begin("create table things (id int primary key, v text)")
    (fault,) = faults(foreign.chunks(r"insert into things values (1, E'a\xff')"))
    assert isinstance(fault.error, BadValue)
    with pytest.raises(BadValue, match="not UTF-8"):
        foreign.snapshot("things")


@pytest.mark.parametrize("foreign", ["SQL_ASCII"], indirect=True)
def test_an_array_that_is_not_utf_8_stops_its_table(foreign: Captured) -> None:
    foreign.begin("create table things (id int primary key, v text[])")
    (fault,) = faults(foreign.chunks(r"insert into things values (1, array[E'a\xff'])"))
    assert isinstance(fault.error, BadValue)


@pytest.mark.parametrize("foreign", ["SQL_ASCII"], indirect=True)
def test_texts_that_are_utf_8_come_from_a_database_without_encoding(foreign: Captured) -> None:
    foreign.run("create table things (id int primary key, v text)", "create table others (v text)")
    foreign.run("insert into things values (1, 'é')", "insert into others values ('ß')")
    source = foreign.source()
    tables = source.discover()
    snapshot = source.objects.establish(tables).snapshot
    found = [row["v"] for table in tables for row in loaded(snapshot, table)]
    snapshot.close()
    assert found == ["ß", "é"]
