"""Partitions that are filled and then attached, which PostgreSQL 14 does not notice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from random import Random

import psycopg
import pytest

from mirrorlake import root
from mirrorlake.capture.records.records import Records
from mirrorlake.demo.server import EmbeddedServer
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import Dying, EvolvingDatabase
from tests.conftest import database_on
from tests.doubles.memory_store import Crash

pytestmark = [pytest.mark.postgres, pytest.mark.full]

TABLES = (
    "create table apples (id int primary key, note text) partition by range (id)",
    "create table apples_1 partition of apples for values from (0) to (10)",
    "insert into apples values (1, 'a'), (2, 'b'), (3, 'c')",
    "create table log (id int primary key)",
)
LOOSE = "create table loose (id int not null primary key, note text)"
ATTACH = "alter table apples attach partition loose for values from (20) to (30)"
DETACH = "alter table apples detach partition loose"
SELECTED = ("public.apples", "public.log")
STATEMENTS = (
    f"{LOOSE}; {ATTACH}; insert into apples values (20, 'x')",
    f"{DETACH}; insert into loose values (21, 'x'), (22, 'y')",
    f"update loose set note = 'z' where id = 21; {ATTACH}",
    "delete from apples where id = 22; update apples set note = 'later' where id = 20",
    "insert into apples values (23, 'z'), (4, 'd')",
    DETACH,
    "delete from loose where id = 20; insert into loose values (24, 'z')",
    ATTACH,
    "update apples set note = 'last' where id in (1, 24)",
    f"drop table loose; {LOOSE}",
    f"insert into loose values (25, 'x'); {ATTACH}; update apples set note = 'y' where id = 25",
    "delete from apples where id in (2, 25)",
)


@pytest.fixture
def evolving(postgres14: EmbeddedServer, store: LocalStore) -> Iterator[EvolvingDatabase]:
    for database in database_on(postgres14):
        yield EvolvingDatabase(database, store)


@pytest.mark.parametrize("at_once", [1, 2, 3])
@pytest.mark.parametrize(
    "point",
    [
        None,
        CrashPoint.BACKFILL_REQUIRED,
        CrashPoint.CUT_WRITTEN,
        CrashPoint.ACKNOWLEDGED,
        CrashPoint.BACKFILL_PUBLISHED,
        CrashPoint.BACKFILL_RECORDED,
    ],
)
def test_changes_of_an_attached_partition_arrive(
    evolving: EvolvingDatabase, at_once: int, point: CrashPoint | None
) -> None:
    evolving.begin(*TABLES)
    left, dies = list(STATEMENTS), False
    while left:
        dies = not dies
        dying = Dying(point) if point and dies else Dying()
        with suppress(Crash), evolving.capturing(dying) as capture:
            while left:
                for _ in range(min(at_once, len(left))):
                    evolving.run(left.pop(0))
                capture.once()
    evolving.capture()
    evolving.apply()
    evolving.check("apples")


def test_changes_arrive_of_partitions_that_are_attached_under_load(
    evolving: EvolvingDatabase,
) -> None:
    """Others write all the time, also to what is attached and detached."""
    evolving.begin(*TABLES)
    is_over = threading.Event()

    def write() -> None:
        random = Random(1)
        with psycopg.connect(evolving.database.url, autocommit=True) as connection:
            while not is_over.is_set():
                number = random.randrange(30)
                with suppress(psycopg.Error):
                    connection.execute(
                        "insert into apples values (%s, %s) on conflict (id) do update set note = "
                        "excluded.note || apples.id",
                        (number, str(random.random())),
                    )
                with suppress(psycopg.Error):
                    connection.execute("delete from loose where id = %s", (number,))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with evolving.capturing() as capture:
            for statement in STATEMENTS:
                with suppress(psycopg.Error):
                    evolving.run(statement)
                capture.once()
    finally:
        is_over.set()
        writer.join()
    evolving.capture()
    evolving.apply()
    evolving.check("apples")


def test_a_table_that_was_emptied_before_it_is_attached_counts_as_filled(
    evolving: EvolvingDatabase,
) -> None:
    evolving.selected = SELECTED
    evolving.begin(*TABLES)
    changes = [
        f"{LOOSE}; insert into loose values (25, 'x'); truncate loose",
        "insert into apples values (5, 'y')",
        ATTACH,
        "insert into apples values (21, 'z')",
        "insert into apples values (22, 'z'), (6, 'q')",
    ]
    evolving.live(changes, each=True)
    evolving.check("apples")


def test_a_partition_that_is_detached_before_the_stream_is_there_leaves_no_rows(
    evolving: EvolvingDatabase,
) -> None:
    """The table is read with its rows, while the stream is far behind."""
    evolving.selected = SELECTED
    evolving.begin(*TABLES)
    with evolving.capturing() as capture:
        evolving.run(f"{LOOSE}; insert into loose values (21, 'x'), (22, 'y')", ATTACH)
        evolving.run("update apples set note = 'k' where id = 1")
        for n in range(12):
            evolving.run(f"insert into log select generate_series({n}00000, {n}99999)")
        for _ in range(20):
            capture.step(0.2)
        evolving.run(DETACH)
        for _ in range(2):
            capture.once()
            evolving.run("update apples set note = 'm' where id = 2")
    evolving.capture()
    evolving.apply()
    evolving.check("apples")


def test_changes_arrive_of_a_table_that_was_loaded_before_the_stream_is_there(
    evolving: EvolvingDatabase,
) -> None:
    evolving.selected = SELECTED
    evolving.begin(*TABLES)
    evolving.run(LOOSE, "insert into loose values (21, 'x')", ATTACH)
    Records(evolving.store, root.LANDING).forget("public.apples")
    for folder in (f"{root.LANDING}/public.schema/apples", "Tables/public/apples"):
        evolving.store.delete_folder(folder)  # as `mirrorlake reset` does
    with evolving.capturing() as capture:
        for note in ("late", "later"):
            evolving.run(f"update apples set note = '{note}' where id in (1, 21)")
            capture.once()
    evolving.apply()
    evolving.check("apples")


def of_others(evolving: EvolvingDatabase) -> str:
    """The statement that makes the publication before capture does."""
    via_root = "with (publish_via_partition_root = true)"
    return f"create publication {evolving.made} for all tables {via_root}"


@pytest.mark.parametrize("point", [None, CrashPoint.BACKFILL_REQUIRED, CrashPoint.CUT_WRITTEN])
def test_changes_arrive_of_a_partition_that_became_a_table_of_its_own(
    evolving: EvolvingDatabase, point: CrashPoint | None
) -> None:
    """It is loaded while the stream reads what it was changed by as a partition. Nothing but the
    detachment tells the server that it is published under its own name from then on."""
    evolving.run(*TABLES, LOOSE, "insert into loose values (20, 'x'), (21, 'y')", ATTACH)
    evolving.run(of_others(evolving))
    evolving.capture()
    evolving.apply()
    evolving.run("update apples set note = 'k' where id in (1, 20)", DETACH)
    with suppress(Crash), evolving.capturing(Dying(point)) as capture:
        for number in (22, 23):
            evolving.run(f"insert into loose values ({number}, 'late')")
            capture.once()
    evolving.run("delete from loose where id = 21")
    evolving.capture()
    evolving.apply()
    evolving.check("loose")
    evolving.check("apples")


def test_a_new_table_that_was_no_partition_is_read_once(evolving: EvolvingDatabase) -> None:
    evolving.run(*TABLES, of_others(evolving))
    evolving.capture()
    new = "create table pears (id serial primary key, note text default 'x', at timestamp)"
    evolving.run(new, "insert into pears default values")
    evolving.capture()
    evolving.run("insert into pears default values")
    evolving.capture()
    evolving.apply()
    evolving.check("pears")
    assert not evolving.read_again()
