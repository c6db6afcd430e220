"""Types are widened at a live source, and in the table by type widening: no file is rewritten."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.delta.schema import TYPE_WIDENING
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.storage.local import LocalStore
from tests.app.conftest import in_turn
from tests.app.evolving_database import Dying, EvolvingDatabase
from tests.app.test_types_live import AFTER, BEFORE
from tests.conftest import Database

pytestmark = pytest.mark.postgres

TABLES = (
    "create table pears (id int primary key, note text, size smallint, price numeric(9, 2))",
    "alter table pears add weight real",
    "insert into pears values (1, 'a', 10, 1.5, 0.5), (2, 'b', null, 2.25, 0), (3, 'c', 30, 0, 1)",
    "create table log (id int primary key)",
)
KEY = "alter table pears alter id type bigint"
SIZE = "alter table pears alter size type {}"

CHANGES: dict[str, Sequence[str]] = {
    "key": [KEY, "insert into pears (id) values (1 << 40)", "delete from pears where id = 2"],
    "twice": [SIZE.format("int"), "update pears set size = 70000", SIZE.format("bigint")],
    "by an expression": [SIZE.format("bigint using size * 2")],
    "real": [
        "alter table pears alter weight type double precision",
        "update pears set weight = 0.1",
    ],
    "more digits": ["alter table pears alter price type numeric(14, 2)"],
    "decimal": [SIZE.format("numeric(12, 2)"), "update pears set size = 1.5 where id = 2"],
    "several": [f"{SIZE.format('int')}, alter price type numeric(14, 2), alter id type bigint"],
    "renamed too": [
        "alter table pears rename size to width",
        SIZE.format("int").replace("size", "width"),
    ],
    "and filled": [f"{SIZE.format('int')}, add number int default 7"],
    "then text": [SIZE.format("int"), "update pears set size = 8", SIZE.format("text")],
    "and back": [SIZE.format("int"), SIZE.format("smallint"), SIZE.format("bigint")],
}


@pytest.fixture
def widening(source_database: Database, store: LocalStore) -> EvolvingDatabase:
    evolving = EvolvingDatabase(source_database, store, widens=True)
    evolving.begin(*TABLES)
    return evolving


@pytest.mark.full
@pytest.mark.parametrize(
    ("source_database", "name", "each"),
    in_turn([*CHANGES], [True, False]),
    indirect=["source_database"],
)
def test_a_table_is_equal_after_its_types_were_widened(
    widening: EvolvingDatabase, name: str, *, each: bool
) -> None:
    widening.live([BEFORE, *CHANGES[name], AFTER], each=each)
    widening.check("pears")
    widening.run("update pears set price = 8", "delete from pears where id = 1")
    widening.capture()
    widening.apply()
    widening.check("pears")


def test_no_file_is_rewritten_and_the_feed_has_no_rows(widening: EvolvingDatabase) -> None:
    before = widening.data_files("pears")
    widening.live([KEY, "insert into pears (id) values (1 << 40)"], each=False)
    widening.check("pears")
    assert before < widening.data_files("pears")
    feed = widening.reader.feed("Tables/public/pears")
    assert [[kind for kind, _row in rows] for rows in feed.values() if rows][1:] == [["insert"]]


@pytest.mark.parametrize(
    ("column", "kind"),
    [("weight", "double precision"), ("size", "numeric(12, 1)"), ("price", "numeric(14, 4)")],
)
def test_files_are_rewritten_where_readers_would_not_find_their_rows(
    widening: EvolvingDatabase, column: str, kind: str
) -> None:
    """Delta compares a `double` with bounds that have the digits of a `real`, and DuckDB rounds the
    value in a filter to the places that a file has."""
    before = widening.data_files("pears")
    widening.live([f"alter table pears alter {column} type {kind}", AFTER], each=False)
    assert not before & widening.data_files("pears")
    assert TYPE_WIDENING not in widening.engine().progress("Tables/public/pears").properties
    rows = {row["id"]: (row["size"], row["weight"]) for row in widening.mirrored("pears")}
    assert rows == {1: (10, 0.5), 2: (None, 0), 3: (30, 1), 7: (None, None)}


@pytest.mark.full
def test_rows_of_a_table_without_a_key_are_found_by_their_wider_values(
    widening: EvolvingDatabase,
) -> None:
    widening.begin(
        "create table plums (size int, price numeric(9, 2))",
        "alter table plums replica identity full",
        "insert into plums values (1, 1.5), (1, 1.5), (2, null), (null, 3)",
    )
    widening.live(
        [
            "alter table plums alter size type bigint, alter price type numeric(12, 2)",
            "delete from plums where ctid = (select min(ctid) from plums where size = 1)",
            "update plums set size = 1::bigint << 40 where size is null",
            "update plums set price = 4 where size > 2",
        ],
        each=False,
    )
    widening.check("plums")


@pytest.mark.full
@pytest.mark.parametrize(
    ("source_database", "point"),
    in_turn([CrashPoint.PROPERTIES_SET, CrashPoint.COMMIT_BEGUN, CrashPoint.COLUMNS_ALTERED]),
    indirect=["source_database"],
)
def test_a_type_is_widened_once_when_apply_dies(
    widening: EvolvingDatabase, point: CrashPoint
) -> None:
    widening.run(BEFORE, KEY, "insert into pears (id) values (1 << 40)")
    widening.capture()
    assert widening.apply(Dying(point))
    widening.apply()
    widening.check("pears")
    table = TableLog(widening.store.location("Tables/public/pears"))
    described = [action for version in table.versions() for action in table.actions(version)]
    assert sum("metaData" in action for action in described) == 3
