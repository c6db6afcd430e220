"""Columns are renamed at a live source, and in the table by column mapping: no row is rewritten."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.storage.local import LocalStore
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
from tests.profiles import some

pytestmark = pytest.mark.postgres


@pytest.fixture
def renaming(database: Database, store: LocalStore) -> EvolvingDatabase:
    evolving = EvolvingDatabase(database, store, renames=True)
    evolving.begin(*APPLES)
    return evolving


KEY = ("alter table apples rename id to code", "update apples set code = code + 50 where code = 2")
AGAIN = "alter table apples rename note to remark; alter table apples add column note int default 7"
RENAMES: dict[str, Sequence[str]] = {
    "renamed": ["alter table apples rename note to remark"],
    "exchanged": [EXCHANGE],
    "key": KEY,
    "name used again": [AGAIN],
    "type": [
        "alter table apples rename size to width; alter table apples alter width type text",
        "insert into apples (id, width) values (40, 'wide')",
    ],
}


@pytest.mark.full
@pytest.mark.parametrize("each", [True, False])
@pytest.mark.parametrize("statements", [*some(CHANGES.values(), 4), *RENAMES.values()])
def test_a_table_is_equal_after_its_columns_were_renamed(
    renaming: EvolvingDatabase, statements: Sequence[str], *, each: bool
) -> None:
    key = "code" if statements is KEY else "id"
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


@pytest.mark.full
@pytest.mark.parametrize(
    ("point", "times"),
    [
        *((CrashPoint.COLUMNS_RENAMED, n) for n in (1, 2)),
        *((p, 1) for p in (CrashPoint.PROPERTIES_SET, CrashPoint.COMMIT_BEGUN)),
        *((p, 1) for p in (CrashPoint.COLUMNS_ADDED, CrashPoint.COLUMNS_ALTERED)),
    ],
)
def test_columns_are_renamed_once_when_apply_dies(
    renaming: EvolvingDatabase, point: CrashPoint, times: int
) -> None:
    renaming.run(*EXCHANGED, AGAIN, EXCHANGE.replace("weight", "mass"))
    renaming.run(
        "update apples set mass = 5, note = 8 where id = 11", "insert into log values (1000)"
    )
    renaming.run("alter table apples rename id to code", "delete from apples where code = 1")
    renaming.capture()
    assert renaming.apply(Dying(point, times))
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
    database: Database, store: LocalStore
) -> None:
    evolving = EvolvingDatabase(database, store, renames=True)
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
    database: Database, store: LocalStore, *, renames: bool
) -> None:
    evolving = EvolvingDatabase(database, store, renames=renames)
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
