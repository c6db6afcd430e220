"""Changes of a source of every kind in the table of `docs/schema-changes.md`, each by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mirrorlake import root
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.watch.append_only import UncapturedPolicy
from mirrorlake.mirror.table.deleted import MIN_SCANS
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.sources.postgresql.settings import TriggerPolicy
from tests.app.evolving_database import EvolvingDatabase
from tests.conformance.scene import until
from tests.doubles.memory_store import Crash


@dataclass(frozen=True)
class Change:
    """A change of `apples`, `plums` or `parts`.

    first: what is done before, when the tables are mirrored; name: what `apples` is called after
    it; new: a table that is mirrored from then on; dropped: one that is gone from then on; days:
    of rows that `parts` takes after it, one for each partition but the first; apart: a table that
    is no partition any more; is_alone: it cannot be in a transaction with rows;
    appends: `apples` is append-only from then on.
    """

    statement: str
    first: Sequence[str] = ()
    name: str = "apples"
    new: str = ""
    dropped: str = ""
    days: Sequence[int] = (11,)
    apart: str = ""
    is_alone: bool = False
    appends: bool = False


TABLES = (
    "create type mood as enum ('good', 'bad'); create domain weight as int check (value > 0)",
    "create sequence codes",
    """create table apples (id int primary key, code int not null default nextval('codes'),
    a int default 1, b int, tiny smallint default 3, size int default 4, ratio real default 0.1,
    price numeric(9, 2) default 1.25, note text default 'n', digits text,
    title varchar(9) default 'title', day date default '2024-02-29', mood mood default 'good',
    weight weight default 5)""",
    "create unique index apples_code on apples (code)",
    "insert into apples (id, b, digits) select n, n * 10, n * 7 from generate_series(1, 9) n",
    "create table plums (id int primary key, note text)",
    "insert into plums values (1, 'a'), (2, 'b')",
    """create table parts (id int, day int, note text, primary key (id, day))
    partition by range (day)""",
    "create table parts_1 partition of parts for values from (0) to (10)",
    "create table parts_2 partition of parts for values from (10) to (20)",
    "insert into parts values (1, 1), (2, 2), (3, 3), (4, 11), (5, 12)",
    "create table log (id int primary key)",
)

_TYPE = "alter table apples alter {} type {}"
_NO_KEY = "alter table apples drop constraint apples_pkey, replica identity full"
_KEY_ALONE = "alter table apples drop constraint apples_pkey"
_EXCHANGE = """
    alter table apples rename size to x; alter table apples rename tiny to size;
    alter table apples rename x to tiny
"""
_ATTACH = """
    create table parts_3 (id int not null, day int not null, note text, primary key (id, day));
    insert into parts_3 values (6, 21), (7, 22);
    alter table parts attach partition parts_3 for values from (20) to (30)
"""
_AGAIN = """
    drop table apples; create table apples (b int, id int primary key, a int);
    insert into apples (id, a) select n, n from generate_series(1, 9) n
