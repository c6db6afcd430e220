"""VACUUM by Delta itself: old data files go, and nothing else does."""

from __future__ import annotations

import os
import re
import shutil
import time
import uuid
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from mirrorlake.apply.in_process.tables import LogTables
from mirrorlake.delta.log.files import FOLDER
from mirrorlake.delta.log.retention import RetentionTimes
from mirrorlake.delta.lookup import key_index
from mirrorlake.errors import ForeignTable, LeaseLost
from mirrorlake.feed.subscriptions.retention import KEEPS
from mirrorlake.mirror.engine import MirrorEngine
from mirrorlake.mirror.steps import DropTable
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from mirrorlake.spark.engine import spark_engine
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.storage.local import LocalStore
from tests.conformance.mirrored import GENERATION, Mirrored
from tests.doubles.handmade_engine import HandmadeReader, in_process_engine
from tests.histories import Shape
from tests.spark.plain_delta.plain import new_session
from tests.spark.test_apply import SparkReader

pytestmark = pytest.mark.spark

INSERT, UPDATE = Marker.INSERT, Marker.UPDATE
SHAPE = Shape.of(["id"], id=types.LONG, name=types.STRING)
KINDS = ("part-*", "_change_data/*", "deletion_vector_*")
UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


@pytest.fixture
def orders(spark: Spark, store: LocalStore) -> Mirrored:
    """A table whose first data files no version but old ones needs. It was written without Spark,
    which takes less time."""
    reader = SparkReader(new_session(spark), store)
    orders = Mirrored(written_by(store), store, reader, SHAPE).create()
    orders.apply([(INSERT, (1, "old"))])
    orders.apply(truncated=True)
    orders.apply([(INSERT, (2, "new"))])
    orders.engine = spark_engine(spark, store)
    return orders


def written_by(store: LocalStore) -> MirrorEngine:
    return in_process_engine(store, tables=LogTables(store))


def data_files(orders: Mirrored) -> set[Path]:
    return set(Path(orders.store.location(orders.path)).rglob("*.parquet"))


@pytest.mark.full
@pytest.mark.clause("LZ-263")
def test_files_that_only_older_versions_need_are_removed(orders: Mirrored) -> None:
    before = data_files(orders)
    orders.engine.vacuum(orders.path, timedelta(days=7), lambda: None)
    assert data_files(orders) == before
    orders.engine.vacuum(orders.path, timedelta(0), lambda: None)
    assert data_files(orders) < before
    assert orders.rows() == [(2, "new")]
    orders.apply([(INSERT, (3, "next"))])
    assert sorted(orders.rows()) == [(2, "new"), (3, "next")]


def orphans(root: Path, days: int) -> set[Path]:
    """Copies of a file of each kind, so many days old, under names that no commit has."""
    then, made = time.time() - days * 86_400, set()
    for file in (min(root.glob(kind)) for kind in KINDS):
        copy = file.with_name(re.sub(UUID, str(uuid.uuid4()), file.name))
        made.add(shutil.copy(file, copy))
        os.utime(copy, (then, then))
    return made


def files(root: Path) -> set[Path]:
    """All that lies beside the log."""
    return {file for file in root.rglob("*") if file.is_file() and file.parent.name != FOLDER}


@pytest.mark.clause("LZ-263", "CF-060")
def test_files_that_no_commit_names_are_never_read_and_go_when_they_are_old(
    orders: Mirrored,
) -> None:
    root = Path(orders.store.location(orders.path))
    written = replace(orders, engine=written_by(orders.store))
    written.apply([(UPDATE, (2, "newer")), (INSERT, (3, "next"))])
    written.apply([(UPDATE, (3, "last"))])
    named, feed = files(root), HandmadeReader(orders.store).feed(orders.path)
    old, young = orphans(root, days=30), orphans(root, days=1)
    assert files(root) == named | old | young
    assert orders.reader.feed(orders.path) == feed
    assert sorted(orders.rows()) == [(2, "newer"), (3, "last")]
    orders.engine.vacuum(orders.path, timedelta(days=7), lambda: None)
    assert files(root) == named | young


