"""Apply is killed at every durable step and started again: tables and feeds equal the source."""

from __future__ import annotations

from collections import Counter

import pytest

from mirrorlake.app.apply import ApplyLoop
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.model.seams import Point, WallClock
from mirrorlake.spark.engine import SparkEngine
from mirrorlake.spark.session import Spark
from mirrorlake.storage.local import LocalStore
from tests.crash.project import CHANGES, TABLES, Project
from tests.doubles.handmade_engine import HandmadeReader
from tests.lake.readers import rows_by_delta_rs
from tests.reference import Row

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.crash]

IN_THE_LOAD = [(Point.TABLE_CREATED, 2), (Point.COMMITTED, 1), (Point.COMMIT_DURABLE, 2)]
IN_CHANGES = [
    (Point.COLUMNS_ADDED, 1),
    (Point.BATCH_WRITTEN, 1),
    (Point.COMMIT_BEGUN, 2),
    (Point.COMMITTED, 1),
    (Point.COMMIT_DURABLE, 1),
    (Point.CLEANUP_MOVED_ONE, 1),
    (Point.CLEANUP_DONE, 1),
]


@pytest.mark.parametrize(("point", "passage"), IN_THE_LOAD)
@pytest.mark.clause("LZ-326", "LZ-258")
def test_a_load_that_is_killed_is_applied_once(
    project: Project, spark: Spark, point: Point, passage: int
) -> None:
    project.run("capture", "--once")
    project.killed_at(point, "apply", "--once", passage=passage)
    apply_again(project, spark)
    assert_mirrored(project)


@pytest.mark.parametrize(("point", "passage"), IN_CHANGES)
@pytest.mark.clause("LZ-326", "LZ-258")
def test_a_batch_that_is_killed_is_applied_once(
    project: Project, spark: Spark, point: Point, passage: int
) -> None:
    project.run("capture", "--once")
    apply_again(project, spark)
    project.database.execute("alter table a.items add extra int", CHANGES)
    project.run("capture", "--once")
    project.killed_at(point, "apply", "--once", passage=passage)
    apply_again(project, spark)
    assert_mirrored(project)


def apply_again(project: Project, spark: Spark) -> None:
    """What the next start of `apply --once` does, in the session of the tests."""
    store = LocalStore(project.root)
    loop = ApplyLoop(store, SparkEngine(spark, store), MirrorSettings(), WallClock())
    loop.open()
    report = loop.once()
    loop.close()
    assert not report.errors


def assert_mirrored(project: Project) -> None:
    """The tables, and their feeds replayed from version 0, equal the source. They are read without
    Spark, which takes seconds for each; that all readers agree is proved by `test_readers`."""
    reader = HandmadeReader(LocalStore(project.root))
    for table in TABLES:
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
