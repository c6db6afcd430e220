"""The part of the self-test for optional table features: partitions, column mapping, a checkpoint,
compaction, a truncation. One table has them all."""

from __future__ import annotations

import shutil
from collections import Counter
from typing import Any

from delta.tables import DeltaTable

from mirrorlake.apply.committer import CompactionCommit
from mirrorlake.apply.table_definitions import properties_of
from mirrorlake.apply.task.compact import CompactTask, run_compact
from mirrorlake.delta import schema as schemas
from mirrorlake.delta.log.files import FOLDER
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.mirror.engine import Applied, Outcome
from mirrorlake.mirror.steps import CreateTable
from mirrorlake.mirror.strategy import StrategySetting
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from mirrorlake.model.table import Column, Schema, TableId
from mirrorlake.spark.committer import SparkCommitter
from mirrorlake.spark.engine import spark_engine
from mirrorlake.spark.runner import SparkRunner
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.spark.tables import PROPERTIES
from mirrorlake.spark.trial.batches import KEY, Change, batch
from mirrorlake.storage.store import Store

NAME, PART = "features", "part of it"
PATH = f"Tables/{NAME}"
SCHEMA = Schema.of(
    [Column("id", types.LONG), Column("name", types.STRING), Column(PART, types.STRING)]
)
"""A name with blanks makes Delta map columns."""

LOADED = [(n, "old", "ab"[n % 2]) for n in range(6)]
HISTORY: tuple[tuple[Change, ...], ...] = (
    tuple((Marker.INSERT, *row) for row in LOADED),
    (
        (Marker.UPDATE, 0, "new", "b"),
        (Marker.DELETE, 1, None, None),
        (Marker.UPSERT, 6, "new", None),
    ),
    tuple((Marker.INSERT, n, "last", "a") for n in (7, 8)),
    ((Marker.DELETE, 7, None, None), (Marker.UPSERT, 9, "last", None)),
)
TRUNCATED = 3
"""The number of the batch that first truncates the table."""

ROWS = Counter([(8, "last", "a"), (9, "last", None)])
FEED = Counter(
    [
        *(("insert", *row) for row in LOADED),
        ("update_preimage", *LOADED[0]),
        ("update_postimage", 0, "new", "b"),
        ("delete", *LOADED[1]),
        ("insert", 6, "new", None),
        *(("delete", *row) for row in [*LOADED[2:], (0, "new", "b"), (6, "new", None)]),
        *(("insert", n, "last", "a") for n in (7, 8)),
        ("delete", 7, "last", "a"),
        ("insert", 9, "last", None),
    ]
)


def fails(spark: Spark, store: Store) -> str:
    """The failure with such a table, in words; empty on success."""
    location = store.location(PATH)
    _create(spark, location)
    engine = spark_engine(spark, store, strategy=StrategySetting.DIRECT)
    outcomes: list[Outcome] = []
    for number, changes in enumerate(HISTORY, 1):
        step = batch(store, NAME, SCHEMA, number, changes, truncated=number == TRUNCATED)
        outcomes += engine.apply([step], lambda: None)
    outcomes.append(_compacted(spark, store))
    engine.checkpoint(PATH)
    for outcome in outcomes:
        if not isinstance(outcome, Applied):
            return f"the self-test of direct ended as {type(outcome).__name__} with partitions"
    feed = {"readChangeFeed": "true", "startingVersion": "1"}
    if _rows(spark, location, "_change_type", **feed) != FEED:
        return "the self-test of direct read other changes of partitions than it wrote"
    if _rows(spark, _without_commits(store)) != ROWS:
        return "the self-test of direct read other rows from a checkpoint than it wrote"
    return ""


def _create(spark: Spark, location: str) -> None:
    """Through Delta's public interface, the only way to create partitions."""
    step = CreateTable(TableId("", NAME), PATH, NAME, SCHEMA, KEY, NAME)
    builder = DeltaTable.create(spark.session).location(location).partitionedBy(PART)
    for column in SCHEMA:
        builder = builder.addColumn(column.name, str(column.type))
    for name, value in {**PROPERTIES, **properties_of(step)}.items():
        builder = builder.property(name, value)
    builder.execute()


def _compacted(spark: Spark, store: Store) -> Outcome:
    """The outcome of a commit that merges all files of each partition."""
    location, snapshot = store.location(PATH), TableLog.below(store, PATH).snapshot()
    schema, files = schemas.parse(snapshot.metadata), tuple(snapshot.files.values())
    task = CompactTask(NAME, location, schema, KEY, files, store.options(PATH))
    (done,) = SparkRunner(spark.session).run(run_compact, [task])
    if done.error is not None:
        raise done.error
    commit = CompactionCommit(NAME, location, snapshot.version, done.actions)
    return SparkCommitter(spark.session).compact(commit)


def _without_commits(store: Store) -> str:
    """The location of a copy of the table whose log contains only its checkpoint."""
    copy = f"{PATH}-copy"
    if keyed := store.keyed(PATH):
        keyed.copy_folder(PATH, copy, FOLDER)
    else:
        shutil.copytree(store.location(PATH), store.location(copy))
    for version in TableLog.below(store, copy).versions()[:-1]:
        store.delete(f"{copy}/{FOLDER}/{version:020d}.json")
    return store.location(copy)


def _rows(spark: Spark, location: str, *more: str, **options: str) -> Counter[tuple[Any, ...]]:
    reader = spark.session.newSession().read.format("delta").options(**options)
    read = reader.load(location).select(*more, *(f"`{column.name}`" for column in SCHEMA))
    return Counter(tuple(row) for row in read.collect())
