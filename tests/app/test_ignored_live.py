"""What the project ignores of a live source: the rows stay, and the table says that it differs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mirrorlake import Project, root
from mirrorlake.app.status import mirror_status
from mirrorlake.capture.backfill.jobs import BackfillRecords, BackfillRequest
from mirrorlake.capture.records.records import Records
from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.sources.postgresql.publishing.publication import loses_additions
from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import EvolvingDatabase
from tests.conftest import Database

pytestmark = pytest.mark.postgres

TABLES = (
    "create table log (id int primary key)",
    "create table pears (id int primary key, note text)",
    "insert into pears values (1, 'a'), (2, 'b')",
    "create table parts (id int primary key, note text) partition by range (id)",
    "create table parts1 partition of parts for values from (0) to (10)",
    "create table parts2 partition of parts for values from (10) to (20)",
    "create table parts3 (id int primary key, note text)",
    "insert into parts values (1, 'a'), (11, 'b')",
    "insert into parts3 values (21, 'c')",
)
IGNORED = frozenset(
    {
        SchemaChangeKind.TABLE_TRUNCATED,
        SchemaChangeKind.PARTITION_CHANGED,
        SchemaChangeKind.PUBLICATION_CHANGED,
    }
)
SELECTED = ("public.log", "public.pears", "public.parts")


def begun(
    database: Database, store: LocalStore, **settings: frozenset[SchemaChangeKind]
) -> EvolvingDatabase:
    evolving = EvolvingDatabase(database, store, selected=SELECTED, **settings)
    evolving.begin(*TABLES)
    return evolving


def reasons(evolving: EvolvingDatabase) -> dict[str, str]:
    """Of the tables that differ."""
    found = mirror_status.read(Project.of_root(evolving.store.root))
    return {one.table: str(one.facts()["differs"]["reason"]) for one in found.tables if one.differs}


def rows(evolving: EvolvingDatabase, table: str) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in evolving.mirrored(table))


@pytest.mark.parametrize(
    ("table", "statements", "says", "expected"),
    [
        (
            "pears",
            ["truncate pears; insert into pears values (2, 'again'), (3, 'c')"],
            "the table was truncated in the source, and its rows stay",
            [(1, "a"), (2, "again"), (3, "c")],
        ),
        pytest.param(
            "parts",
            ["alter table parts detach partition parts2", "insert into parts values (2, 'x')"],
            "partition",
            [(1, "a"), (2, "x"), (11, "b")],
            marks=pytest.mark.full,
        ),
        (
            "parts",
            [
                "drop table parts2",
                "create table parts4 partition of parts for values from (10) to (20)",
                "insert into parts values (11, 'again')",
            ],
            "partition",
            [(1, "a"), (11, "again")],
        ),
        pytest.param(
            "parts",
            [
                "alter table parts attach partition parts3 for values from (20) to (30)",
                "update parts set note = note || '!'",
            ],
            "partition",
            [(1, "a!"), (11, "b!"), (21, "c!")],
            marks=pytest.mark.full,
        ),
        (
            "pears",
            [
                "alter publication {0} drop table pears; insert into pears values (3, 'lost')",
                "",
                "insert into pears values (4, 'd')",
            ],
            "publication",
            [(1, "a"), (2, "b"), (4, "d")],
        ),
    ],
)
@pytest.mark.parametrize("each", [True, pytest.param(False, marks=pytest.mark.full)])
def test_rows_stay_and_the_table_is_marked_until_it_is_backfilled(
    source_database: Database,
    store: LocalStore,
    table: str,
    statements: Sequence[str],
    says: str,
    expected: Sequence[tuple[object, ...]],
    *,
    each: bool,
) -> None:
    """each: capture sees each statement by itself."""
    version = source_database.sql.info.server_version
    if "publication" in says and loses_additions(version):
        pytest.skip("there the table stops")
    evolving = begun(source_database, store, ignored=IGNORED)
    for statement in statements:
        evolving.run(*filter(None, [statement.format(evolving.made)]))
        if each or "publication" in says:
            evolving.capture()
    evolving.run("insert into log values (1)")
    evolving.capture()
    evolving.apply()
    assert rows(evolving, table) == expected
    evolving.check("log")
    assert evolving.read_again() == []
    (name,) = reasons(evolving)
    assert name == f"public.{table}"
    assert says in reasons(evolving)[name]
    assert "mirror.schema_change ignores it" in reasons(evolving)[name]
    BackfillRecords(Records(store, root.LANDING)).request(BackfillRequest("own", name))
    evolving.capture()
    evolving.live(["insert into log values (2)"], each=True)
    evolving.check(table)
    assert reasons(evolving) == {}


@pytest.mark.parametrize(
    ("kind", "statement"),
    [
        (SchemaChangeKind.TABLE_TRUNCATED, "truncate pears"),
        (SchemaChangeKind.TABLE_RENAMED, "alter table pears rename to plums"),
    ],
)
def test_the_table_stops_and_stays_as_it_is(
    database: Database, store: LocalStore, kind: SchemaChangeKind, statement: str
) -> None:
    evolving = EvolvingDatabase(database, store, stops_at=frozenset({kind}))
    evolving.begin(*TABLES)
    evolving.live([statement, "insert into log values (1)"], each=True)
    assert evolving.stopped().keys() == {"public.pears"}
    assert rows(evolving, "pears") == [(1, "a"), (2, "b")]
    evolving.check("log", stopped={"public.pears"})
