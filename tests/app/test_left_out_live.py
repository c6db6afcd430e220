"""Tables of a live source that are created later, where the project ignores that."""

from __future__ import annotations

from contextlib import closing

import pytest

from mirrorlake import Project, root
from mirrorlake.app.reset import plan_reset
from mirrorlake.app.status import mirror_status
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.tables.members import LEFT_OUT, expecting_new
from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.sources.base import CheckSeverity
from mirrorlake.sources.postgresql.source import PostgresSource
from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import EvolvingDatabase
from tests.conformance.scene import until
from tests.conftest import Database

pytestmark = pytest.mark.postgres

TABLES = (
    "create table log (id int primary key)",
    "create table pears (id int primary key, note text)",
    "insert into pears values (1, 'a')",
)
LATE = (
    "create table plums (id int primary key)",
    "insert into plums values (1)",
    "create table odd (id int primary key, _mirrorlake_position text)",
)


def begun(database: Database, store: LocalStore) -> EvolvingDatabase:
    """A mirror with tables that are left out."""
    kinds = frozenset({SchemaChangeKind.TABLE_CREATED})
    evolving = EvolvingDatabase(database, store, ignored=kinds)
    evolving.begin(*TABLES)
    with evolving.running():
        evolving.run(*LATE)
        until(lambda: left_out(evolving) == ["public.odd", "public.plums"])
        evolving.run("alter table pears rename to quinces", "insert into quinces values (2, 'b')")
        evolving.run("insert into plums values (2)")
    evolving.capture()
    evolving.apply()
    return evolving


def left_out(evolving: EvolvingDatabase) -> list[str]:
    return [*mirror_status.read(Project.of_root(evolving.store.root)).left_out]


def tables(evolving: EvolvingDatabase) -> set[str]:
    return {one.table for one in mirror_status.read(Project.of_root(evolving.store.root)).tables}


def test_a_table_that_comes_later_stays_out_until_it_is_admitted(
    database: Database, store: LocalStore
) -> None:
    evolving = begun(database, store)
    assert tables(evolving) == {"public.log", "public.pears"}
    assert left_out(evolving) == ["public.odd", "public.plums"]
    evolving.check("pears", source="quinces")
    plan_reset(Project.of_root(store.root), ["public.plums"]).execute()
    evolving.run("create table figs (id int)")
    evolving.live(["insert into plums values (3)"], each=True)
    evolving.check("plums")
    assert left_out(evolving) == ["public.figs", "public.odd"]


@pytest.mark.full
def test_a_table_that_was_left_out_joins_when_nothing_ignores_it(
    database: Database, store: LocalStore
) -> None:
    evolving = begun(database, store)
    evolving.run("drop table odd")
    evolving.ignored = frozenset()
    evolving.live(["insert into plums values (3)"], each=True)
    evolving.check("plums")
    assert left_out(evolving) == []
    evolving.ignored = frozenset({SchemaChangeKind.TABLE_CREATED})
    evolving.run("create table figs (id int)")
    evolving.live(["create table dates (id int)"], each=True)
    assert left_out(evolving) == []  # what was there when it was ignored again takes part
    evolving.capture()
    assert left_out(evolving) == ["public.dates"]


def test_a_check_says_of_a_table_alone_that_it_is_left_out(
    database: Database, store: LocalStore
) -> None:
    evolving = begun(database, store)
    records = Records(store, root.LANDING)
    made = database.settings(slot=evolving.made, publication=evolving.made)
    with closing(PostgresSource(made)) as source:
        found = source.check()
    told = expecting_new(found, records, (), (), is_running=False, admits_new=False)
    late = [one for one in told if str(one.table) in {"public.odd", "public.plums"}]
    assert {str(one.table): one.message for one in late} == {
        "public.odd": LEFT_OUT,
        "public.plums": LEFT_OUT,
    }
    assert all(one.severity is CheckSeverity.OK for one in late)
    assert len(late) == 2


@pytest.mark.full
def test_a_reset_of_all_admits_nothing(database: Database, store: LocalStore) -> None:
    evolving = begun(database, store)
    plan_reset(Project.of_root(store.root), None).execute()
    evolving.run("alter table quinces rename to pears")
    evolving.capture()
    assert tables(evolving) == {"public.log", "public.pears"}
    assert left_out(evolving) == ["public.odd", "public.plums"]
