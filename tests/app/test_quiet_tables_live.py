"""Tables that are altered, and of which no row changes afterwards: what is told and kept."""

from __future__ import annotations

import pytest

from mirrorlake import Project, root
from mirrorlake.app.status import mirror_status
from mirrorlake.app.status.table_status import TableStatus
from mirrorlake.capture.backfill.jobs import BackfillRecords, BackfillRequest
from mirrorlake.capture.record import Records
from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import EvolvingDatabase
from tests.conftest import Database

pytestmark = [pytest.mark.postgres, pytest.mark.full]

TABLES = [
    f"create table {name} (id int primary key, a text, b text);"
    f"insert into {name} select g, 'a' || g, 'b' || g from generate_series(1, 5) g"
    for name in ("swapped", "reused", "filled", "volatile", "plain", "dropped", "retyped")
]
ALTERATIONS = {
    "swapped": "alter table swapped rename a to c; alter table swapped rename b to a; "
    "alter table swapped rename c to b",
    "reused": "alter table reused drop a; alter table reused add a text default 'new'",
    "filled": "alter table filled add c int default 7",
    "volatile": "alter table volatile add c text default gen_random_uuid()",
    "plain": "alter table plain add c int",
    "dropped": "alter table dropped drop b",
    "retyped": "alter table retyped alter id type bigint",
}
DIFFERING = {"swapped", "reused", "filled", "volatile", "retyped"}


@pytest.fixture
def evolving(any_database: Database, store: LocalStore) -> EvolvingDatabase:
    evolving = EvolvingDatabase(any_database, store)
    evolving.begin(*TABLES)
    return evolving


def statuses(evolving: EvolvingDatabase) -> dict[str, TableStatus]:
    found = mirror_status.read(Project.of_root(evolving.store.root))
    return {one.table.removeprefix("public."): one for one in found.tables}


def test_a_table_differs_until_a_row_changes(evolving: EvolvingDatabase) -> None:
    evolving.run(*ALTERATIONS.values())
    evolving.capture()
    evolving.apply()
    found = statuses(evolving)
    assert {name for name, one in found.items() if one.differs} == DIFFERING
    told = found["swapped"].facts()["differs"]
    assert "next change of a row" in told["reason"]
    assert told["since"]
    rows = [f"insert into {name} (id) values (9)" for name in ALTERATIONS]
    evolving.run(*rows)
    evolving.capture()
    evolving.apply()
    assert not any(one.differs for one in statuses(evolving).values())
    for name in ALTERATIONS:
        evolving.check(name)


def test_a_backfill_keeps_the_values_of_columns_that_are_gone(evolving: EvolvingDatabase) -> None:
    evolving.run("alter table dropped drop b", "insert into dropped values (6, 'a6')")
    evolving.run("alter table plain rename b to c", "insert into plain values (6, 'a6', 'b6')")
    evolving.capture()
    evolving.apply()
    before = {name: evolving.mirrored(name) for name in ("dropped", "plain")}
    assert sum(row["b"] is not None for row in before["dropped"]) == 5
    jobs = BackfillRecords(Records(evolving.store, root.LANDING))
    for name in before:
        jobs.request(BackfillRequest(f"job-{name}", f"public.{name}", None, None, name))
    played = {name: evolving.played(name) for name in before}
    evolving.capture()
    evolving.apply()
    for name, rows in before.items():
        assert evolving.mirrored(name) == rows
        assert evolving.played(name) == played[name]
