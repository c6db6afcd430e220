"""Tables without a key, of which PostgreSQL logs old rows whole, mirrored from a live server."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from mirrorlake import root
from mirrorlake.app.loop.apply_loop import ApplyLoop
from mirrorlake.landing import publish
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.model.clock import WallClock
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.model.landed import FileName
from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import Dying, EvolvingDatabase
from tests.conftest import Database
from tests.doubles.handmade_engine import in_process_engine
from tests.profiles import some, tries

pytestmark = pytest.mark.postgres

TEXT = "x" * 3_000
COLUMNS = """size int, note text, weight float8, price numeric(9, 2), doc json, place point,
raw bytea, moment timestamptz, tags text[]"""
ROWS = """(1, 'a', 'nan', '{"a": 1}'), (1, 'a', 'nan', '{"a": 1}'), (1, 'a', 'nan', '{"a":1}'),
(null, null, null, null), (null, null, null, null), (2, 'b', -0.0, null), (2, 'b', 0.0, null)"""
EVERY = """(1, 'é', 'infinity', 1.50, '[]', '(1,2)', '\\x00ff', '2020-01-01 00:00:00.123456+01',
'{a,null}')"""
FULL = "alter table apples replica identity full"
APPLES = (
    f"create table apples ({COLUMNS})",
    FULL,
    f"insert into apples (size, note, weight, doc) values {ROWS}",
)
ONE_OF = "(select min(ctid) from apples where {})"
TAKE_ONE = f"delete from apples where ctid = {ONE_OF}"
BACK_AND_FORTH = """
    insert into apples (size) values (7), (7);
    delete from apples where size = 7;
    insert into apples (size) values (7)
"""
EMPTIED = f"""
    delete from apples where size = 1;
    truncate apples;
    insert into apples (size) values (1), (1);
    {TAKE_ONE.format("true")}
