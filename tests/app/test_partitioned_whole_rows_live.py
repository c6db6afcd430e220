"""Partitioned tables without a key, of which whole rows are logged, mirrored from a live server."""

from __future__ import annotations

import pytest

from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import EvolvingDatabase
from tests.conftest import Database

pytestmark = [pytest.mark.postgres, pytest.mark.full]

TABLE = (
    "create table apples (id int, note text) partition by range (id)",
    "create table few partition of apples for values from (0) to (10)",
    "create table many partition of apples for values from (10) to (100)",
    "insert into apples values (1, 'a'), (1, 'a'), (2, null), (12, 'b')",
)
FULL = [f"alter table {name} replica identity full" for name in ("apples", "few", "many")]
MADE = "create table more partition of apples for values from (100) to (200)"
CHANGES = (
    "update apples set id = 13 where ctid = '(0,1)' and id = 1",
    "delete from apples where id = 2",
    "insert into apples values (12, 'b')",
)


@pytest.fixture
def evolving(database: Database, store: LocalStore) -> EvolvingDatabase:
    return EvolvingDatabase(database, store)


def test_it_has_the_rows_of_its_source(evolving: EvolvingDatabase) -> None:
    evolving.begin(*TABLE, *FULL)
    evolving.live(
        [
            *CHANGES,
            f"{MADE}; alter table more replica identity full; insert into more values (100, 'c')",
            "update apples set note = 'd' where id = 100",
        ],
        each=True,
    )
    evolving.check("apples")
    assert evolving.read_again() == []


def test_one_that_was_append_only_is_read_again_when_each_partition_logs_whole_rows(
    evolving: EvolvingDatabase,
) -> None:
    evolving.begin(*TABLE, *FULL[:2])
    evolving.live([*CHANGES, FULL[2], "insert into apples values (14, 'e')"], each=True)
    evolving.check("apples")
    assert evolving.read_again()


@pytest.mark.parametrize("each", [False, True])
def test_one_is_read_again_after_a_partition_logged_parts_of_rows(
    evolving: EvolvingDatabase, each: bool
) -> None:
    evolving.begin(*TABLE, *FULL)
    evolving.live(
        [
            "alter table many add primary key (id)",
            "alter table many replica identity default",
            "update apples set note = 'x' where id = 12",
            "update apples set id = 15 where id = 12",
            "alter table many replica identity full",
            "delete from apples where id = 1",
            "insert into apples values (16, 'f')",
        ],
        each=each,
    )
    evolving.check("apples")
    assert evolving.read_again()


def test_the_columns_of_a_new_key_were_null_in_older_rows(evolving: EvolvingDatabase) -> None:
    evolving.begin(*TABLE, *FULL)
    evolving.run(
        "insert into apples values (14, null)",
        "update apples set id = id + 1 where note is null",
        "delete from apples where ctid = (select max(ctid) from few where note = 'a')",
        "update apples set note = 'n' where note is null",
        "alter table apples alter note set not null, alter id set not null",
        "create unique index one on apples (note, id)",
        "update apples set note = 'b' where id = 12",
    )
    evolving.capture()
    evolving.apply()
    evolving.check("apples")
    assert evolving.read_again()
