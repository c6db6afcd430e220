"""Databases that do not speak UTF-8."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pyarrow as pa
import pytest

from mirrorlake.capture.backfill.reading import ChunkLimits, chunks
from mirrorlake.demo.server import EmbeddedServer
from mirrorlake.errors import BadValue, PrerequisiteMissing
from mirrorlake.model.keys import KeyRange
from mirrorlake.sources.base import ALTERED, CheckSeverity
from tests.conformance.scene import events, faults, loaded
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


WORDS = ("a", "b", "€", "‚", "™", "Š", "é", "ÿ", "z", "À")


@pytest.mark.parametrize("kind", ["text", "word", "varchar(9)", "mood"])
@pytest.mark.parametrize("foreign", ["WIN1252", "SQL_ASCII"], indirect=True)
def test_texts_of_a_key_have_the_order_of_the_mirror(foreign: Captured, kind: str) -> None:
    words = ", ".join(f"'{word}'" for word in WORDS)
    foreign.run(
        "create domain word as text",
        f"create type mood as enum ({words})",
        f"create table things (n int, k {kind}, u uuid, primary key (k, u, n))",
        f"insert into things select 1, w::{kind}, md5(w::text)::uuid from unnest(array[{words}]) w",
    )
    table = foreign.discovered("things")
    first, last = (pa.table({"k": [word]}) for word in ("a", "™"))
    with closing(foreign.source().snapshot()) as snapshot:
        found = [*chunks(snapshot, table, KeyRange(), ChunkLimits(3))]
        within = KeyRange(first, last, is_closed=True)
        (part,) = chunks(snapshot, table, within, ChunkLimits(99))
        assert snapshot.estimated(table, within) is not None
        # A character that the encoding does not have.
        (beyond,) = chunks(snapshot, table, KeyRange(pa.table({"k": ["😀"]})), ChunkLimits(99))
    assert [word for chunk in found for word in chunk.rows["k"].to_pylist()] == sorted(WORDS)
    assert part.rows["k"].to_pylist() == [word for word in sorted(WORDS) if "a" <= word <= "™"]
    assert beyond.rows.num_rows == 0


@pytest.mark.parametrize("foreign", ["WIN1252", "SQL_ASCII"], indirect=True)
def test_a_reading_that_begins_anew_at_an_infinity_has_texts_as_before(foreign: Captured) -> None:
    foreign.run(
        "create table things (n int, day date, k text, primary key (n, day, k))",
        "insert into things values (1, '2024-02-29', 'é'), (1, 'infinity', 'ê'), "
        "(1, '9999-12-31', 'è'), (2, '2024-02-29', '€')",
    )
    with closing(foreign.source().snapshot()) as snapshot:
        table = foreign.discovered("things")
        for _again in range(2):
            (chunk,) = chunks(snapshot, table, KeyRange(), ChunkLimits(99))
            assert chunk.rows["k"].to_pylist() == ["é", "è", "ê", "€"]


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


def run_bytes(captured: Captured, *statements: bytes) -> None:
    """Statements with characters that are not UTF-8."""
    with psycopg.connect(captured.database.url, autocommit=True) as connection:
        connection.execute("set client_encoding to 'SQL_ASCII'")
        for statement in statements:
            connection.execute(statement)


UNSELECTED = {
    "table": [b'create schema s; create table s."t\xe9" (id int primary key)'],
    "schema": [b'create schema "s\xe9"; create table "s\xe9".t (id int primary key)'],
    "column": [b'create schema s; create table s.t ("c\xe9" int primary key)'],
    "enum": [
        b"create schema s; create type s.e as enum ('x\xe9')",
        b"create table s.t (e s.e primary key)",
    ],
    "type": [b'create domain "d\xe9" as int'],
    "default": [
        b"create schema s; create table s.t (id int primary key)",
        b"insert into s.t values (1)",
        b"alter table s.t add column v text default 'x\xe9'",
    ],
}


@pytest.mark.parametrize("what", [*UNSELECTED])
@pytest.mark.parametrize("foreign", ["SQL_ASCII"], indirect=True)
def test_what_is_not_selected_need_not_be_utf_8(foreign: Captured, what: str) -> None:
    foreign.select("public.*")
    foreign.run(f"create publication {foreign.settings.publication} for all tables")
    foreign.run("create table things (id int primary key)")
    run_bytes(foreign, *UNSELECTED[what])
    foreign.begin()
    assert {f.severity for f in foreign.source().check()} <= {
        CheckSeverity.OK,
        CheckSeverity.WARNING,
    }
    foreign.run("insert into things values (1)")
    run_bytes(foreign, b'drop schema if exists "s\xe9" cascade')
    with foreign.streaming() as (source, reader):
        chunks = reader.read_to(source.current())
        assert source.watch(foreign.tables)
    assert [event.row["id"] for event in events(chunks)] == [1]
    foreign.select("other.*")
    source = foreign.source()
    with pytest.raises(PrerequisiteMissing):
        source.discover()


SELECTED = {
    r"the name public.t\xe9": [b'create table "t\xe9" (id int primary key)'],
    r"the name of column c\xe9": [b'create table t (id int primary key, "c\xe9" int)'],
    "the value of column v in rows from before it was added": [
        b"create table t (id int primary key)",
        b"insert into t values (1)",
        b"alter table t add column v text default 'x\xe9'",
    ],
    r"the name of partition public.t\xe9": [
        b"create table t (id int primary key) partition by list (id)",
        b'create table "t\xe9" partition of t default',
    ],
}


@pytest.mark.parametrize("what", [*SELECTED])
@pytest.mark.parametrize("foreign", ["SQL_ASCII"], indirect=True)
def test_a_table_that_is_described_with_other_texts_is_refused(
    foreign: Captured, what: str
) -> None:
    foreign.run("create table things (id int primary key)")
    run_bytes(foreign, *SELECTED[what])
    (error,) = [table.refused for table in foreign.source().discover() if table.refused]
    assert isinstance(error, BadValue)
    assert error.what == f"{what} is not UTF-8"
    (finding,) = [f for f in foreign.source().check() if f.severity is CheckSeverity.ERROR]
    assert finding.message == error.what


@pytest.mark.parametrize(
    "change",
    [
        b'alter table t rename column v to "c\xe9"',
        b"alter table t add column w text default 'x\xe9'",
        b'alter table t add column "c\xe9" int',
    ],
)
@pytest.mark.parametrize("foreign", ["SQL_ASCII"], indirect=True)
def test_a_table_that_comes_to_be_described_with_other_texts_stops(
    foreign: Captured, change: bytes
) -> None:
    foreign.begin("create table t (id int primary key, v text)", "create table u (v text)")
    foreign.run("insert into t values (1, 'a')")
    with foreign.streaming() as (source, reader):
        assert not faults(reader.read_to(source.current()))
        run_bytes(foreign, change)
        (finding,) = [f for f in source.watch(foreign.tables) if f.check == ALTERED]
        assert str(finding.table) == "public.t"
        foreign.run("insert into t values (2, 'b')", "insert into u values ('c')")
        chunks = reader.read_to(source.current())
    (fault,) = faults(chunks)
    assert isinstance(fault.error, BadValue)
    assert fault.error.what == finding.message
    assert [event.table for event in events(chunks)] == ["u"]


@pytest.mark.parametrize("foreign", ["SQL_ASCII"], indirect=True)
def test_a_column_that_was_added_with_another_text_is_mirrored_when_it_is_gone(
    foreign: Captured,
) -> None:
    (what,) = [what for what in SELECTED if "from before" in what]
    run_bytes(foreign, *SELECTED[what])
    assert foreign.discovered("t").refused
    foreign.run("update t set v = 'a'", "vacuum full t")
    foreign.begin()
    assert foreign.discovered("t").refused is None
    assert foreign.snapshot("t") == [{"id": 1, "v": "a"}]


@pytest.mark.parametrize("foreign", ["SQL_ASCII"], indirect=True)
def test_constraints_and_defaults_need_not_be_utf_8(foreign: Captured) -> None:
    run_bytes(
        foreign,
        b"create type e as enum ('x\xe9', 'b')",
        b"create table t (id int primary key, v text default 'x\xe9', e e)",
        b"alter table t add constraint \"c\xe9\" check (v <> '\xe9')",
    )
    foreign.begin()
    found = foreign.changes("insert into t values (1, 'a', 'b')")
    assert [event.row for event in found] == [{"id": 1, "v": "a", "e": "b"}]