"""

CHANGES: dict[str, Sequence[str]] = {
    "one of equal rows": [TAKE_ONE.format("size = 1 and doc::text = '{\"a\": 1}'")],
    "one of equal rows without values": [TAKE_ONE.format("size is null")],
    "all equal rows": ["delete from apples where size is null"],
    "negative zero": ["delete from apples where weight::text = '-0'"],
    "one of equal rows is updated": [
        f"update apples set note = 'z' where ctid = {ONE_OF.format('size = 1')}"
    ],
    "an update that changes nothing": ["update apples set note = note"],
    "rows become equal": ["update apples set size = 1, note = 'a', weight = 'nan', doc = null"],
    "rows take the values of each other": [
        "insert into apples (size) values (7), (8), (9)",
        "update apples set size = case size when 7 then 8 when 8 then 9 else 7 end where size > 2",
        "update apples set size = size + 1 where size > 2",
    ],
    "come and gone in a transaction": [BACK_AND_FORTH],
    "emptied": ["truncate apples", "insert into apples (size) values (1), (1)"],
    "emptied in the middle": [EMPTIED],
    "values that are not sent": [
        "alter table apples alter note set storage external",
        f"insert into apples (size, note) values (5, '{TEXT}'), (5, '{TEXT}'), (6, '{TEXT}')",
        f"update apples set size = 6 where ctid = {ONE_OF.format('size = 5')}",
        TAKE_ONE.format("size = 6"),
    ],
    "values of every type": [
        f"insert into apples values {EVERY}, {EVERY}",
        TAKE_ONE.format("note = 'é'"),
        "update apples set price = 2 where note = 'é'",
    ],
    "types are widened": [
        f"insert into apples values {EVERY}, {EVERY}",
        "alter table apples alter size type bigint, alter price type numeric(12, 2)",
        TAKE_ONE.format("note = 'é'"),
        "update apples set size = 5000000000 where size = 2",
        TAKE_ONE.format("size = 5000000000"),
    ],
    "a column is dropped": [
        "alter table apples drop column doc",
        TAKE_ONE.format("size = 1"),
        "update apples set note = 'y' where size is null",
        TAKE_ONE.format("size is null"),
    ],
    "columns are renamed": [
        "alter table apples rename size to width",
        TAKE_ONE.format("width = 1"),
        "alter table apples rename width to size",
        "update apples set note = 'y' where size is null",
    ],
    "columns exchange their names": [
        """alter table apples rename note to other; alter table apples rename doc to note;
        alter table apples rename other to doc""",
        "delete from apples where size is null",
        TAKE_ONE.format("size = 1"),
    ],
    "the values of a column differ": [
        "alter table apples add column c int default random() * 1000000",
        TAKE_ONE.format("size = 1"),
        "update apples set c = 1 where size is null",
    ],
    "a type is changed": [
        "alter table apples alter size type text using 'x' || size",
        "update apples set note = 'y' where size = 'x1'",
        "delete from apples where size is null",
    ],
    "a column is added": [
        "alter table apples add column c int default 7",
        TAKE_ONE.format("size = 1"),
        "alter table apples add column d text",
        "update apples set d = 'x' where size = 1",
        TAKE_ONE.format("size is null"),
    ],
}


def like(value: Any) -> Any:
    """Floating point by its text, and what is JSON in Delta as JSON."""
    match value:
        case float():
            return repr(value)
        case list() | dict():
            return json.dumps(value)
        case str() if value[:1] in {"[", "{"}:
            return json.dumps(json.loads(value))
        case _:
            return value


def begun(evolving: EvolvingDatabase, *statements: str) -> None:
    evolving.run(*(statements or APPLES), "create table log (id int primary key)")
    evolving.capture()
    evolving.apply()


@pytest.mark.full
@pytest.mark.parametrize("statements", some(CHANGES.values(), 5), ids=CHANGES)
def test_a_table_without_key_has_the_rows_of_its_source(
    evolving: EvolvingDatabase, statements: Sequence[str]
) -> None:
    begun(evolving)
    evolving.run(*statements)
    evolving.capture()
    evolving.apply()
    evolving.check("apples", like)


def test_a_key_that_is_checked_late_may_be_handed_round(evolving: EvolvingDatabase) -> None:
    begun(
        evolving,
        "create table apples (id int primary key deferrable initially deferred, note text)",
        FULL,
        "insert into apples select n, 'note ' || n from generate_series(1, 20) n",
    )
    evolving.run("update apples set id = id + 1", "update apples set id = 22 - id")
    evolving.capture()
    evolving.apply()
    evolving.check("apples")


@pytest.mark.full
def test_rows_had_a_default_that_is_gone_when_capture_looks(evolving: EvolvingDatabase) -> None:
    begun(evolving, *APPLES[:2], "insert into apples (size) values (1), (2)")
    evolving.run(
        "alter table apples add column c int default 7; insert into apples (size) values (3)",
        "update apples set note = 'z' where size = 1",  # the log has the former row, with 7
        "alter table apples drop column c",
        "delete from apples where size = 2",
    )
    evolving.capture()
    evolving.apply()
    evolving.check("apples", like)


CAPTURING = [CrashPoint.CHANGES_STAGED, CrashPoint.CHANGES_PUBLISHED_ONE, CrashPoint.CUT_WRITTEN]
APPLYING = [CrashPoint.COMMIT_BEGUN, CrashPoint.COMMITTED]


@pytest.mark.parametrize("point", some([*CAPTURING, *APPLYING]))
def test_each_deletion_takes_one_row_when_a_process_dies(
    evolving: EvolvingDatabase, point: CrashPoint
) -> None:
    begun(evolving)
    for where in ("size = 1", "size is null", "size = 1"):
        evolving.run(TAKE_ONE.format(where), "insert into log select count(*) from log")
        assert evolving.capture(Dying(point)) is (point in CAPTURING)
        assert evolving.apply(Dying(point)) is (point in APPLYING)
    evolving.capture()
    evolving.apply()
    evolving.check("apples", like)


def statements_of(seed: int) -> Iterator[str]:
    """Changes of a few values, so that there are equal rows at all times."""
    chance = random.Random(seed)
    for _ in range(40):
        size, other = chance.choices(["0", "1", "2", "null"], k=2)
        where = "size is null" if size == "null" else f"size = {size}"
        yield chance.choice(
            [
                f"insert into apples (size, note) select {size}, 'n' from generate_series(1, 3)",
                f"update apples set size = {other} where {where}",
                f"update apples set size = {other} where ctid = {ONE_OF.format(where)}",
                TAKE_ONE.format(where),
                f"delete from apples where {where} and note = 'n'",
                "truncate apples" if chance.random() < 0.2 else "update apples set note = null",
            ]
        )


@pytest.mark.full
@pytest.mark.parametrize("seed", some(range(tries(4)), 1))
def test_random_changes_leave_the_rows_of_the_source(evolving: EvolvingDatabase, seed: int) -> None:
    begun(evolving)
    for number, statement in enumerate(statements_of(seed)):
        evolving.run(statement)
        if number % 13 == 12:
            evolving.capture()
        if number % 20 == 19:
            evolving.apply()
    evolving.capture()
    evolving.apply()
    evolving.check("apples", like)


def test_a_deleted_row_that_the_table_does_not_have_stops_it(evolving: EvolvingDatabase) -> None:
    begun(evolving, *APPLES[:2], "insert into apples (size) values (1), (1)")
    evolving.run("delete from apples")
    evolving.capture()
    folder = f"{root.LANDING}/public.schema/apples"
    last = publish.newest_file(evolving.store, folder)
    assert last is not None
    again = f"{folder}/{FileName(last.number + 1)}"
    evolving.store.create(again, evolving.store.read(last.path))
    evolving.run("insert into log values (1)")
    evolving.capture()
    loop = ApplyLoop(
        evolving.store, in_process_engine(evolving.store), MirrorSettings(), WallClock(), holder="m"
    )
    loop.open()
    report = loop.once()
    loop.close()
    (error,) = report.errors
    assert error.code == "row_not_found"
    assert len(evolving.mirrored("apples")) == 2


def test_a_strict_zone_refuses_what_other_engines_would_take_for_more(
    database: Database, store: LocalStore
) -> None:
    evolving = EvolvingDatabase(database, store, strict=True)
    begun(evolving)
    assert "other engines would delete all rows" in evolving.stopped()["public.apples"]


def test_a_table_that_was_loaded_append_only_is_read_again(evolving: EvolvingDatabase) -> None:
    begun(evolving, APPLES[0], APPLES[2])
    evolving.run("delete from apples where size is null", "insert into apples (size) values (5)")
    evolving.capture()
    evolving.run(FULL, "insert into apples (size) values (6)", TAKE_ONE.format("size = 1"))
    evolving.capture()
    evolving.apply()
    evolving.check("apples", like)


NOT_VALID = "alter table t add constraint filled not null c not valid"


@pytest.mark.parametrize("is_before", [True, False])
def test_a_column_that_was_never_checked_for_null_is_no_key(
    evolving: EvolvingDatabase, *, is_before: bool
) -> None:
    if evolving.database.sql.info.server_version < 180_000:
        pytest.skip("NOT NULL is validated at once")
    table = "create table t (id int, c int, v text)", "alter table t replica identity full"
    rows = "create unique index on t (c)", "insert into t values (1, null, 'a'), (2, null, 'b')"
    evolving.begin(*table, *rows, *([NOT_VALID] if is_before else []))
    evolving.run(*([] if is_before else [NOT_VALID]), "insert into t values (3, 3, 'c')")
    evolving.run("update t set v = 'x' where id = 3", "delete from t where id = 1")
    evolving.capture()
    evolving.run("update t set c = 1 where id = 2")
    evolving.capture()
    evolving.run("alter table t validate constraint filled", "update t set v = 'y'")
    evolving.capture()
    evolving.apply()
    evolving.check("t")


def test_an_index_of_the_identity_that_may_have_null_is_no_key(evolving: EvolvingDatabase) -> None:
    if evolving.database.sql.info.server_version < 180_000:
        pytest.skip("NOT NULL is validated at once")
    evolving.begin("create table t (id int primary key, c int)", "create unique index one on t (c)")
    evolving.run(NOT_VALID, "alter table t replica identity using index one")
    evolving.run("insert into t values (1, 1), (2, 2)")
    evolving.capture()
    evolving.apply()
    evolving.check("t")
    assert evolving.stopped() == {}
