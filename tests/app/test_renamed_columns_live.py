"""Columns are renamed at a live source, and in the table by column mapping: no row is rewritten."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.storage.local import LocalStore
from tests.app.conftest import in_turn
from tests.app.evolving_database import Dying, EvolvingDatabase
from tests.app.test_schema_changes_live import (
    AFTER,
    APPLES,
    BEFORE,
    CHANGES,
    COUNT,
    EXCHANGE,
    EXCHANGED,
)
from tests.conftest import Database

pytestmark = pytest.mark.postgres


@pytest.fixture
def renaming(source_database: Database, store: LocalStore) -> EvolvingDatabase:
    evolving = EvolvingDatabase(source_database, store, renames=True)
    evolving.begin(*APPLES)
    return evolving


KEY = ("alter table apples rename id to code", "update apples set code = code + 50 where code = 2")
AGAIN = "alter table apples rename note to remark; alter table apples add column note int default 7"
RENAMES: dict[str, Sequence[str]] = {
    "key": KEY,
    "name used again at once": [AGAIN],
    "type": [
        "alter table apples rename size to width; alter table apples alter width type text",
        "insert into apples (id, width) values (40, 'wide')",
    ],
}


@pytest.mark.full
@pytest.mark.parametrize(
    ("source_database", "name", "each"),
    in_turn([*CHANGES, *RENAMES], [True, False]),
    indirect=["source_database"],
)
def test_a_table_is_equal_after_its_columns_were_renamed(
    renaming: EvolvingDatabase, name: str, *, each: bool
) -> None:
    statements = {**CHANGES, **RENAMES}[name]
    key = "code" if name == "key" else "id"
    after = AFTER.replace("id", key)
    renaming.live([BEFORE, *statements, after], each=each, beside=[COUNT])
    renaming.check("apples")
    renaming.run(f"delete from apples where {key} = 1", "insert into log values (1000)")
    renaming.capture()
    renaming.apply()
    renaming.check("apples")


def test_no_row_is_rewritten_and_the_feed_has_none(renaming: EvolvingDatabase) -> None:
    before = renaming.data_files("apples")
    renaming.run(EXCHANGE, "alter table apples rename note to remark")
    renaming.run("insert into apples (id, remark) values (4, 'd')")
    renaming.capture()
    renaming.apply()
    renaming.check("apples")
    assert renaming.columns("apples") == ["id", "weight", "size", "remark"]
    assert before < renaming.data_files("apples")
    feed = renaming.reader.feed("Tables/public/apples")
    assert [kind for kind, _row in feed[max(feed)]] == ["insert"]
    assert len(feed) == 2


POINTS = (
    CrashPoint.COLUMNS_RENAMED,
    CrashPoint.PROPERTIES_SET,
    CrashPoint.COMMIT_BEGUN,
    CrashPoint.COLUMNS_ADDED,
    CrashPoint.COLUMNS_ALTERED,
)


@pytest.mark.full
@pytest.mark.parametrize(
    ("source_database", "death"),
    in_turn([(CrashPoint.COLUMNS_RENAMED, 2), *((point, 1) for point in POINTS)]),
    indirect=["source_database"],
)
def test_columns_are_renamed_once_when_apply_dies(
    renaming: EvolvingDatabase, death: tuple[CrashPoint, int]
) -> None:
    renaming.run(*EXCHANGED, AGAIN, EXCHANGE.replace("weight", "mass"))
    renaming.run(
        "update apples set mass = 5, note = 8 where id = 11", "insert into log values (1000)"
    )
    renaming.run("alter table apples rename id to code", "delete from apples where code = 1")
    renaming.capture()
    assert renaming.apply(Dying(*death))
    assert not renaming.apply()
    renaming.check("apples")


@pytest.mark.parametrize("point", [CrashPoint.COLUMNS_RENAMED])
def test_names_are_exchanged_once_when_apply_dies(
    renaming: EvolvingDatabase, point: CrashPoint
) -> None:
    renaming.run(EXCHANGE, "insert into apples (id, size) values (4, 40)")
    renaming.capture()
    assert renaming.apply(Dying(point))
    assert not renaming.apply()
    renaming.check("apples")


@pytest.mark.full
def test_a_mirror_of_whole_rows_finds_them_by_the_new_names(
    source_database: Database, store: LocalStore
) -> None:
    evolving = EvolvingDatabase(source_database, store, renames=True)
    evolving.begin(
        "create table apples (id int, size int, note text)",
        "alter table apples replica identity full",
        "insert into apples values (1, 10, 'a'), (1, 10, 'a'), (2, null, 'b')",
        "create table log (id int primary key)",
    )
    evolving.run(
        "alter table apples rename size to width; alter table apples rename note to size",
        "delete from apples where id = 2",
        "update apples set size = 'z' where ctid = (select min(ctid) from apples)",
        "insert into log values (1)",
    )
    evolving.capture()
    evolving.apply()
    evolving.check("apples")
    evolving.run("delete from apples where size = 'z'", "insert into log values (2)")
    evolving.capture()
    evolving.apply()
    evolving.check("apples")


@pytest.mark.full
@pytest.mark.parametrize("renames", [True, False])
def test_values_stay_where_a_name_changes_its_case_alone(
    source_database: Database, store: LocalStore, *, renames: bool
) -> None:
    evolving = EvolvingDatabase(source_database, store, renames=renames)
    evolving.begin(
        "create table apples (id int, note text)",
        "alter table apples replica identity full",
        "insert into apples values (1, 'a'), (2, 'b')",
        "create table log (id int primary key)",
    )
    evolving.run('alter table apples rename note to "Note"', "insert into apples values (3, 'c')")
    evolving.capture()
    evolving.apply()
    rows = [tuple(row.values()) for row in evolving.mirrored("apples")]
    assert sorted(rows) == [(1, "a"), (2, "b"), (3, "c")]
    evolving.run("delete from apples where id = 1", "insert into log values (1)")
    evolving.capture()
    evolving.apply()
    assert len(evolving.mirrored("apples")) == 2
