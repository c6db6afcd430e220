"""Rows and columns that a publication leaves out, and the project does not, or the other way
around: the table stops, and no longer looks as if it were mirrored."""

from __future__ import annotations

from contextlib import closing

import pytest

from mirrorlake import root
from mirrorlake.capture.records.records import Records
from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import EvolvingDatabase
from tests.conftest import Database

pytestmark = [pytest.mark.postgres, pytest.mark.full]

TABLES = (
    "create table log (id int primary key)",
    "create table apples (id int primary key, a int, b text)",
    "insert into apples select n, n, 'x' from generate_series(1, 9) n",
)
LATER = "update apples set a = 0, b = 'y'; delete from apples where id in (2, 7)"
LEFT_OUT = {
    "apples where (id > 5)": "leaves out rows of the table, and source.rows does not",
    "apples (id, a)": "leaves out column b, and source.columns does not",
}


@pytest.fixture
def evolving(database: Database, store: LocalStore) -> EvolvingDatabase:
    return EvolvingDatabase(database, store)


def check_stopped(evolving: EvolvingDatabase, reason: str) -> None:
    """The table alone has stopped, and says what to do; afterwards it is repaired."""
    evolving.run("insert into log values (1)")
    evolving.capture()
    evolving.apply()
    message = evolving.stopped()["public.apples"]
    assert reason in message
    evolving.check("log", stopped=["public.apples"])
    evolving.run(*message.partition("Run `")[2].partition("`")[0].split("; "))


def check_repaired(evolving: EvolvingDatabase) -> None:
    with closing(evolving.new_capture()) as capture:
        assert capture.repair().done(["public.apples"]).is_needed
    evolving.run("update apples set a = a + 1 where id < 5")
    evolving.capture()
    evolving.apply()


@pytest.mark.parametrize("each", [True, False])
@pytest.mark.parametrize("member", LEFT_OUT)
def test_a_table_stops_of_which_others_leave_something_out(
    evolving: EvolvingDatabase, member: str, *, each: bool
) -> None:
    evolving.begin(*TABLES)
    evolving.live([f"alter publication {evolving.made} set table log, {member}", LATER], each=each)
    check_stopped(evolving, LEFT_OUT[member])
    check_repaired(evolving)
    evolving.check("apples")


@pytest.mark.parametrize("member", LEFT_OUT)
def test_a_table_waits_of_which_the_publication_of_others_leaves_something_out(
    evolving: EvolvingDatabase, member: str
) -> None:
    via_root = "publish_via_partition_root = true"
    evolving.run(*TABLES)
    evolving.run(f"create publication {evolving.made} for table log, {member} with ({via_root})")
    evolving.begin()
    check_stopped(evolving, LEFT_OUT[member])
    evolving.capture()
    evolving.run(LATER)
    evolving.capture()
    evolving.apply()
    evolving.check("apples")


def test_a_table_goes_on_of_which_the_project_leaves_out_the_same(
    evolving: EvolvingDatabase,
) -> None:
    evolving.selected_columns = {"public.apples": ["id", "a"]}
    evolving.selected_rows = {"public.apples": "id > 5"}
    evolving.run(*TABLES)
    evolving.run(
        f"create publication {evolving.made} for table log, apples (id, a) where (id > 5) "
        "with (publish_via_partition_root = true)"
    )
    evolving.begin()
    evolving.run(LATER)
    evolving.capture()
    evolving.apply()
    evolving.check("apples", source="(select * from apples where id > 5) a", columns="id, a")


def test_a_table_stops_of_which_others_publish_rows_that_the_project_leaves_out(
    evolving: EvolvingDatabase,
) -> None:
    evolving.selected_rows = {"public.apples": "id > 5"}
    evolving.begin(*TABLES)
    evolving.run(f"alter publication {evolving.made} set table log, apples", LATER)
    check_stopped(evolving, "source.rows leaves out rows of the table, and publication")
    check_repaired(evolving)
    evolving.check("apples", source="(select * from apples where id > 5) a")


@pytest.mark.parametrize("each", [True, False])
def test_a_table_stops_of_which_others_publish_other_rows(
    evolving: EvolvingDatabase, *, each: bool
) -> None:
    evolving.selected_rows = {"public.apples": "id > 5"}
    evolving.begin(*TABLES)
    other = f"alter publication {evolving.made} set table log, apples where (id > 7)"
    evolving.live([other, LATER], each=each)
    check_stopped(evolving, "filters rows of the table by another condition than source.rows")
    check_repaired(evolving)
    evolving.check("apples", source="(select * from apples where id > 5) a")


@pytest.mark.parametrize("before", [None, "id > 5"])
def test_a_table_that_is_reset_for_other_rows_is_published_with_them(
    evolving: EvolvingDatabase, before: str | None
) -> None:
    evolving.selected_rows = {"public.apples": before} if before else {}
    evolving.begin(*TABLES)
    evolving.selected_rows = {"public.apples": "id in (2, 3, 9)"}
    evolving.capture()
    assert (
        "differ from those with which the table was loaded" in evolving.stopped()["public.apples"]
    )
    evolving.store.delete_folder(f"{root.LANDING}/public.schema/apples")
    Records(evolving.store, root.LANDING).forget("public.apples")
    evolving.capture()
    evolving.run(LATER, "insert into apples values (2, 2, 'z')")
    evolving.capture()
    evolving.apply()
    evolving.check("apples", source="(select * from apples where id in (2, 3, 9)) a")
    evolving.capture()
    assert evolving.read_again() == []


def test_a_repair_publishes_the_rows_that_the_project_selects(evolving: EvolvingDatabase) -> None:
    evolving.selected_rows = {"public.apples": "id > 5"}
    evolving.begin(*TABLES)
    other = f"alter publication {evolving.made} set table log, apples where (id > 7)"
    evolving.live([other, LATER], each=True)
    assert evolving.stopped().keys() == {"public.apples"}
    check_repaired(evolving)
    evolving.check("apples", source="(select * from apples where id > 5) a")
