"""Generated columns that the publication of others carries: PostgreSQL 18 may publish them."""

from __future__ import annotations

from contextlib import closing

import pytest

from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import EvolvingDatabase
from tests.conftest import Database
from tests.profiles import some

pytestmark = pytest.mark.postgres

LOG = "create table log (id int primary key)"
TABLE = "create table apples (id int primary key, g int generated always as (id * 2) stored, a int)"
ROWS = "insert into apples (id, a) values (1, 7)"
VIA_ROOT = "publish_via_partition_root = true"


@pytest.fixture
def evolving(database: Database, store: LocalStore) -> EvolvingDatabase:
    return EvolvingDatabase(database, store)


def publish(evolving: EvolvingDatabase, what: str, publishes: str = "stored") -> None:
    evolving.run(
        f"create publication {evolving.made} for {what} "
        f"with ({VIA_ROOT}, publish_generated_columns = {publishes})"
    )


def alter(evolving: EvolvingDatabase, publishes: str) -> None:
    evolving.run(f"alter publication {evolving.made} set (publish_generated_columns = {publishes})")


def check_stopped(evolving: EvolvingDatabase, *reasons: str) -> None:
    """The table alone has stopped."""
    evolving.run("insert into log values (1)")
    evolving.capture()
    evolving.apply()
    assert [*evolving.stopped()] == ["public.apples"]
    assert all(reason in evolving.stopped()["public.apples"] for reason in reasons)
    assert evolving.mirrored("log") == [{"id": 1}]


def check_goes_on(evolving: EvolvingDatabase) -> None:
    evolving.run("insert into apples (id, a) values (3, 8)")
    evolving.capture()
    evolving.apply()
    evolving.check("apples", columns="id, a")


FORMER = {
    "another column": [
        "alter table apples add column c int default 4",
        "update apples set c = 5 where id = 1",
        "alter table apples drop column c",
        "alter table apples add column c int generated always as (a * 3) stored",
    ],
    "itself": [
        "alter table apples alter g drop expression; update apples set g = g + 1 where id = 1",
        "alter table apples drop g",
        "alter table apples add g int generated always as (a * 3) stored",
    ],
    "in one transaction": [
        """alter table apples add c int; update apples set c = 5; alter table apples drop c;
        alter table apples add c int generated always as (a * 3) stored"""
    ],
    "one with another name": [
        "alter table apples rename a to c",
        "update apples set c = 5 where id = 1",
        "alter table apples rename c to a",
        "alter table apples add c int generated always as (a * 3) stored",
    ],
}


@pytest.mark.parametrize("with_row", some([True, False]))
@pytest.mark.parametrize("name", some(FORMER))
def test_a_table_goes_on_whose_ordinary_column_became_a_generated_one(
    evolving: EvolvingDatabase, name: str, *, with_row: bool
) -> None:
    """Capture is behind: what it reads has the ordinary column, and the catalog the other."""
    evolving.begin(LOG, TABLE, ROWS)
    evolving.run(*FORMER[name], *(["update apples set a = 9 where id = 1"] if with_row else []))
    evolving.capture()
    evolving.apply()
    assert evolving.stopped() == {}
    compare(evolving)
    evolving.run("insert into apples (id, a) values (3, 8)")
    evolving.capture()
    evolving.apply()
    compare(evolving)


def compare(evolving: EvolvingDatabase) -> None:
    """The ordinary columns of a table are those of its source."""
    rows = evolving.database.sql.execute("select id, a from apples order by id").fetchall()
    assert sorted((row["id"], row["a"]) for row in evolving.mirrored("apples")) == rows


def test_a_table_of_which_they_are_published_waits_for_another_publication(
    evolving: EvolvingDatabase,
) -> None:
    evolving.run(LOG, TABLE, ROWS)
    publish(evolving, "all tables")
    evolving.begin()
    hint = f'alter publication "{evolving.made}" set (publish_generated_columns = none)'
    check_stopped(evolving, "publishes generated column g", hint)
    evolving.run(hint)
    evolving.capture()
    assert evolving.stopped() == {}
    check_goes_on(evolving)


@pytest.mark.full
@pytest.mark.parametrize("each", [True, False])
def test_a_table_of_which_they_come_to_be_published_stops(
    evolving: EvolvingDatabase, each: bool
) -> None:
    evolving.run(LOG, TABLE, ROWS)
    publish(evolving, "all tables", "none")
    evolving.begin()
    setting = f"alter publication {evolving.made} set (publish_generated_columns = stored)"
    change = "insert into apples (id, a) values (2, 8)"
    add = "alter table apples add column c int default 5"
    with evolving.capturing() as capture:
        for statement in (setting, change, add):
            evolving.run(statement)
            if each:
                capture.once()
        capture.once()
    evolving.apply()
    check_stopped(evolving, "publishes generated column g")
    assert [row["a"] for row in evolving.mirrored("apples")] == [7]
    alter(evolving, "none")
    with closing(evolving.new_capture()) as capture:
        assert capture.repair().done(["public.apples"]).is_needed
    check_goes_on(evolving)


def test_a_table_that_gets_one_which_is_published_stops(evolving: EvolvingDatabase) -> None:
    evolving.run(LOG, "create table apples (id int primary key, a int)", ROWS)
    publish(evolving, "all tables")
    evolving.begin()
    evolving.check("apples")
    evolving.run("alter table apples add column g int generated always as (id * 2) stored")
    check_stopped(evolving, "publishes generated column g")


def test_a_row_that_came_while_they_were_published_stops_the_table(
    evolving: EvolvingDatabase,
) -> None:
    """The catalog does not show any more that they were."""
    evolving.run(LOG, TABLE, ROWS)
    publish(evolving, "all tables", "none")
    evolving.begin()
    alter(evolving, "stored")
    evolving.run("insert into apples (id, a) values (2, 8)")
    alter(evolving, "none")
    check_stopped(evolving, "generated column g was published for a time")
    assert [row["a"] for row in evolving.mirrored("apples")] == [7]


@pytest.mark.parametrize(("listed", "stops"), [("id, g, a", True), ("id, a", False)])
def test_a_list_of_columns_decides_whatever_the_publication_says(
    evolving: EvolvingDatabase, listed: str, stops: bool
) -> None:
    evolving.run(LOG, TABLE, ROWS)
    publish(evolving, f"table log, apples ({listed})", "none" if stops else "stored")
    evolving.begin()
    if stops:
        check_stopped(evolving, f"Leave g out of the columns that publication {evolving.made}")
    else:
        check_goes_on(evolving)


def test_those_that_are_computed_at_each_reading_are_never_published(
    evolving: EvolvingDatabase,
) -> None:
    evolving.run(LOG, TABLE.replace("stored", "virtual"), ROWS)
    publish(evolving, "all tables")
    evolving.begin()
    check_goes_on(evolving)
