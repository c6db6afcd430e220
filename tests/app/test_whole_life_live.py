"""One mirror goes through changes of every kind in the table of `docs/schema-changes.md`, loses its
slot, and goes on with a standby that takes over."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager

import psycopg
import pytest

from mirrorlake.demo.server import EmbeddedServer
from mirrorlake.errors import SourceGap
from mirrorlake.model.change import ROW_DELETED
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.sources.postgresql.settings import TriggerPolicy
from mirrorlake.storage.local import LocalStore
from tests.app.conftest import SERVERS
from tests.app.every_change import comparable
from tests.app.evolving_database import Dying, EvolvingDatabase
from tests.conformance.scene import until
from tests.conftest import Database
from tests.reference import plain
from tests.standby import HAS_REPLAYED, SYNCHRONIZED, Standby, end_of, pair, until_copied, wait_for

pytestmark = [pytest.mark.postgres, pytest.mark.full]

COLUMNS = """id int primary key, a int, b int, size int, note text, price numeric(9, 2),
mood mood, weight weight, ratio real default 0.1, day date default '2024-02-29',
title varchar(9) default 'title'"""
TABLES = (
    "create type mood as enum ('good', 'bad'); create domain weight as int check (value > 0)",
    f"create table apples ({COLUMNS})",
    "insert into apples select n, n, n * 10, n, n::text, n, 'good', n from generate_series(1, 9) n",
    "create table figs (id int primary key); insert into figs values (1), (2)",
    "create table plums (id int primary key, note text)",
    "insert into plums values (1, 'a'), (2, 'b')",
    "create table parts (id int, day int, primary key (id, day)) partition by range (day)",
    "create table parts_1 partition of parts for values from (0) to (10)",
    "create table parts_2 partition of parts for values from (10) to (20)",
    "insert into parts values (1, 1), (2, 11)",
    "create table pledges (id int primary key, note text)",
)
LIFE = {
    "column added": "alter table apples add c int",
    "column added with a default": "alter table apples add d int default 7",
    "column added with a volatile default": "alter table apples add e int default random() * 1000",
    "column dropped": "alter table apples drop note",
    "column renamed": "alter table apples rename size to width",
    "names exchanged": "alter table apples rename a to x; alter table apples rename b to a; "
    "alter table apples rename x to b",
    "dropped name used again": "alter table apples add note int default 5",
    "dropped and added at once": "alter table apples drop c, add c bigint default 3",
    "type widened": "alter table apples alter width type bigint",
    "type widened with other values": "alter table apples alter a type bigint using a + 1",
    "more digits": "alter table apples alter price type numeric(12, 2)",
    "real to double precision": "alter table apples alter ratio type double precision",
    "date to timestamp": "alter table apples alter day type timestamp",
    "longer varchar": "alter table apples alter title type varchar(50)",
    "other type": "alter table apples alter note type text",
    "same type with other values": "alter table apples alter b type int using b * 2",
    "key changed": "alter table apples drop constraint apples_pkey, add primary key (id, a)",
    "replica identity changed": "alter table apples replica identity full",
    "key dropped": "alter table apples drop constraint apples_pkey",
    "key added": "alter table apples add primary key (id), replica identity default",
    "key of the default identity dropped": "alter table apples drop constraint apples_pkey",
    "key added to an append-only table": "alter table apples add primary key (id)",
    "enum value added": "alter type mood add value 'new'",
    "enum value renamed": "alter type mood rename value 'good' to 'fine'",
    "domain changed": "alter domain weight drop constraint weight_check",
    "generated column": "alter table apples add g int generated always as (id * 2) stored",
    "default and constraint": "alter table apples alter b set default 4, add check (id > 0)",
    "collation": 'alter table apples alter note type text collate "C"',
    "table rewritten": "cluster apples using apples_pkey",
    "table dropped": "insert into figs values (3); delete from figs where id = 1; drop table figs",
    "table created": "create table pears (id int primary key); insert into pears values (1)",
    "table created again": "drop table plums; create table plums (id int primary key, size int); "
    "insert into plums values (7, 8)",
    "partition attached": "create table parts_3 (id int not null, day int not null); "
    "insert into parts_3 values (3, 21), (4, 22); alter table parts_3 add primary key (id, day); "
    "alter table parts attach partition parts_3 for values from (20) to (30)",
    "partition truncated": "truncate parts_2",
    "partition detached": "alter table parts detach partition parts_1",
    "partition dropped": "drop table parts_2",
    "generated column made ordinary": "alter table apples alter g drop expression",
    "truncated": "truncate apples",
    "taken out of the publication": "alter publication {publication} drop table apples",
    "renamed": "alter table apples rename to cherries",
    "moved to another schema": "create schema other; alter table cherries set schema other",
}
KEYED = {
    "replica identity changed": "alter table apples replica identity using index apples_pkey",
    "key dropped": "alter table apples replica identity default",
    "key added": "alter table apples drop constraint apples_pkey, add primary key (id)",
}
"""Instead of the changes at which a table is mirrored by whole rows, or may be."""
NAMES = {"renamed": "cherries", "moved to another schema": "other.cherries"}
ALONE = {"enum value added", "table rewritten"}
"""What is not possible in a transaction that changes rows before."""
CRASHES = (CrashPoint.CHANGES_PUBLISHED_ONE, CrashPoint.BACKFILL_PUBLISHED, CrashPoint.CUT_WRITTEN)
APPLYING = (CrashPoint.COLUMNS_WRITTEN, CrashPoint.COMMIT_BEGUN, CrashPoint.COLUMNS_ALTERED)


@pytest.mark.parametrize(
    ("rows", "in_place"),
    [
        ("in the same transaction", False),
        ("in others", True),
        pytest.param("in others", False, marks=pytest.mark.long),
        pytest.param("in the same transaction", True, marks=pytest.mark.long),
    ],
)
def test_a_mirror_lives_through_every_change_with_an_unbroken_feed(
    store: LocalStore, rows: str, *, in_place: bool
) -> None:
    settings = {"fsync": "on", "max_prepared_transactions": "8", **SYNCHRONIZED}
    with pair(18, settings) as (first, second), psycopg.connect(first.url, autocommit=True) as sql:
        evolving = EvolvingDatabase(Database(first.url, first, sql, "life"), store)
        name = _live_through_every_change(evolving, rows, in_place=in_place)
        _live_on_without_slot(evolving, name)
        with _taken_over(evolving, first, second, f"update {name} set b = 3 where id = 9999"):
            evolving.run(
                f"alter table {name} add late int default 4",
                f"insert into {name} (id, a, b) values (9998, 9, 8)",
                "insert into pears values (5)",
            )
            evolving.capture()
            evolving.apply()
            _check(evolving, name)


SMALL_MEMORY = """
    do $$ begin
    execute format(
    'alter database %I set logical_decoding_work_mem = %L', current_database(), '64kB');
    end $$
