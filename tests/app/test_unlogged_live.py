"""Tables whose changes are not in the log: left out alone, and mirrored when they are."""

from __future__ import annotations

import threading

import pytest

from mirrorlake import root
from mirrorlake.capture.records.records import Records
from mirrorlake.errors import NotLogged, SelectionChanged
from tests.app.evolving_database import EvolvingDatabase
from tests.app.test_table_life_live import wait_until_loaded

pytestmark = pytest.mark.postgres

APPLES = "create table apples (id int primary key, note text)"
SWIFT = "create unlogged table swift (id int primary key)"
PARTED = (
    "create table parted (id int primary key) partition by list (id)",
    "create table first partition of parted for values in (1)",
)
CHANGE = "insert into apples select count(*), 'new' from apples"


def codes(evolving: EvolvingDatabase) -> dict[str, str]:
    stopped = Records(evolving.store, root.LANDING).stopped()
    return {table: error["code"] for table, error in stopped.items()}


def mirror(evolving: EvolvingDatabase) -> None:
    evolving.capture()
    evolving.apply()


def test_an_unlogged_table_is_left_out_until_it_is_logged(evolving: EvolvingDatabase) -> None:
    evolving.begin(APPLES, SWIFT)
    evolving.run(CHANGE)
    mirror(evolving)
    assert len(evolving.mirrored("apples")) == 1
    assert codes(evolving) == {"public.swift": NotLogged.code}
    assert "the table is unlogged" in evolving.stopped()["public.swift"]
    evolving.run("insert into swift values (1)", "alter table swift set logged")
    mirror(evolving)
    evolving.run("insert into swift values (2)")
    mirror(evolving)
    assert codes(evolving) == {}
    evolving.check("swift")


def test_one_that_comes_while_capture_runs_joins_when_it_is_logged(
    evolving: EvolvingDatabase,
) -> None:
    evolving.begin(APPLES)
    stop = threading.Event()
    with evolving.capturing(stop=stop) as capture:
        running = threading.Thread(target=capture.run)
        running.start()
        try:
            evolving.run(SWIFT, "create table plums (id int primary key)")
            wait_until_loaded(evolving, "plums")
            assert codes(evolving) == {"public.swift": NotLogged.code}
            evolving.run("insert into swift values (1)", "alter table swift set logged")
            wait_until_loaded(evolving, "swift")
            evolving.run("insert into swift values (2)", CHANGE)
        finally:
            stop.set()
            running.join()
    mirror(evolving)
    for table in ("apples", "swift"):
        evolving.check(table)


def test_a_mirrored_table_whose_partition_becomes_unlogged_stops(
    evolving: EvolvingDatabase,
) -> None:
    """PostgreSQL refuses that for a published table, and not for its partitions."""
    evolving.begin(APPLES, *PARTED)
    mirror(evolving)
    evolving.run("alter table first set unlogged", "insert into parted values (1)", CHANGE)
    mirror(evolving)
    assert codes(evolving) == {"public.parted": NotLogged.code}
    assert "partition public.first is unlogged" in evolving.stopped()["public.parted"]
    assert len(evolving.mirrored("apples")) == 1
    evolving.run("alter table first set logged")
    mirror(evolving)
    assert codes(evolving) == {"public.parted": SelectionChanged.code}


@pytest.mark.full
def test_a_mirrored_table_that_becomes_unlogged_stops(evolving: EvolvingDatabase) -> None:
    """PostgreSQL allows it where the publication is of all tables."""
    evolving.run(f"create publication {evolving.made} for all tables")
    evolving.begin(APPLES, "create table pears (id int primary key)")
    mirror(evolving)
    evolving.run("alter table pears set unlogged", CHANGE)
    mirror(evolving)
    assert codes(evolving) == {"public.pears": NotLogged.code}
    assert len(evolving.mirrored("apples")) == 1
