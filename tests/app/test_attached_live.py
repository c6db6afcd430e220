"""Partitions that are filled and then attached, which PostgreSQL 14 does not notice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from random import Random

import psycopg
import pytest

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
STATEMENTS = (
    f"{LOOSE}; {ATTACH}; insert into apples values (20, 'x')",
    "alter table apples detach partition loose; insert into loose values (21, 'x'), (22, 'y')",
    f"update loose set note = 'z' where id = 21; {ATTACH}",
    "delete from apples where id = 22; update apples set note = 'later' where id = 20",
    "insert into apples values (23, 'z'), (4, 'd')",
    "alter table apples detach partition loose",
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
