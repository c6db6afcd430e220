"""What a batch rests on is on the disk: every commit of ours before the one that follows it."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from mirrorlake.delta.log.first_commit import is_begun
from mirrorlake.mirror.compaction import small_files as compaction
from mirrorlake.mirror.engine import Applied, Counts, MirrorEngine
from mirrorlake.mirror.steps import Compact, SetKey
from mirrorlake.mirror.strategy import StrategySetting
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from mirrorlake.model.table import Column
from mirrorlake.spark.engine import spark_engine
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.storage.local import LocalStore
from tests.conformance.apply.creation import first
from tests.conformance.mirrored import Mirrored
from tests.histories import Shape
from tests.spark.test_apply import SparkReader

pytestmark = [pytest.mark.spark, pytest.mark.full]

SHAPE = Shape.of(["id"], id=types.LONG, name=types.STRING)


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The files and folders that were flushed, by their paths."""
    found: set[str] = set()
    flush = os.fsync

    def noted(file: int) -> None:
        found.add(str(Path(f"/proc/self/fd/{file}").readlink()))
        flush(file)

    monkeypatch.setattr(os, "fsync", noted)
    return found


class Story:
    """A table, of which each step has made its commits durable when it is done."""

    def __init__(self, engine: MirrorEngine, store: LocalStore, spark: Spark) -> None:
        self.table = Mirrored(engine, store, SparkReader(spark.session, store), SHAPE)
        self.folder = Path(store.location(self.table.path), "_delta_log")

    def commits(self) -> set[str]:
        return {str(path) for path in self.folder.glob("*.json")}

    def insert(self, *numbers: int) -> None:
        outcome = self.table.apply([(Marker.INSERT, (number, "a")) for number in numbers])
        assert isinstance(outcome, Applied)
        self.table.engine.make_durable(self.table.path, outcome.version)


@pytest.mark.parametrize("setting", [StrategySetting.DIRECT, StrategySetting.MERGE])
@pytest.mark.clause("LZ-258", "CF-150")
def test_every_commit_of_ours_is_flushed(
    spark: Spark,
    store: LocalStore,
    flushed: set[str],
    monkeypatch: pytest.MonkeyPatch,
    setting: StrategySetting,
) -> None:
    monkeypatch.setattr(compaction, "FANOUT", 2)
    monkeypatch.setattr(compaction, "SMALLEST", 2)
    engine = spark_engine(spark, store, strategy=setting, compaction=False)
    story = Story(engine, store, spark)
    table = story.table

    def settled(commits: int) -> None:
        known = story.commits()
        assert len(known) == commits
        assert known | {str(story.folder)} <= flushed

    table.create()
    settled(1)
    for number in (1, 2, 3):
        story.insert(number)
    settled(4)
    table.add_columns(Column("amount", types.LONG))
    settled(5)
    engine.set_key(SetKey(table.table, table.path, ("id", "name")))
    settled(6)
    flushed.clear()
    (outcome,) = engine.compact([Compact(table.table, table.path, ("id",))], lambda: None)
    assert isinstance(outcome, Applied)
    assert str(story.folder / f"{outcome.version:020d}.json") in flushed
    engine.vacuum(table.path, timedelta(days=7), lambda: None)
    assert len(table.reader.rows(table.path)) == 3


@pytest.mark.clause("LZ-258", "CF-150")
def test_a_table_and_its_first_rows_are_flushed(
    spark: Spark, store: LocalStore, flushed: set[str]
) -> None:
    engine = spark_engine(spark, store, strategy=StrategySetting.DIRECT)
    story = Story(engine, store, spark)
    table = story.table
    outcome = table.run(first(table, [(Marker.INSERT, (1, "a"))]))
    assert outcome == Applied(0, Counts(insert=1))
    engine.make_durable(table.path, 0)
    assert story.commits() == {str(story.folder / f"{0:020d}.json")}
    parents = {str(path) for path in list(story.folder.parents)[:2]}
    assert story.commits() | {str(story.folder)} | parents <= flushed
    assert not is_begun(store.location(table.path))


@pytest.mark.parametrize("setting", [StrategySetting.DIRECT, StrategySetting.MERGE])
def test_what_another_process_committed_is_flushed_before_anything_rests_on_it(
    spark: Spark, store: LocalStore, flushed: set[str], setting: StrategySetting
) -> None:
    story = Story(spark_engine(spark, store, strategy=setting, compaction=False), store, spark)
    story.table.create()
    story.insert(1, 2)
    flushed.clear()
    engine = spark_engine(spark, store, strategy=setting)
    batch = engine.progress(story.table.path).batch
    assert batch is not None
    for _ in range(2):
        engine.make_durable(story.table.path, batch.version)
        data = {str(path) for path in story.folder.parent.glob("*.parquet")}
        assert data
        assert data <= flushed
        assert story.commits() & flushed == {str(story.folder / f"{batch.version:020d}.json")}
