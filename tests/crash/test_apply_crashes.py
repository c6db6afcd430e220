"""Apply is killed at every durable step and started again: tables and feeds equal the source."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.app.loop.apply_loop import ApplyLoop
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.mirror.batch_limits import BatchLimits
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.model.clock import WallClock
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.spark.engine import spark_engine
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.spark.settings import SparkSettings
from mirrorlake.storage.local import LocalStore
from tests.crash.entry import kill_at
from tests.crash.forked import forked
from tests.crash.project import CHANGES, TABLES, Project
from tests.delta.readers import rows_by_delta_rs
from tests.doubles.handmade_engine import HandmadeReader
from tests.reference import Row

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.crash, pytest.mark.full]

IN_THE_LOAD = [
    (CrashPoint.BATCH_WRITTEN, 1),
    (CrashPoint.COMMITTED, 1),
    pytest.param(CrashPoint.COMMIT_DURABLE, 2, marks=pytest.mark.long),
]
IN_CHANGES = [
    (CrashPoint.COLUMNS_ADDED, 1),
    (CrashPoint.BATCH_WRITTEN, 1),
    (CrashPoint.COMMIT_BEGUN, 2),
    (CrashPoint.COMMITTED, 1),
    (CrashPoint.COMMIT_DURABLE, 1),
    (CrashPoint.CLEANUP_MOVED_ONE, 1),
    pytest.param(CrashPoint.CLEANUP_DONE, 1, marks=pytest.mark.long),
]

IN_PARTS = """
drop table a.orders, a.items, b.notes;
create table a.items (id bigint primary key, note text) partition by range (id);
create table a.first partition of a.items for values from (0) to (100);
create table a.second partition of a.items for values from (100) to (200);
create table a.third partition of a.items for values from (200) to (300);
insert into a.items select g, 'item ' || g from generate_series(0, 299) g;
"""
"""A table that is loaded in three pieces."""

FILE_BY_FILE = MirrorSettings(limits=BatchLimits(files=1))


@pytest.mark.parametrize(("point", "passage"), IN_THE_LOAD)
@pytest.mark.clause("LZ-326", "LZ-258")
def test_a_load_that_is_killed_is_applied_once(
    project: Project, spark: Spark, point: CrashPoint, passage: int
) -> None:
    project.run("capture", "--once")
    project.killed_at(point, "apply", "--once", passage=passage)
    apply_again(project, spark)
    assert_mirrored(project)


@pytest.mark.parametrize(("point", "passage"), IN_CHANGES)
@pytest.mark.clause("LZ-326", "LZ-258")
def test_a_batch_that_is_killed_is_applied_once(
    project: Project, spark: Spark, point: CrashPoint, passage: int
) -> None:
    project.run("capture", "--once")
    apply_again(project, spark)
    project.database.execute("alter table a.items add extra int", CHANGES)
    project.run("capture", "--once")
    project.killed_at(point, "apply", "--once", passage=passage)
    apply_again(project, spark)
    assert_mirrored(project)


@pytest.mark.parametrize(
    "point", [CrashPoint.COMMITTED, pytest.param(CrashPoint.COMMIT_DURABLE, marks=pytest.mark.long)]
)
@pytest.mark.clause("LZ-326", "LZ-258")
def test_a_load_that_is_killed_between_its_batches_goes_on_with_the_next(
    project: Project, spark: Spark, point: CrashPoint
) -> None:
    project.database.execute(IN_PARTS)
    project.run("capture", "--once")
    ended = forked(load_and_die, str(project.root), f"{point}#2")
    assert ended.code == -signal.SIGKILL, ended
    table = project.root / "Tables/a/items"
    before = state_of(table)
    assert recorded(table) == [1, 2]
    apply_again(project, spark, FILE_BY_FILE)
    assert before.items() <= state_of(table).items(), "what was committed was written again"
    # The last file of a load has no rows.
    assert recorded(table) == [1, 2, 3, 4]
    assert added(table) == [1, 1, 1, 0]
    assert_mirrored(project, ["a.items"])


def load_and_die(root: str, point: str) -> None:
    """`apply --once` of a file per batch, killed at a point."""
    with Spark.start(SparkSettings(master="local[2]", driver_memory="1g")) as spark:
        apply(LocalStore(Path(root)), spark, FILE_BY_FILE, kill_at(point))


def state_of(table: Path) -> dict[Path, tuple[int, bytes]]:
    """Commits and data files of a table: when each was written, and what it holds."""
    paths = [*table.glob("_delta_log/*.json"), *table.glob("*.parquet")]
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}


def batches(table: Path) -> list[list[dict[str, Any]]]:
    """The actions of the commits that record something."""
    log = TableLog(table)
    commits = [log.actions(version) for version in log.versions()]
    return [actions for actions in commits if any("txn" in action for action in actions)]


def recorded(table: Path) -> list[int]:
    """What the batches of a table have recorded, in their order."""
    return [
        action["txn"]["version"]
        for actions in batches(table)
        for action in actions
        if "txn" in action
    ]


def added(table: Path) -> list[int]:
    """How many data files came with each batch."""
    return [sum("add" in action for action in actions) for actions in batches(table)]


def apply_again(project: Project, spark: Spark, settings: MirrorSettings | None = None) -> None:
    """What the next start of `apply --once` does, in the session of the tests."""
    apply(LocalStore(project.root), spark, settings or MirrorSettings())


def apply(
    store: LocalStore, spark: Spark, settings: MirrorSettings, reached: CrashHook = no_crash
) -> None:
    engine = spark_engine(spark, store, reached)
    loop = ApplyLoop(store, engine, settings, WallClock(), reached=reached)
    loop.open()
    report = loop.once()
    loop.close()
    assert not report.errors


def assert_mirrored(project: Project, tables: Iterable[str] = TABLES) -> None:
    """The tables, and their feeds replayed from version 0, equal the source. They are read without
    Spark, which takes seconds for each; that all readers agree is proved by `test_readers`."""
    reader = HandmadeReader(LocalStore(project.root))
    for table in tables:
        path = "Tables/" + table.replace(".", "/")
        expected = project.source_rows(table)
        assert Counter(rows_by_delta_rs(project.root / path)) == expected
        assert Counter(reader.rows(path)) == expected
        assert _replayed(reader.feed(path)) == expected


def _replayed(feed: dict[int, Counter[tuple[str, Row]]]) -> Counter[Row]:
    left: Counter[Row] = Counter()
    for changes in feed.values():
        for (kind, row), count in changes.items():
            left[row] += count if kind in {"insert", "update_postimage"} else -count
        assert min(left.values(), default=0) >= 0
    return +left