@pytest.mark.full
def test_the_indexes_of_removed_files_go_and_no_others(orders: Mirrored) -> None:
    root = Path(orders.store.location(orders.path))
    (root / key_index.FOLDER).mkdir(parents=True)
    for file in root.glob("part-*.parquet"):
        (root / key_index.FOLDER / f"{file.name}{key_index.SUFFIX}").write_bytes(b"")
    orders.engine.vacuum(orders.path, timedelta(0), lambda: None)
    files = {file.name for file in root.glob("part-*.parquet")}
    assert len(files) == 1
    assert {index.stem for index in (root / key_index.FOLDER).iterdir()} == files


def test_a_table_inside_it_is_not_touched(orders: Mirrored) -> None:
    inner = Path(orders.store.location(orders.path)) / "inner"
    (inner / "_delta_log").mkdir(parents=True)
    (inner / "data.parquet").write_bytes(b"theirs")
    before = data_files(orders)
    with pytest.raises(ForeignTable, match="another table lies inside this one"):
        orders.engine.vacuum(orders.path, timedelta(0), lambda: None)
    assert data_files(orders) == before


def test_who_may_not_write_removes_nothing(orders: Mirrored) -> None:
    def refuse() -> None:
        raise LeaseLost("another process took over")

    before = data_files(orders)
    with pytest.raises(LeaseLost):
        orders.engine.vacuum(orders.path, timedelta(0), refuse)
    assert data_files(orders) == before


@pytest.mark.full
def test_the_session_of_the_program_stays_the_active_one(orders: Mirrored, spark: Spark) -> None:
    sessions = spark.session._jvm.org.apache.spark.sql.SparkSession
    sessions.setActiveSession(spark.session._jsparkSession)
    orders.engine.vacuum(orders.path, timedelta(days=7), lambda: None)
    assert sessions.getActiveSession().get().equals(spark.session._jsparkSession)


@pytest.mark.full
@pytest.mark.clause("LZ-231")
def test_a_dropped_table_is_put_aside_whole(orders: Mirrored) -> None:
    other = DropTable(orders.table, orders.path, orders.folder, "of another generation")
    orders.engine.drop(other)
    assert orders.rows() == [(2, "new")]
    assert list(orders.engine.paths()) == [orders.path]
    orders.engine.drop(DropTable(orders.table, orders.path, orders.folder, GENERATION))
    assert list(orders.engine.paths()) == []
    assert not orders.engine.progress(orders.path).exists
    orders.store.move(f"Files/Mirrorlake/dropped/{orders.path}", orders.path)
    assert orders.rows() == [(2, "new")]


@pytest.mark.full
def test_a_table_that_is_made_again_after_a_drop_begins_at_nothing(orders: Mirrored) -> None:
    orders.engine.drop(DropTable(orders.table, orders.path, orders.folder, GENERATION))
    orders.recorded = 0
    orders.create(generation="9a1c7d4e-53cf-4c0b-8f0e-8c4c1a9d2b11")
    orders.apply([(INSERT, (7, "again"))])
    assert orders.rows() == [(7, "again")]


@pytest.mark.full
@pytest.mark.clause("CF-186", "CF-188")
def test_delta_takes_the_times_that_a_table_is_kept(orders: Mirrored, spark: Spark) -> None:
    location = orders.store.location(orders.path)
    for length in (90, 7):
        keeps = RetentionTimes(timedelta(days=length), timedelta(days=max(length, 30)))
        told = keeps.properties() | {KEEPS: "it's \\ ours"}
        orders.engine.set_properties(orders.path, told)
        shown = spark.session.sql(f"show tblproperties delta.`{location}`").collect()
        assert told.items() <= {row.key: row.value for row in shown}.items()
        orders.apply([(INSERT, (length, "later"))])
        orders.engine.checkpoint(orders.path)
    assert sorted(orders.rows()) == [(2, "new"), (7, "later"), (90, "later")]
