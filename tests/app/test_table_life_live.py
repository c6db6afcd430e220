"""Tables of a live source go and come again, and the mirror lives through it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

import pytest

from mirrorlake import root
from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import Dying, EvolvingDatabase
from tests.conftest import Database
from tests.doubles.memory_store import Crash
from tests.profiles import some

pytestmark = pytest.mark.postgres

TABLES = (
    "create table apples (id int primary key, note text)",
    "insert into apples values (1, 'a'), (2, 'b'), (3, 'c')",
    "create table log (id int primary key)",
)
BEFORE = "insert into apples (id) values (11); delete from apples where id = 3"
AGAIN = "create table apples (size bigint, id int primary key)"
ROWS = "insert into apples values (15, 1), (25, 7)"
AFTER = "update apples set id = 8 where id = 7; insert into log select count(*) from log"

SWAP = "alter table apples rename to apples_old; alter table apples_new rename to apples"

RECREATED: dict[str, Sequence[str]] = {
    "at once": [f"{BEFORE}; drop table apples; {AGAIN}; {ROWS}"],
    "step by step": [BEFORE, "drop table apples", AGAIN, ROWS],
    "twice": [BEFORE, "drop table apples", AGAIN, ROWS, "drop table apples", AGAIN, ROWS],
    "without rows": [BEFORE, "drop table apples", AGAIN],
    "taken from another": [
        "create table apples_new (id int primary key, note text)",
        "insert into apples_new select * from apples where id < 3",
        f"{BEFORE}; {SWAP}",
        "insert into apples_old values (20)",
    ],
}


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "each"),
    some([*((name, True) for name in RECREATED), ("taken from another", False)], 2),
)
def test_a_table_that_was_created_again_is_loaded_by_itself(
    evolving: EvolvingDatabase, name: str, *, each: bool
) -> None:
    evolving.begin(*TABLES)
    evolving.live([*RECREATED[name], AFTER, "insert into apples (id) values (100)"], each=each)
    others = ["apples_old"] if name == "taken from another" else []
    for table in ("apples", "log", *others):
        evolving.check(table)


NEW = (
    "create table apples_new (note text, id int primary key, size int default 3)",
    "insert into apples_new values ('n', 1), ('n', 9)",
)
SWAPS = {
    "swap": SWAP,
    "drop and rename": "drop table apples; alter table apples_new rename to apples",
}
AMID = {
    "rows before": "insert into apples_new values ('b', 2); {}",
    "rows after": "{}; insert into apples values ('a', 3)",
    "no rows": "{}",
}


@pytest.mark.full
@pytest.mark.parametrize("running", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("rows", AMID)
@pytest.mark.parametrize("how", SWAPS)
def test_a_mirrored_table_that_takes_the_name_of_another_is_loaded_under_it(
    evolving: EvolvingDatabase, how: str, rows: str, *, running: bool
) -> None:
    evolving.begin(*TABLES, *NEW)
    changes = (
        AMID[rows].format(SWAPS[how]),
        "insert into apples values ('z', 50)",
        "insert into log values (1)",
    )
    if running:
        evolving.live(changes, each=True)
    for change in () if running else changes:
        evolving.run(change)
        evolving.capture()
        evolving.apply()
    for table in ("apples", "log", *(["apples_old"] if how == "swap" else [])):
        evolving.check(table, stopped={"public.apples_new"})
    assert "it is mirrored under that name" in evolving.stopped()["public.apples_new"]


@pytest.mark.full
@pytest.mark.parametrize("each", [False, True])
def test_two_mirrored_tables_exchange_their_names_and_get_them_back(
    evolving: EvolvingDatabase, *, each: bool
) -> None:
    evolving.begin(*TABLES, *NEW)
    back = "alter table apples rename to apples_new; alter table apples_old rename to apples"
    for change in (SWAP, "insert into apples values ('z', 50)", back):
        evolving.run(change)
        if each:
            evolving.capture()
            evolving.apply()
    evolving.run("insert into apples values (60)", "insert into apples_new values ('z', 70)")
    evolving.capture()
    evolving.apply()
    left = {"public.apples_old"} if each else ()
    for table in ("apples", "apples_new", "log"):
        evolving.check(table, stopped=left)


@pytest.mark.full
@pytest.mark.parametrize("point", [None, CrashPoint.REPLACED_NOTED, CrashPoint.REPLACED_DELETED])
def test_names_are_given_up_once_when_capture_dies(
    evolving: EvolvingDatabase, point: CrashPoint | None
) -> None:
    evolving.begin(*TABLES, *NEW)
    evolving.run(SWAP)
    assert evolving.capture(Dying(point)) is (point is not None)
    evolving.run("insert into apples values ('z', 50)")
    evolving.capture()
    evolving.apply()
    for table in ("apples", "apples_old", "log"):
        evolving.check(table, stopped={"public.apples_new"})


def test_tables_join_and_begin_anew_while_capture_runs(evolving: EvolvingDatabase) -> None:
    evolving.begin(*TABLES)
    stop = threading.Event()
    with evolving.capturing(stop=stop) as capture:
        running = threading.Thread(target=capture.run)
        running.start()
        try:
            evolving.run("create table plums (id int primary key)", "insert into plums values (1)")
            wait_until_loaded(evolving, "plums")
            evolving.run("insert into plums values (2)", *RECREATED["step by step"])
            wait_until_loaded(evolving, "apples")
            evolving.run(AFTER)
        finally:
            stop.set()
            running.join()
    evolving.capture()
    evolving.apply()
    for table in ("apples", "plums", "log"):
        evolving.check(table)


def wait_until_loaded(evolving: EvolvingDatabase, table: str) -> None:
    """What is landed is the table that has this name now, and all of its load."""
    query = f"select oid::text from pg_class where oid = '{table}'::regclass"
    ((oid,),) = evolving.database.sql.execute(query).fetchall()
    folder = f"{root.LANDING}/public.schema/{table}"
    until = time.monotonic() + 120
    while time.monotonic() < until:
        with suppress(OSError):
            described = json.loads(evolving.store.read(f"{folder}/_metadata.json"))["mirrorlake"]
            names = {file.name for file in evolving.store.list(folder).files}
            is_whole = "_load.json" not in names and any(name.startswith("0") for name in names)
            if described["source"]["identity"] == oid and is_whole:
                return
        time.sleep(0.05)
    raise AssertionError(f"{table} was not loaded")


LIVES = [
    CrashPoint.REPLACED_NOTED,
    CrashPoint.REPLACED_DELETED,
    CrashPoint.LOAD_STAGED,
    CrashPoint.LOAD_MANIFEST,
    CrashPoint.LOAD_PUBLISHED_ONE,
]


@pytest.mark.full
@pytest.mark.parametrize("point", some(LIVES, 2))
def test_a_table_begins_anew_once_when_capture_dies(
    evolving: EvolvingDatabase, point: CrashPoint
) -> None:
    evolving.begin(*TABLES)
    evolving.run(*RECREATED["step by step"], AFTER)
    dying = Dying(point)
    with suppress(Crash), evolving.capturing(dying) as capture:
        capture.once()
    assert dying.left == 0
    evolving.apply()
    evolving.run("insert into apples (id) values (100)")
    evolving.capture()
    evolving.apply()
    for table in ("apples", "log"):
        evolving.check(table)


@pytest.mark.full
def test_a_project_may_want_a_table_that_was_created_again_to_stop(
    database: Database, store: LocalStore
) -> None:
    evolving = EvolvingDatabase(database, store, frozenset({SchemaChangeKind.TABLE_RECREATED}))
    evolving.begin(*TABLES)
    evolving.run(*RECREATED["step by step"])
    evolving.capture()
    assert "created again" in evolving.stopped()["public.apples"]
    # A person who has seen it may let it go on.
    evolving.stops_at = frozenset()
    evolving.capture()
    evolving.apply()
    evolving.check("apples")


RENAMED = "alter table apples rename to cherries"
LATER = "insert into cherries (id) values (7); update cherries set note = 'x' where id = 1"
VOLATILE = "add c int default random() * 9"
RENAMES: dict[str, tuple[str, Sequence[str]]] = {
    "renamed": ("cherries", [RENAMED, LATER]),
    "in one transaction with rows": (
        "cherries",
        [f"insert into apples values (5, 'e'); {RENAMED}; {LATER}"],
    ),
    "renamed and back": ("apples", [RENAMED, LATER, "alter table cherries rename to apples"]),
    "to another schema": (
        "other.apples",
        ["create schema other; alter table apples set schema other"],
    ),
    "its columns too": (
        "cherries",
        [
            f"{RENAMED}; alter table cherries rename note to remark",
            "insert into cherries values (7, 'x')",
            f"alter table cherries {VOLATILE}, drop constraint apples_pkey, replica identity full",
            "update cherries set c = 3 where id = 7; delete from cherries where id = 1",
        ],
    ),
}


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "each"), some([(name, each) for name in RENAMES for each in (False, True)], 3)
)
def test_a_renamed_table_keeps_its_data_and_its_name(
    evolving: EvolvingDatabase, name: str, *, each: bool
) -> None:
    evolving.begin(*TABLES)
    table, statements = RENAMES[name]
    last = f"insert into {table} (id) values (100); insert into log select count(*) from log"
    evolving.live([BEFORE, *statements, last], each=each)
    evolving.check("apples", source=table)
    evolving.run(f"insert into {table} (id) values (101)")
    evolving.capture()
    evolving.apply()
    evolving.check("apples", source=table)
    assert not Path(evolving.store.location("Tables/public/cherries")).exists()


@pytest.mark.parametrize("crash", some([None, CrashPoint.CHANGES_PUBLISHED]))
def test_a_table_that_had_a_name_which_is_not_selected_goes_on_when_it_has_one_again(
    evolving: EvolvingDatabase, crash: CrashPoint | None
) -> None:
    evolving.selected = ("public.apples", "public.log")
    evolving.begin(*TABLES)
    evolving.run(BEFORE, RENAMED, LATER, f"alter table cherries {VOLATILE}, drop column note")
    evolving.run("insert into cherries values (9)", "alter table cherries rename to apples", AFTER)
    if crash:
        assert evolving.capture(Dying(crash))
    evolving.capture()
    evolving.apply()
    evolving.check("apples")
    evolving.check("log")


@pytest.mark.full
@pytest.mark.parametrize("each", [False, True])
def test_a_table_with_a_name_that_is_not_selected_is_repaired_when_it_has_one_again(
    evolving: EvolvingDatabase, *, each: bool
) -> None:
    evolving.selected = ("public.apples", "public.log")
    evolving.begin(*TABLES)
    evolving.live([BEFORE, RENAMED, LATER, "insert into log values (51)"], each=each)
    assert "mirrorlake repair public.apples" in evolving.stopped()["public.apples"]
    assert [row["id"] for row in evolving.mirrored("log")] == [51]
    evolving.run("alter table cherries rename to apples")
    with closing(evolving.new_capture()) as capture:
        capture.repair().done(["public.apples"])
    evolving.live([AFTER], each=each)
    evolving.check("apples")
    evolving.check("log")


@pytest.mark.parametrize("each", some([False, True]))
def test_others_go_on_when_a_table_is_dropped(evolving: EvolvingDatabase, *, each: bool) -> None:
    evolving.begin(*TABLES)
    dropped = f"{BEFORE}; drop table apples"
    evolving.live([dropped, "insert into log values (51)"], each=each)
    assert {*evolving.stopped()} == {"public.apples"}
    assert [row["id"] for row in evolving.mirrored("log")] == [51]
    assert len(evolving.mirrored("apples")) == 3
    evolving.run("insert into log values (52)")
    evolving.capture()
    evolving.apply()
    assert len(evolving.mirrored("log")) == 2
    evolving.run(AGAIN, ROWS)
    evolving.capture()
    evolving.apply()
    evolving.check("apples")
    evolving.check("log")
