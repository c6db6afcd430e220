"""Loads of large tables of a live server during which something happens."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from mirrorlake import root
from mirrorlake.capture.landing.load import LOAD_BEGUN_ANEW, LOAD_PART_DAMAGED, LOAD_RESUMED
from mirrorlake.capture.landing.stage_part import STAGED
from mirrorlake.capture.missing_tables import TABLE_LOADED
from mirrorlake.capture.staged.parts import NOTE
from mirrorlake.capture.watch.joining import LOAD_PUT_OFF
from mirrorlake.errors import LeaseLost
from mirrorlake.model.clock import WallClock
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.sources.postgresql.reading import heaps
from mirrorlake.storage.lease import Lease
from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import Dying, EvolvingDatabase
from tests.capture.landing import with_a_flipped_bit
from tests.conftest import Database
from tests.profiles import some

pytestmark = pytest.mark.postgres

PAGE = 8192
PARTS = 6
"""Of the table of apples."""
APPLES = (
    "create table apples (id int primary key, note text, other text)",
    "insert into apples select g, repeat('x', 400), 'o' || g from generate_series(1, 400) g",
    "delete from apples where id % 3 = 0 and id < 300",
)


@pytest.fixture
def evolving(each_database: Database, store: LocalStore) -> EvolvingDatabase:
    return EvolvingDatabase(each_database, store, part_bytes=4 * PAGE)


def zone(evolving: EvolvingDatabase) -> list[Path]:
    """The files of the landing zone, in the folders of tables."""
    folder = Path(evolving.store.location(root.LANDING))
    return [path for path in folder.rglob("*") if path.is_file()]


def staged(evolving: EvolvingDatabase) -> list[str]:
    """What is left of loads."""
    return [path.name for path in zone(evolving) if path.name.startswith(STAGED)]


def written(path: Path) -> tuple[int, int]:
    """A file, whatever its name is, and when it was written."""
    found = path.stat()
    return found.st_ino, found.st_mtime_ns


@dataclass
class Meanwhile:
    """Runs statements once, when a part of a table has been staged for the given time."""

    evolving: EvolvingDatabase
    statements: tuple[str, ...]
    passages: int = 1
    at: CrashPoint = CrashPoint.LOAD_STAGED
    done: bool = field(default=False, init=False)

    def __call__(self, point: CrashPoint) -> None:
        self.passages -= point is self.at
        if not self.passages and not self.done:
            self.done = True
            self.evolving.run(*self.statements)


REWRITES = {
    "vacuum full": ("vacuum full apples",),
    "cluster": ("cluster apples using apples_pkey",),
    "truncate": ("truncate apples",),
}


@pytest.mark.parametrize("rewrite", some(list(REWRITES)))
def test_a_table_that_is_rewritten_between_two_parts_is_read_anew(
    evolving: EvolvingDatabase, rewrite: str
) -> None:
    evolving.run(*APPLES)
    meanwhile = Meanwhile(evolving, REWRITES[rewrite], passages=3)
    with capture_logs() as logs:
        evolving.capture(meanwhile)
    evolving.apply()
    evolving.check("apples")
    assert meanwhile.done
    (anew,) = [entry for entry in logs if entry["event"] == LOAD_BEGUN_ANEW]
    assert "rewritten" in anew["reason"]


def put_off(logs: Sequence[MutableMapping[str, Any]]) -> str:
    """Why a table was loaded later, once."""
    (found,) = [entry for entry in logs if entry["event"] == LOAD_PUT_OFF]
    return str(found["reason"])


ALTERS = {
    "widened": "alter table apples alter id type bigint",
    "computed": "alter table apples alter other type text using other || '!'",
    "volatile default": "alter table apples add column price double precision default random()",
    "filled anew": "begin; truncate apples; insert into apples values (1, 'new', 'new'); commit",
}


@pytest.mark.full
@pytest.mark.parametrize("alter", some(list(ALTERS)))
@pytest.mark.parametrize("part_bytes", some([4 * PAGE, 1 << 30], 2))
def test_a_table_whose_rows_are_hidden_before_a_part_is_read_is_read_in_a_new_snapshot(
    each_database: Database, store: LocalStore, alter: str, part_bytes: int
) -> None:
    """It looks empty to the snapshots before."""
    evolving = EvolvingDatabase(each_database, store, part_bytes=part_bytes)
    evolving.run("create table aaa (id int primary key)", "insert into aaa values (1)", *APPLES)
    meanwhile = Meanwhile(evolving, (ALTERS[alter],), passages=1)
    with capture_logs() as logs:
        evolving.capture(meanwhile)
    assert "altered or filled anew" in put_off(logs)
    evolving.apply()
    evolving.check("apples")
    assert meanwhile.done


def test_a_table_whose_columns_exchange_their_names_between_two_parts_is_read_in_a_new_snapshot(
    evolving: EvolvingDatabase,
) -> None:
    evolving.run(*APPLES)
    exchange = (
        "begin; alter table apples rename note to was; alter table apples rename other to note; "
        "alter table apples rename was to other; commit"
    )
    with capture_logs() as logs:
        evolving.capture(Meanwhile(evolving, (exchange,), passages=3))
    assert "renamed" in put_off(logs)
    evolving.apply()
    evolving.check("apples")
    assert [entry["event"] for entry in logs].count(TABLE_LOADED) == 1


def test_a_table_whose_name_another_one_takes_between_two_parts_is_read_in_a_new_snapshot(
    evolving: EvolvingDatabase,
) -> None:
    """The snapshot knows it by that name to its end."""
    evolving.run(*APPLES)
    exchange = (
        "begin; create table fresh (like apples including all); "
        "insert into fresh values (1, 'new', 'new'); alter table apples rename to former; "
        "alter table fresh rename to apples; commit"
    )
    with capture_logs() as logs:
        evolving.capture(Meanwhile(evolving, (exchange,), passages=3))
    assert "renamed" in put_off(logs)
    evolving.apply()
    evolving.check("apples")
    evolving.check("former")


HALVES = (
    "create table apples (id int primary key, note text) partition by range (id)",
    "create table apples_1 partition of apples for values from (0) to (150)",
    "create table apples_2 partition of apples for values from (150) to (10000)",
    "insert into apples select g, repeat('x', 400) from generate_series(1, 300) g",
)


def test_small_partitions_that_exchange_their_names_are_read_in_a_new_snapshot(
    each_database: Database, store: LocalStore
) -> None:
    """Each of them is one part."""
    evolving = EvolvingDatabase(each_database, store)
    evolving.run(*HALVES)
    exchange = (
        "begin; alter table apples_1 rename to was; alter table apples_2 rename to apples_1; "
        "alter table was rename to apples_2; commit"
    )
    with capture_logs() as logs:
        evolving.capture(Meanwhile(evolving, (exchange,)))
    assert "renamed" in put_off(logs)
    evolving.apply()
    evolving.check("apples")


def test_a_small_partition_that_is_rewritten_before_it_is_looked_at_again_is_read_anew(
    each_database: Database, store: LocalStore
) -> None:
    """Its rows have the same transaction as before, and other places."""
    evolving = EvolvingDatabase(each_database, store)
    evolving.run(*HALVES)
    assert evolving.capture(Dying(CrashPoint.LOAD_NOTED, 2))
    evolving.run("delete from apples where id % 10 = 5")
    evolving.capture(Meanwhile(evolving, ("vacuum full apples_2",)))
    with capture_logs() as logs:
        evolving.apply()
    evolving.check("apples")
    assert {entry["deleted"] for entry in logs if entry["event"] == "batch_applied"} == {0}


CHANGES = {
    "nothing": (),
    "rows of every kind": (
        "update apples set note = 'changed' where id % 50 = 1",
        "update apples set id = id + 1000 where id % 50 = 2",
        "delete from apples where id % 50 = 4",
        "insert into apples select g, 'new', 'new' from generate_series(501, 560) g",
    ),
    "a row comes back": (
        "delete from apples where id = 1",
        "vacuum apples",
        "insert into apples values (1, 'new', 'new')",
    ),
    "all rows of a part": ("delete from apples where id < 120",),
    "most rows": ("update apples set note = note || '!' where id % 4 <> 0",),
    "all rows but one": ("delete from apples where id > 1", "vacuum (truncate off) apples"),
    "many more rows": (
        "insert into apples select g, repeat('y', 400), 'o' from generate_series(501, 900) g",
    ),
    "a rolled back transaction": ("begin; update apples set note = ''; rollback",),
}


@pytest.mark.parametrize("change", some(list(CHANGES)))
@pytest.mark.parametrize("passages", some([3, 1, 6]))
def test_a_load_that_dies_goes_on_behind_the_parts_that_were_read(
    evolving: EvolvingDatabase, change: str, passages: int
) -> None:
    evolving.run(*APPLES)
    assert evolving.capture(Dying(CrashPoint.LOAD_NOTED, passages))
    evolving.run(*CHANGES[change])
    with capture_logs() as logs:
        evolving.capture()
    evolving.apply()
    evolving.check("apples")
    (resumed,) = [entry for entry in logs if entry["event"] == LOAD_RESUMED]
    # What was the last part has an end, once there are more pages.
    has_grown = passages == PARTS and resumed["parts"] > PARTS
    assert resumed["kept"] == passages - has_grown
    evolving.run("update apples set note = 'later' where id % 3 = 0")
    evolving.capture()
    evolving.apply()
    evolving.check("apples")
    assert not staged(evolving)


def test_files_of_unchanged_parts_are_published_as_they_are(evolving: EvolvingDatabase) -> None:
    evolving.run(*APPLES)
    assert evolving.capture(Dying(CrashPoint.LOAD_NOTED, 4))
    read = {written(path) for path in zone(evolving) if path.name.endswith("-0.parquet")}
    evolving.run("delete from apples where id = 1")  # a row of the first part
    evolving.capture()
    published = {written(path) for path in zone(evolving)}
    assert (len(read), len(read & published)) == (4, 3)


@pytest.mark.parametrize("what", some(["0", "versions"], 2))
def test_a_part_whose_staged_file_is_damaged_is_read_again(
    evolving: EvolvingDatabase, what: str
) -> None:
    """what: its rows, or their versions. One of its rows is gone, so that the others are written to
    another file."""
    evolving.run(*APPLES)
    assert evolving.capture(Dying(CrashPoint.LOAD_NOTED, 4))
    (path,) = (path for path in zone(evolving) if path.name.endswith(f"-0-{what}.parquet"))
    path.write_bytes(with_a_flipped_bit(path.read_bytes()))
    evolving.run("delete from apples where id = 1")  # a row of the first part
    with capture_logs() as logs:
        evolving.capture()
    evolving.apply()
    evolving.check("apples")
    found = [entry["file"] for entry in logs if entry["event"] == LOAD_PART_DAMAGED]
    assert found == ([path.name] if what == "0" else [])
    assert not staged(evolving)


ALTERED = {
    "names exchanged": (
        (
            "begin; alter table apples rename note to was; alter table apples rename other "
            "to note; alter table apples rename was to other; commit"
        ),
        "columns",
    ),
    "column with a default": ("alter table apples add column more int default 7", "columns"),
    "column dropped and made again": (
        (
            "begin; alter table apples drop column other; "
            "alter table apples add column other text default 'again'; commit"
        ),
        "columns",
    ),
    "type": ("alter table apples alter column id type bigint", "rewritten"),
    "same type": ("alter table apples alter column note type text using upper(note)", "rewritten"),
    "vacuum full": ("vacuum full apples", "rewritten"),
    "cluster": ("cluster apples using apples_pkey", "rewritten"),
    "enum value renamed": ("alter type colour rename value 'red' to 'scarlet'", "enum"),
    "emptied": (
        (
            "begin; truncate apples; insert into apples select g, repeat('z', 400), 'z' "
            "from generate_series(1, 100) g; commit"
        ),
        "rewritten",
    ),
    "created again": (
        (
            "begin; drop table apples; create table apples (id int primary key, note text); "
            "insert into apples select g, repeat('z', 400) from generate_series(1, 100) g; commit"
        ),
        "other ones",
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("change", some(list(ALTERED), 3))
def test_a_load_whose_rows_are_not_the_ones_that_were_read_begins_anew(
    evolving: EvolvingDatabase, change: str
) -> None:
    statement, why = ALTERED[change]
    evolving.run(
        "create type colour as enum ('red', 'green')",
        *APPLES,
        "alter table apples add column colour colour not null default 'red'",
    )
    assert evolving.capture(Dying(CrashPoint.LOAD_NOTED, 4))
    evolving.run(statement)
    with capture_logs() as logs:
        evolving.capture()
    evolving.apply()
    evolving.check("apples")
    (anew,) = [entry for entry in logs if entry["event"] == LOAD_BEGUN_ANEW]
    assert why in anew["reason"]
    assert not staged(evolving)


TABLES = {
    "append-only": (
        "create table apples (id int, note text)",
        "insert into apples select g, repeat('x', 400) from generate_series(1, 300) g",
    ),
    "whole rows": (
        "create table apples (id int, note text)",
        "alter table apples replica identity full",
        "insert into apples select g % 100, repeat('x', 400) from generate_series(1, 300) g",
    ),
    "values beside the row": (
        "create table apples (id int primary key, note text, long text)",
        "alter table apples alter column long set storage external",
        (
            "insert into apples select g, repeat('x', 400), repeat(md5(g::text), 99) "
            "from generate_series(1, 300) g"
        ),
    ),
    "keys at infinity": (
        "create table apples (id int, day date, note text, primary key (id, day))",
        (
            "insert into apples select g, (array['infinity', '-infinity', 'today'])[1 + g % 3]"
            "::date, repeat('x', 400) from generate_series(1, 300) g"
        ),
    ),
    "partitions": (
        "create table apples (id int primary key, note text) partition by range (id)",
        "create table apples_1 partition of apples for values from (0) to (150)",
        "create table apples_2 partition of apples for values from (150) to (10000)",
        "insert into apples select g, repeat('x', 400) from generate_series(1, 300) g",
    ),
}
DML = (
    "update apples set note = note || '!' where id % 40 in (1, 2)",
    "delete from apples where id % 40 in (2, 3)",
    "update apples set id = id + 1000 where id % 40 in (1, 4) and id < 1000",
)


@pytest.mark.full
@pytest.mark.parametrize("soft", some([False, True]))
@pytest.mark.parametrize("kind", some(list(TABLES), 2))
def test_every_kind_of_table_goes_on_as_if_it_had_been_loaded_at_once(
    evolving: EvolvingDatabase, kind: str, soft: bool
) -> None:
    """Soft deletes: rows that were deleted before the load is complete were never there."""
    evolving.soft = soft and kind != "whole rows"
    evolving.run(*TABLES[kind])
    assert evolving.capture(Dying(CrashPoint.LOAD_NOTED, 2))
    evolving.run(*DML)
    assert evolving.capture(Dying(CrashPoint.LOAD_NOTED, 2))
    if kind == "partitions":
        evolving.run(
            "create table apples_3 (id int primary key, note text)",
            "insert into apples_3 select g, 'x' from generate_series(10001, 10100) g",
            "alter table apples attach partition apples_3 for values from (10000) to (20000)",
            "update apples set id = id + 10200 where id = 45",
        )
    evolving.run("update apples set note = 'later' where id % 40 in (5, 6)", *DML)
    with capture_logs() as logs:
        evolving.capture()
    evolving.apply()
    assert [entry["kept"] for entry in logs if entry["event"] == LOAD_RESUMED] == [4]
    expected = evolving.database.sql.execute("select id, note from apples").fetchall()
    mirrored = [(row["id"], row["note"]) for row in evolving.mirrored("apples")]
    assert Counter(mirrored) == Counter(expected)
    if kind == "values beside the row":
        evolving.check("apples", columns="id, note, long")


@pytest.mark.full
def test_a_transaction_that_is_prepared_over_the_restart_comes_whole(
    evolving: EvolvingDatabase,
) -> None:
    evolving.run(*APPLES)
    with psycopg.connect(evolving.database.url, autocommit=True) as sql:
        assert evolving.capture(Dying(CrashPoint.LOAD_NOTED, 4))
        sql.execute("begin")
        sql.execute("update apples set note = 'prepared' where id % 40 = 1")
        sql.execute("delete from apples where id % 40 = 2")
        sql.execute("prepare transaction 'apples'")
        commit = Meanwhile(evolving, ("commit prepared 'apples'",), at=CrashPoint.LOAD_MANIFEST)
        waiting = threading.Timer(1.0, commit, [CrashPoint.LOAD_MANIFEST])
        waiting.start()  # the slot of the new snapshot waits for it
        evolving.capture(commit)
        waiting.join()
    evolving.capture()
    evolving.apply()
    evolving.check("apples")


@pytest.mark.full
@pytest.mark.parametrize("changed", ["metadata", "timeline"])
def test_parts_that_were_read_under_other_settings_or_on_another_server_are_read_anew(
    evolving: EvolvingDatabase, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    evolving.run(*APPLES)
    assert evolving.capture(Dying(CrashPoint.LOAD_NOTED, 4))
    if changed == "metadata":
        evolving.metadata = True
    else:
        monkeypatch.setattr(heaps, "_MOMENT", heaps._MOMENT.replace("1, 8)", "1, 8) || 'new'"))
    with capture_logs() as logs:
        evolving.capture()
    evolving.apply()
    evolving.check("apples")
    (anew,) = [entry for entry in logs if entry["event"] == LOAD_BEGUN_ANEW]
    assert {"metadata": "mirror.metadata_columns", "timeline": "server"}[changed] in anew["reason"]


def test_a_process_that_stalled_and_lost_its_lease_notes_nothing(
    evolving: EvolvingDatabase,
) -> None:
    """Another one loads the table by now."""
    evolving.run(*APPLES)

    def stall(point: CrashPoint) -> None:
        if point is CrashPoint.LOAD_STAGED and not other:
            other.append(True)
            lease = Lease(evolving.store, "capture", WallClock(), "other")
            lease._create(lease._newest() + 1)

    other: list[bool] = []
    with pytest.raises(LeaseLost):
        evolving.capture(stall)
    assert len([name for name in staged(evolving) if name.endswith(NOTE)]) == 1
