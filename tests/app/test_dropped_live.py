"""Tables of a live source that are dropped, where the project ignores that."""

from __future__ import annotations

import pytest

from mirrorlake import Project, root
from mirrorlake.app.reset import plan_reset
from mirrorlake.app.status import mirror_status
from mirrorlake.app.status.table_status import TableStatus
from mirrorlake.capture.records.records import Records
from mirrorlake.errors import NotSelected, TableRecreated
from mirrorlake.mirror.table.deleted import MIN_SCANS
from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import EvolvingDatabase
from tests.conformance.scene import until
from tests.conftest import Database
from tests.profiles import some

pytestmark = pytest.mark.postgres

TABLES = (
    "create table log (id int primary key)",
    "create table pears (id int primary key, note text)",
    "insert into pears values (1, 'a'), (2, 'b')",
)
KINDS = frozenset({SchemaChangeKind.TABLE_DROPPED})


def begun(
    database: Database, store: LocalStore, **settings: frozenset[SchemaChangeKind]
) -> EvolvingDatabase:
    evolving = EvolvingDatabase(database, store, ignored=KINDS, **settings)
    evolving.begin(*TABLES)
    return evolving


def pears(evolving: EvolvingDatabase) -> TableStatus:
    found = mirror_status.read(Project.of_root(evolving.store.root))
    return next(one for one in found.tables if one.table == "public.pears")


def codes(evolving: EvolvingDatabase) -> dict[str, str]:
    """Of the tables that have failed."""
    found = Records(evolving.store, root.LANDING).failed()
    return {name: str(error["code"]) for name, error in found.items()}


def check_dropped(evolving: EvolvingDatabase, rows: int = 2, at_most: int = 2) -> None:
    evolving.apply()
    found = pears(evolving)
    assert (found.error, found.differs, found.facts()["state"]) == (None, False, "Replicating")
    assert found.dropped is not None
    assert "was dropped in the source" in found.dropped["message"]
    assert rows <= len(evolving.mirrored("pears")) <= at_most


@pytest.mark.parametrize("is_running", some([True, False]))
def test_it_stays_as_it_is_and_is_no_error(
    database: Database, store: LocalStore, *, is_running: bool
) -> None:
    evolving = begun(database, store)
    if is_running:
        with evolving.running():
            evolving.run("insert into pears values (3, 'c')")
            until(lambda: evolving.apply() or len(evolving.mirrored("pears")) == 3)
            evolving.run("insert into pears values (4, 'd')", "drop table pears")
            until(lambda: pears(evolving).dropped is not None)
    else:
        evolving.run("drop table pears")
    for number in range(2):
        evolving.run(f"insert into log values ({number})")
        evolving.capture()
        # The server may describe the table anew for the last row, when it is gone already.
        check_dropped(evolving, *((3, 4) if is_running else ()))
        assert codes(evolving) == {}
    evolving.check("log", stopped=["public.pears"])
    plan_reset(Project.of_root(store.root), ["public.pears"]).execute()
    evolving.capture()
    assert evolving.stopped() == {}


@pytest.mark.parametrize("is_running", some([True, False]))
def test_one_that_is_created_again_is_loaded(
    database: Database, store: LocalStore, *, is_running: bool
) -> None:
    evolving = begun(database, store)
    evolving.run("drop table pears")
    evolving.capture()
    check_dropped(evolving)
    again = ("create table pears (id int primary key, x int)", "insert into pears values (7, 7)")
    if is_running:
        with evolving.running():
            evolving.run(*again)
            until(lambda: not Records(store, root.LANDING).stopped())
    else:
        evolving.run(*again)
    evolving.capture()
    evolving.apply()
    evolving.check("pears")


def test_one_that_is_created_again_stops_where_the_project_wants_it(
    database: Database, store: LocalStore
) -> None:
    evolving = begun(database, store, stops_at=frozenset({SchemaChangeKind.TABLE_RECREATED}))
    evolving.run("drop table pears")
    evolving.capture()
    check_dropped(evolving)
    evolving.run("create table pears (id int primary key)", "insert into pears values (7)")
    for _ in range(2):
        evolving.run("insert into log select count(*) from log")
        evolving.capture()
        assert codes(evolving) == {"public.pears": TableRecreated.code}
    evolving.apply()
    assert len(evolving.mirrored("pears")) == 2


def test_one_that_is_renamed_to_what_is_not_selected_is_an_error(
    database: Database, store: LocalStore
) -> None:
    evolving = EvolvingDatabase(
        database, store, ignored=KINDS, selected=("public.pears", "public.log")
    )
    evolving.begin(*TABLES)
    evolving.run("alter table pears rename to quinces")
    evolving.capture()
    assert codes(evolving) == {"public.pears": NotSelected.code}
    evolving.run("drop table quinces")
    evolving.capture()
    assert codes(evolving) == {}
    check_dropped(evolving)


@pytest.mark.parametrize("is_late", [True, False])
def test_what_was_ignored_stays_when_the_setting_is_removed(
    database: Database, store: LocalStore, *, is_late: bool
) -> None:
    evolving = begun(database, store)
    evolving.run("drop table pears")
    if is_late:  # it was to be deleted, and the project ignores it in time
        evolving.ignored = frozenset()
        evolving.capture()
        evolving.ignored = KINDS
    evolving.capture()
    since = Records(store, root.LANDING).dropped()["public.pears"]["since"]
    evolving.ignored, evolving.drop_after = frozenset(), 0.0
    for number in range(2):
        evolving.run(f"insert into log values ({number})")
        evolving.capture()
        for _ in range(MIN_SCANS):
            check_dropped(evolving)
    assert Records(store, root.LANDING).dropped()["public.pears"]["since"] == since
    evolving.run(
        "create table pears (id int primary key, x int)", "insert into pears values (7, 7)"
    )
    evolving.capture()
    evolving.apply()
    evolving.check("pears")


def test_the_setting_counts_from_the_next_start(database: Database, store: LocalStore) -> None:
    evolving = begun(database, store)
    evolving.ignored, evolving.stops_at = frozenset(), KINDS
    evolving.run("drop table pears")
    evolving.capture()
    assert codes(evolving) == {"public.pears": NotSelected.code}
    evolving.ignored, evolving.stops_at = KINDS, frozenset()
    evolving.capture()
    check_dropped(evolving)
    evolving.ignored, evolving.stops_at = frozenset(), KINDS
    evolving.capture()
    assert codes(evolving) == {"public.pears": NotSelected.code}