"""

CHANGES = {
    "column added": Change("alter table apples add c int"),
    "column added with a default": Change("alter table apples add c int default 7"),
    "column added with a volatile default": Change(
        "alter table apples add c int default random() * 1000"
    ),
    "column dropped": Change("alter table apples drop note"),
    "column renamed": Change("alter table apples rename note to remark"),
    "names exchanged": Change(_EXCHANGE),
    "dropped and added at once": Change("alter table apples drop note, add note int default 5"),
    "dropped name used again": Change(
        "alter table apples add note int default 5", ["alter table apples drop note"]
    ),
    "smallint to int": Change(_TYPE.format("tiny", "int")),
    "int to bigint": Change(_TYPE.format("size", "bigint")),
    "int to bigint with other values": Change(_TYPE.format("size", "bigint using size * 3")),
    "real to double precision": Change(_TYPE.format("ratio", "double precision")),
    "numeric with more digits": Change(_TYPE.format("price", "numeric(14, 2)")),
    "int to numeric": Change(_TYPE.format("size", "numeric(12, 2)")),
    "varchar to a longer one": Change(_TYPE.format("title", "varchar(50)")),
    "date to timestamp": Change(_TYPE.format("day", "timestamp")),
    "text to int": Change(_TYPE.format("digits", "int using digits::int")),
    "int to text": Change(_TYPE.format("size", "text")),
    "key changed": Change(
        "alter table apples drop constraint apples_pkey, add primary key (a, id)"
    ),
    "replica identity full": Change("alter table apples replica identity full"),
    "replica identity by an index": Change(
        "alter table apples replica identity using index apples_code"
    ),
    "key dropped": Change(_NO_KEY),
    "key dropped with the default replica identity": Change(_KEY_ALONE, appends=True),
    "key added": Change(
        "alter table apples add primary key (id), replica identity default", [_NO_KEY]
    ),
    "key added to an append-only table": Change(
        "alter table apples add primary key (id)", [_KEY_ALONE]
    ),
    "table renamed": Change("alter table apples rename to cherries", name="cherries"),
    "table moved to another schema": Change(
        "create schema other; alter table apples set schema other", name="other.apples"
    ),
    "table truncated": Change("truncate apples"),
    "table created again": Change(_AGAIN),
    "table dropped": Change("drop table plums", dropped="plums"),
    "table created": Change(
        "create table pears (id int primary key); insert into pears values (1), (2)", new="pears"
    ),
    "table rewritten": Change("cluster apples using apples_pkey", is_alone=True),
    "partition attached": Change(_ATTACH, days=(11, 21)),
    "partition detached": Change(
        "alter table parts detach partition parts_2", days=(), apart="parts_2"
    ),
    "partition truncated": Change("truncate parts_2"),
    "partition dropped": Change("drop table parts_2", days=()),
    "enum value added": Change("alter type mood add value 'new'"),
    "enum value renamed": Change("alter type mood rename value 'good' to 'fine'"),
    "domain changed": Change("alter domain weight drop constraint weight_check"),
    "generated column added": Change(
        "alter table apples add thrice int generated always as (id * 3) stored"
    ),
    "generated column made ordinary": Change(
        "alter table apples alter twice drop expression",
        ["alter table apples add twice int generated always as (id * 2) stored"],
    ),
    "collation changed": Change(_TYPE.format("note", 'text collate "C"')),
    "default changed": Change("alter table apples alter a set default 4"),
    "constraint added": Change("alter table apples add check (id > 0), alter a set not null"),
    "taken out of the publication": Change("alter publication {publication} drop table apples"),
}

CAPTURING = (
    CrashPoint.CHANGES_STAGED,
    CrashPoint.CHANGES_PUBLISHED_ONE,
    CrashPoint.CUT_WRITTEN,
    CrashPoint.ACKNOWLEDGED,
)
"""Points at which capture comes by whenever rows have changed."""

FOLLOWING = (
    CrashPoint.KNOWN_NOTED,
    CrashPoint.KNOWN_RECORDED,
    CrashPoint.ATTACHED_RECORDED,
    CrashPoint.WITHOUT_EFFECT_RECORDED,
    CrashPoint.PUBLICATION_LEFT,
    CrashPoint.PUBLICATION_MOVED,
    CrashPoint.PUBLICATION_JOINED,
    CrashPoint.MESSAGE_DUE,
    CrashPoint.MESSAGE_WRITTEN,
    CrashPoint.REPLACED_NOTED,
    CrashPoint.REPLACED_DELETED,
    CrashPoint.STOPPED_RECORDED,
    CrashPoint.APPEND_ONLY_RECORDED,
    CrashPoint.DELETED_RECORDED,
    CrashPoint.BACKFILL_REQUIRED,
    CrashPoint.BACKFILL_BEGUN,
    CrashPoint.BACKFILL_PART_STAGED,
    CrashPoint.BACKFILL_NOTED,
    CrashPoint.BACKFILL_STAGED,
    CrashPoint.BACKFILL_PUBLISHED,
    CrashPoint.BACKFILL_RECORDED,
)
"""Those at which it comes by after some changes."""

APPLYING = (
    CrashPoint.COLUMNS_RENAMED,
    CrashPoint.COLUMNS_ADDED,
    CrashPoint.COLUMNS_WRITTEN,
    CrashPoint.COLUMNS_ALTERED,
    CrashPoint.PROPERTIES_SET,
    CrashPoint.DROP_RECORDED,
    CrashPoint.TABLE_DROPPED,
    CrashPoint.COMMIT_BEGUN,
)


def rows(number: int, change: Change | None = None) -> str:
    """Statements that write rows of each kind. number: 1 and up; change: which was made before."""
    now = change or Change("")
    statements = f"""
        insert into {now.name} (id, a, b) values ({number * 100}, 1, {number}), ({number}0, 2, 2);
        update {now.name} set b = -{number} where id in ({number}, {number} + 5, 9);
        delete from {now.name} where id = {number} + 1;
        insert into parts values ({number * 100}, {number}); delete from parts where id = {number};
        insert into log values ({number})
    """
    places = [("parts", day) for day in now.days] + [(now.apart, 11)] * bool(now.apart)
    for table, day in places:
        statements += f"""
            ; insert into {table} values ({number * 100}, {day}), ({number * 100 + 1}, {day});
            update {table} set note = '{number}' where id in (5, 7, {number * 100});
            delete from {table} where id = {number * 100 - 100 or 4} and day >= {day}
        """
    if now.new:
        statements += f"""
            ; insert into {now.new} values ({number * 10}), ({number * 10 + 1});
            update {now.new} set id = {number * 10 + 2} where id = {number * 10};
            delete from {now.new} where id = {number * 10 - 9} or id = 1
        """
    if now.dropped != "plums":
        statements += f"""
            ; insert into plums values ({number * 10}, 'c');
            update plums set note = '{number}' where id = 1; delete from plums where id = 2
        """
    return statements


class DyingAtEach:
    """Processes end, one after the other, at each of these points to which one of them comes."""

    def __init__(self, points: Collection[CrashPoint]) -> None:
        self.left = {*points}

    def __call__(self, point: CrashPoint) -> None:
        if point in self.left:
            self.left.remove(point)
            raise Crash(str(point))


def live(evolving: EvolvingDatabase, change: Change, *, at_once: bool) -> None:
    """Rows are written before, between and after, in one transaction with the change or in others.
    Capture, and what applies, die at every point to which they come."""
    evolving.drop_after = 0.0
    evolving.uncaptured = UncapturedPolicy.BACKFILL
    if change.appends or change.first == [_KEY_ALONE]:
        evolving.trigger = TriggerPolicy.AUTO  # else updates while there is no key are rejected
    evolving.begin(*TABLES)
    if change.first:
        evolving.run(*change.first)
        evolving.capture()
    dying = DyingAtEach({*CAPTURING, *FOLLOWING})
    statement = change.statement.format(publication=evolving.made)
    before, between = rows(1), rows(2, change)
    if at_once and not change.is_alone:
        evolving.run(f"{before}; {statement}; {between}")
    else:
        evolving.run(before, statement)
        while evolving.capture(dying):
            pass
        evolving.run(between)
    while evolving.capture(dying):
        pass
    assert len(dying.left & {*CAPTURING}) <= 1  # what is cut may be acknowledged later
    evolving.run(rows(3, change))
    evolving.capture()
    dying = DyingAtEach(APPLYING)
    for _ in range(MIN_SCANS if change.dropped else 1):
        while evolving.apply(dying):
            pass


def check(evolving: EvolvingDatabase, change: Change) -> None:
    """The mirror equals its source, and its feed leads there from version 0."""
    if change.dropped:
        assert not (evolving.store.root / f"Tables/public/{change.dropped}").exists()
    found = Records(evolving.store, root.LANDING).append_only()
    assert set(found) == ({"public.apples"} if change.appends else set())
    if change.appends:
        until(lambda: _is_made_up_for(evolving))
    for table in {"apples", "plums", "parts", "log", change.new} - {"", change.dropped}:
        source = change.name if table == "apples" else table
        columns = evolving.database.sql.execute(
            "select string_agg(quote_ident(attname), ', ') from pg_attribute "
            "where attrelid = %s::regclass and attnum > 0 and not attisdropped "
            "and attgenerated = ''",
            [source],
        ).fetchall()
        evolving.check(table, comparable, source, columns[0][0])


def _is_made_up_for(evolving: EvolvingDatabase) -> bool:
    """Whether `apples` was read again for the changes that PostgreSQL has counted, which it does a
    little late."""
    evolving.capture()
    evolving.apply()
    expected = evolving.database.sql.execute("select id, b from apples").fetchall()
    found = ((row["id"], row["b"]) for row in evolving.mirrored("apples"))
    return Counter(found) == Counter(expected)


def comparable(value: Any) -> Any:
    """A timestamp without a zone is read as UTC, and a `real` with all digits of a `double`; the
    text of PostgreSQL has those that it holds."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    return round(value, 6) if isinstance(value, float) else value