"""
"""Larger transactions are streamed before they end, or else written to the disk of the server."""

WAYS = [*itertools.product(["in others", "in the same transaction"], [True, False])]
LIVES = [
    pytest.param(server, *way, marks=() if number == at else pytest.mark.long)
    for at, server in enumerate(SERVERS)
    for number, way in enumerate(WAYS)
]


@pytest.mark.parametrize(
    ("source_database", "rows", "in_place"), LIVES, indirect=["source_database"]
)
def test_a_mirror_of_an_older_server_does_so_too(
    evolving: EvolvingDatabase, rows: str, *, in_place: bool
) -> None:
    _live_on_without_slot(evolving, _live_through_every_change(evolving, rows, in_place=in_place))


def test_deleted_rows_stay_and_say_so_through_every_change(evolving: EvolvingDatabase) -> None:
    """With metadata columns. A table by whole rows is refused with soft deletes."""
    evolving.soft = evolving.metadata = True
    life = {what: KEYED.get(what, change) for what, change in LIFE.items()}
    name = _live_through_every_change(evolving, "in others", life, in_place=True)
    _lose_slot(evolving, f"delete from {name} where id > 3000; insert into pears values (2)")
    evolving.run(f"insert into {name} (id, a, b) values (9999, 9, 9)", "delete from pears")
    evolving.capture()
    evolving.apply()
    marked = {table: _marked(evolving, table) for table in ("plums", "pears", "parts", "pledges")}
    assert marked["pears"] == {1}  # the other one came and went while nothing was captured
    numbers = range(1, len(life) + 1)
    ever = {*range(1, 10), 9999, *(n * 100 for n in numbers), *(n * 100 + 1 for n in numbers)}
    there = {row[0] for row in evolving.database.sql.execute(f"select id from {name}").fetchall()}
    assert _marked(evolving, "apples", name) == ever - there


def _marked(evolving: EvolvingDatabase, table: str, source: str = "") -> set[int]:
    """The keys of rows that are marked as deleted; all others are those of the source, and the feed
    leads there."""
    assert evolving.stopped() == {}
    with psycopg.connect(evolving.database.url) as connection:
        cursor = connection.execute(f"select * from {source or table}")
        names = [column.name for column in cursor.description or ()]
        expected = Counter(tuple(map(comparable, row)) for row in cursor)
    found = evolving.mirrored(table)
    left = [row for row in found if not row[ROW_DELETED]]
    assert Counter(tuple(comparable(row[name]) for name in names) for row in left) == expected
    there = Counter(tuple(map(comparable, plain(tuple(row.values())))) for row in found)
    assert Counter(tuple(map(comparable, row)) for row in evolving.played(table)) == there
    return {row["id"] for row in found if row[ROW_DELETED]}


def _live_through_every_change(
    evolving: EvolvingDatabase, rows: str, life: Mapping[str, str] = LIFE, *, in_place: bool
) -> str:
    """Returns what `apples` is called at the end."""
    evolving.renames = evolving.widens = evolving.drops = in_place
    evolving.drop_after = 0.0
    evolving.streaming = rows == "in the same transaction"
    evolving.trigger = TriggerPolicy.AUTO  # else updates without a key are rejected
    evolving.begin(*TABLES)
    evolving.run(SMALL_MEMORY)
    name, died = "apples", set[CrashPoint]()
    for number, (what, change) in enumerate(life.items(), 1):
        before = (
            f"insert into {name} (id, a, b) values ({number * 100}, 1, 1); {_touched(name, number)}"
        )
        name = NAMES.get(what, name)
        after = (
            f"insert into {name} (id, a, b) values ({number * 100 + 1}, 2, 2); "
            f"{_touched(name, number + 1)}; delete from {name} where id = {number * 100 - 99}"
        )
        evolving.run(_prepared(number))
        is_alone = rows == "in others" or what in ALONE
        changed = change.format(publication=evolving.made)
        evolving.run(
            *((before, changed, after) if is_alone else (f"{before}; {changed}; {after}",)),
            f"{'rollback' if number % 3 else 'commit'} prepared 'life{number}'",
        )
        if evolving.capture(Dying(point := CRASHES[number % 3])):
            died.add(point)
            evolving.capture()
        if evolving.apply(Dying(point := APPLYING[number // 2 % 3]) if number % 2 else None):
            died.add(point)
    assert died == {*CRASHES, *APPLYING}
    evolving.run("insert into parts values (9, 25)", "insert into plums (id) values (8)")
    return name


def _live_on_without_slot(evolving: EvolvingDatabase, name: str) -> None:
    """name: what `apples` is called."""
    _lose_slot(evolving, f"delete from {name} where id > 3000; insert into pears values (2)")
    evolving.run(f"insert into {name} (id, a, b) values (9999, 9, 9)", "delete from pears")
    evolving.capture()
    evolving.apply()
    _check(evolving, name)


def _check(evolving: EvolvingDatabase, apples: str) -> None:
    """apples: what this table is called in the source."""
    evolving.check("apples", comparable, apples)
    assert not (evolving.store.root / "Tables/public/figs").exists()
    for table in ("plums", "pears", "parts", "pledges"):
        evolving.check(table)


def _lose_slot(evolving: EvolvingDatabase, lost: str) -> None:
    """Repair the mirror after its slot is gone, with changes that no slot has kept."""
    evolving.capture()
    slot = f"slot_name = '{evolving.made}'"
    reader = f"select active_pid from pg_replication_slots where {slot}"
    until(lambda: evolving.database.sql.execute(reader).fetchall() == [(None,)])
    evolving.lose_slot()
    evolving.run(lost)
    with pytest.raises(SourceGap):
        evolving.capture()
    with closing(evolving.new_capture()) as capture:
        capture.repair().done(())


@contextmanager
def _taken_over(
    evolving: EvolvingDatabase, first: EmbeddedServer, second: Standby, unread: str
) -> Iterator[None]:
    """The standby has taken over. unread: the last statement on the primary, which was not captured
    there."""
    with evolving.capturing() as capture:
        until_copied(first, second, evolving.made, meanwhile=capture.once)
    evolving.run(unread)
    wait_for(second, HAS_REPLAYED, end_of(first))
    first.kill()
    second.promote()
    with psycopg.connect(second.url, autocommit=True) as sql:
        evolving.database = Database(second.url, second, sql, evolving.database.name)
        yield


def _prepared(number: int) -> str:
    """A transaction over a change that is too large for the memory of logical decoding, with a
    savepoint that is rolled back, and prepared. Its locks are of a table that is not altered."""
    many = f"insert into pledges select {number * 2000} + g, repeat('x', 99) from generate_series"
    return f"""
        begin; {many}(1, 900) g; savepoint kept; delete from pledges; {many}(901, 1800) g;
        rollback to kept; update pledges set note = '{number}' where id % 7 = 1;
        delete from pledges where id % 5 = {number % 5}; prepare transaction 'life{number}'
    """


def _touched(table: str, number: int) -> str:
    return f"update {table} set b = {number} where id = {number % 9 + 1}"
