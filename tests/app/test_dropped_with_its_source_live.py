"""Tables of a live source that are dropped: their mirrored tables are too, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from time import monotonic
from typing import Any

import pytest

from mirrorlake import Project, root
from mirrorlake.app.changes import cut
from mirrorlake.app.reset import plan_reset
from mirrorlake.app.status import mirror_status
from mirrorlake.capture.records.records import Records
from mirrorlake.errors import NotReached, NotSelected, SourceGap, UsageError
from mirrorlake.mirror.table.deleted import MIN_SCANS
from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.sources.postgresql.source import PostgresSource
from tests.app.conftest import in_turn
from tests.app.evolving_database import Dying, EvolvingDatabase
from tests.conformance.scene import until

pytestmark = pytest.mark.postgres

TABLES = (
    "create table log (id int primary key)",
    "create table pears (id int primary key, note text)",
    "insert into pears values (1, 'a'), (2, 'b')",
)
BEFORE = "insert into pears values (3, 'c'); insert into log values (1)"
DROPPED = "drop table pears"
BETWEEN = "insert into log values (2)"
AFTER = "insert into log values (3)"
AGAIN = ("create table pears (id int primary key, x int)", "insert into pears values (7, 7)")
FOLDER = f"{root.LANDING}/public.schema/pears"
POINTS = (CrashPoint.STOPPED_RECORDED, CrashPoint.DELETED_RECORDED, CrashPoint.REPLACED_DELETED)


@pytest.fixture
def begun(evolving: EvolvingDatabase) -> EvolvingDatabase:
    """What is landed of a table goes at the look that finds that it was dropped."""
    evolving.drop_after = 0.0
    evolving.begin(*TABLES)
    return evolving


def is_landed(evolving: EvolvingDatabase) -> bool:
    return (evolving.store.root / FOLDER).exists()


def is_mirrored(evolving: EvolvingDatabase) -> bool:
    return (evolving.store.root / "Tables/public/pears").exists()


def settled(evolving: EvolvingDatabase) -> None:
    """As many processes apply as there are looks before a table is dropped."""
    for _ in range(MIN_SCANS):
        evolving.apply()


def noted(evolving: EvolvingDatabase) -> list[str]:
    return [*Records(evolving.store, root.LANDING).dropped()]


def codes(evolving: EvolvingDatabase) -> dict[str, str]:
    """Of the tables that have failed."""
    found = Records(evolving.store, root.LANDING).failed()
    return {name: str(error["code"]) for name, error in found.items()}


def check_gone(evolving: EvolvingDatabase) -> None:
    """Nothing of the table is left, and the other equals its source with a whole feed."""
    assert not is_landed(evolving)
    settled(evolving)
    assert not is_mirrored(evolving)
    status = mirror_status.read(Project.of_root(evolving.store.root))
    assert [table.table for table in status.tables] == ["public.log"]
    evolving.check("log")


@pytest.mark.clause("LZ-231")
@pytest.mark.parametrize(
    ("source_database", "statements"),
    in_turn(([BEFORE, DROPPED, BETWEEN], [f"{BEFORE}; {DROPPED}; {BETWEEN}"])),
    indirect=["source_database"],
)
def test_its_mirrored_table_is_dropped_and_others_go_on(
    begun: EvolvingDatabase, statements: Sequence[str]
) -> None:
    begun.run(*statements)
    begun.capture()
    begun.run(AFTER)
    begun.capture()
    check_gone(begun)


@pytest.mark.clause("LZ-231")
def test_capture_that_runs_lands_what_came_before_and_deletes_it(begun: EvolvingDatabase) -> None:
    begun.drop_after = 3.0
    with begun.running():
        begun.run(BEFORE)
        until(lambda: begun.apply() or len(begun.mirrored("pears")) == 3)
        begun.run("insert into pears values (4, 'd')", DROPPED, BETWEEN)
        until(lambda: noted(begun) == ["public.pears"])
        begun.apply()
        assert 3 <= len(begun.mirrored("pears")) <= 4
        until(lambda: not is_landed(begun))
        begun.run(AFTER)
        until(lambda: begun.apply() or len(begun.mirrored("log")) == 3)
    begun.drop_after = 0.0
    check_gone(begun)


@pytest.mark.full
def test_settings_that_name_it_stop_nobody(evolving: EvolvingDatabase) -> None:
    evolving.drop_after = 0.0
    evolving.selected = ("public.pears", "public.log")
    evolving.selected_columns = {"public.pears": ["id", "note"]}
    if evolving.database.sql.info.server_version >= 150_000:
        evolving.selected_rows = {"public.pears": "id > 0"}
    evolving.begin(*TABLES)
    evolving.run(DROPPED)
    for number in range(3):
        evolving.run(f"insert into log values ({number})")
        evolving.capture()
    check_gone(evolving)


@pytest.mark.full
def test_the_last_table_goes_and_the_next_one_joins(begun: EvolvingDatabase) -> None:
    begun.run("drop table pears, log")
    for _ in range(2):
        begun.capture()
        settled(begun)
    assert not [*begun.store.list("Tables/public").folders]
    assert begun.stopped() == {}
    begun.run(*AGAIN)
    begun.capture()
    settled(begun)
    begun.check("pears")


@pytest.mark.parametrize("point", POINTS)
def test_it_goes_whole_after_a_crash(begun: EvolvingDatabase, point: CrashPoint) -> None:
    begun.run(BEFORE, DROPPED)
    assert begun.capture(Dying(point))
    begun.run(AFTER)
    begun.capture()
    check_gone(begun)


@pytest.mark.full
@pytest.mark.parametrize("point", POINTS)
def test_a_table_of_its_name_is_loaded_after_a_crash(
    begun: EvolvingDatabase, point: CrashPoint
) -> None:
    begun.run(DROPPED)
    assert begun.capture(Dying(point))
    begun.run(*AGAIN)
    begun.capture()
    settled(begun)
    begun.check("pears")


@pytest.mark.full
@pytest.mark.parametrize("is_dropped", [True, False])
def test_a_table_that_is_created_later_under_its_name_is_a_new_one(
    begun: EvolvingDatabase, *, is_dropped: bool
) -> None:
    begun.run(DROPPED)
    begun.capture()
    if is_dropped:
        check_gone(begun)
    begun.run(*AGAIN)
    begun.capture()
    settled(begun)
    begun.check("pears")
    assert not Records(begun.store, root.LANDING).deleted()


class TestTheWait:
    """Until what is landed of it is deleted."""

    def test_it_is_no_error_and_others_go_on(self, begun: EvolvingDatabase) -> None:
        begun.drop_after = 60.0
        begun.run(DROPPED)
        for number in range(2):
            begun.run(f"insert into log values ({number})")
            begun.capture()
            settled(begun)
            status = mirror_status.read(Project.of_root(begun.store.root))
            (pears,) = (table for table in status.tables if table.table == "public.pears")
            assert (pears.error, pears.differs) == (None, False)
            assert pears.dropped is not None
            assert "what is landed of it will be deleted" in pears.dropped["message"]
            assert len(begun.mirrored("pears")) == 2
        begun.drop_after = 0.0
        begun.capture()
        check_gone(begun)

    @pytest.mark.full
    def test_who_waits_for_a_position_waits_for_the_others(self, begun: EvolvingDatabase) -> None:
        project = Project.of_root(begun.store.root)
        at_once: dict[str, Any] = {
            "timeout": 0.0,
            "clock": monotonic,
            "pause": lambda _seconds: False,
        }
        for begun.drop_after, statement in ((60.0, f"{DROPPED}; {BETWEEN}"), (0.0, AFTER)):
            begun.run(statement)
            begun.capture()
            begun.apply()
            found = cut.find(project)
            assert [*found.tables] == ["public.log"]
            cut.wait(project, found.position, **at_once)
            with pytest.raises((NotReached, UsageError), match=r"public\.pears"):
                cut.wait(project, found.position, tables=["public.pears"], **at_once)

    @pytest.mark.full
    @pytest.mark.parametrize("is_running", [True, False])
    def test_a_table_that_is_created_meanwhile_takes_its_place(
        self, begun: EvolvingDatabase, *, is_running: bool
    ) -> None:
        begun.drop_after = 60.0
        begun.run(DROPPED)
        begun.capture()
        if is_running:
            with begun.running():
                begun.run(*AGAIN)
                until(lambda: not Records(begun.store, root.LANDING).stopped())
        else:
            begun.run(*AGAIN)
        begun.capture()
        begun.apply()
        begun.check("pears")

    @pytest.mark.full
    def test_it_stays_when_the_project_wants_that_in_time(self, begun: EvolvingDatabase) -> None:
        begun.drop_after = 60.0
        begun.run(DROPPED)
        begun.capture()
        begun.drop_after, begun.ignored = 0.0, frozenset({SchemaChangeKind.TABLE_DROPPED})
        begun.capture()
        settled(begun)
        assert noted(begun) == ["public.pears"]
        assert len(begun.mirrored("pears")) == 2

    @pytest.mark.full
    def test_a_reset_ends_it(self, begun: EvolvingDatabase) -> None:
        begun.drop_after = 60.0
        begun.run(DROPPED)
        begun.capture()
        reset = plan_reset(Project.of_root(begun.store.root), ["public.pears"])
        (sentence,) = reset.sentences()
        assert "the table with its change feed, because it was dropped in the source" in sentence
        reset.execute()
        begun.drop_after = 0.0
        begun.capture()
        check_gone(begun)


@pytest.mark.full
class TestATableThatOnlySeemsDropped:
    @pytest.fixture(autouse=True)
    def nothing_is_deleted(self, begun: EvolvingDatabase) -> object:
        yield
        begun.capture()
        settled(begun)
        assert (noted(begun), is_landed(begun), is_mirrored(begun)) == ([], True, True)

    def test_in_a_transaction_that_is_rolled_back(self, begun: EvolvingDatabase) -> None:
        with begun.database.sql.transaction(force_rollback=True):
            begun.database.sql.execute("insert into pears values (9, 'never'); drop table pears")
        begun.run(BEFORE)
        begun.capture()
        begun.apply()
        begun.check("pears")

    def test_renamed_to_a_name_that_is_not_selected(self, begun: EvolvingDatabase) -> None:
        begun.selected = ("public.pears", "public.log")
        begun.run("alter table pears rename to quinces")
        begun.capture()
        begun.run("drop table quinces")  # of one that had stopped before a person decides
        begun.capture()
        assert codes(begun) == {"public.pears": NotSelected.code}

    def test_moved_to_a_schema_that_is_not_selected(self, begun: EvolvingDatabase) -> None:
        begun.selected = ("public.*",)
        begun.run("create schema other", "alter table pears set schema other")
        begun.capture()
        assert codes(begun) == {"public.pears": NotSelected.code}

    def test_attached_to_another_table(self, begun: EvolvingDatabase) -> None:
        begun.run(
            "create table fruit (id int primary key, note text) partition by range (id)",
            "alter table fruit attach partition pears for values from (0) to (9)",
        )
        begun.capture()
        assert codes(begun) == {"public.pears": NotSelected.code}

    def test_not_selected_any_more(self, begun: EvolvingDatabase) -> None:
        begun.selected = ("public.log",)
        begun.capture()
        assert codes(begun) == {"public.pears": NotSelected.code}

    def test_two_tables_exchange_their_names(self, begun: EvolvingDatabase) -> None:
        begun.run(
            "create table plums (id int primary key)",
            "alter table pears rename to x; alter table plums rename to pears; "
            "alter table x rename to plums",
        )
        begun.capture()
        settled(begun)
        begun.check("pears")
        begun.check("plums")

    def test_in_a_database_that_was_made_again(self, begun: EvolvingDatabase) -> None:
        """Of which the publication has another number."""
        begun.lose_slot()
        begun.run(f"drop publication {begun.made}", DROPPED)
        with pytest.raises(SourceGap):
            begun.capture()
        with closing(begun.new_capture()) as capture:
            capture.repair().done()
        begun.run("insert into log values (4)")
        begun.capture()
        assert codes(begun) == {"public.pears": NotSelected.code}

    def test_another_source_says_so(self, begun: EvolvingDatabase) -> None:
        """As where a connection that was lost is made to another server."""
        ((oid,),) = begun.database.sql.execute("select 'pears'::regclass::oid::text").fetchall()
        named = {"slot": begun.made, "publication": begun.made}
        with closing(PostgresSource(begun.database.settings(**named))) as source:
            former = source.identity()
            assert source.gone([oid], former) == set()
            begun.run(DROPPED)
            assert source.gone([oid], former) == {oid}
            for name in ("system", "timeline", "database", "publication"):
                assert source.gone([oid], {**former, name: "another"}) == ()
        begun.run("create table pears (id int primary key, note text)")


@pytest.mark.full
class TestWhatTheProjectDecides:
    def test_it_stops_and_keeps_the_table(self, begun: EvolvingDatabase) -> None:
        begun.stops_at = frozenset({SchemaChangeKind.TABLE_DROPPED})
        begun.run(BEFORE, DROPPED)
        for number in (2, 3):
            begun.run(f"insert into log values ({number})")
            begun.capture()
            settled(begun)
            assert codes(begun) == {"public.pears": NotSelected.code}
            assert len(begun.mirrored("pears")) == 2
        begun.check("log", stopped=["public.pears"])
        begun.stops_at = frozenset()
        begun.capture()
        assert codes(begun) == {"public.pears": NotSelected.code}  # a person decides
        assert is_landed(begun)

    def test_the_mirror_keeps_its_table(self, begun: EvolvingDatabase) -> None:
        begun.drops_tables = False
        begun.run(DROPPED)
        begun.capture()
        settled(begun)
        assert (is_landed(begun), len(begun.mirrored("pears"))) == (False, 2)
        begun.check("log")
        begun.drops_tables = True
        check_gone(begun)

    @pytest.mark.parametrize("is_truncated", [True, False])
    def test_a_strict_zone_loses_its_folder(
        self, begun: EvolvingDatabase, *, is_truncated: bool
    ) -> None:
        begun.strict = True
        begun.run("insert into log values (9)", *(["truncate pears"] if is_truncated else []))
        begun.capture()
        begun.apply()
        begun.run(DROPPED, BETWEEN)
        begun.capture()
        check_gone(begun)
        begun.run(*AGAIN)
        begun.capture()
        settled(begun)
        begun.check("pears")
