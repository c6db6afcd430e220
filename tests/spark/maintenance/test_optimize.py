"""Files of tables that go by `merge` are kept few and alive, by Delta's own commands alone."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest
from delta.exceptions import ConcurrentDeleteReadException
from pyspark.errors import PySparkException

from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.delta.schema import TableSchema
from mirrorlake.mirror.compaction import small_files as compaction
from mirrorlake.mirror.compaction.optimize import Purge, Rewrite
from mirrorlake.mirror.engine import Applied, Conflicted, Failed
from mirrorlake.mirror.strategy import StrategySetting
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from mirrorlake.spark import committer as spark_committer
from mirrorlake.spark.engine import spark_engine
from mirrorlake.spark.maintenance import optimize
from mirrorlake.spark.maintenance.optimize import SparkOptimizer
from mirrorlake.spark.runner import SparkRunner
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.storage.local import LocalStore
from tests.conformance.mirrored import Mirrored
from tests.histories import Shape, counted
from tests.reference import Row
from tests.spark import reading
from tests.spark.test_apply import SparkReader
from tests.spark.test_strategies import delegated

pytestmark = [pytest.mark.spark, pytest.mark.full]

INSERT, DELETE = Marker.INSERT, Marker.DELETE
SHAPE = Shape.of(["id"], id=types.LONG, name=types.STRING, at=types.TIMESTAMP)
NAMES = ("a", None, "it's \\ `b`")
TIMES = [datetime(year, 3, 1, 12, 30, 15, 123456, UTC) for year in (1, 1582, 1900, 2026, 9999)]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two small files are many, and a kilobyte makes a large one."""
    monkeypatch.setattr(compaction, "FANOUT", 2)
    monkeypatch.setattr(compaction, "CLASSES", (1 << 10, 8 << 20, 64 << 20))


def row(number: int) -> Row:
    return number, f"{number}", TIMES[number % len(TIMES)]


def files(table: Mirrored) -> list[dict[str, Any]]:
    return list(TableLog(table.store.location(table.path)).snapshot().files.values())


def dead(table: Mirrored) -> list[int]:
    """How many rows of each file are."""
    return [
        file["deletionVector"]["cardinality"] for file in files(table) if file.get("deletionVector")
    ]


def compacted(spark: Spark, table: Mirrored) -> str:
    """Compact, and say what Delta calls it. Rows, feed and progress are what they were."""
    rows = counted(table.rows())
    before = table.engine.progress(table.path)
    assert table.engine.compaction(table.path)
    outcome = table.compact()
    assert outcome == Applied(before.version + 1)
    after = table.engine.progress(table.path)
    assert (after.version, after.recorded) == (before.version + 1, before.recorded)
    assert (after.batch, after.restored) == (before.batch, None)
    assert counted(table.rows()) == rows
    location = table.store.location(table.path)
    assert reading.feed(spark.session, location, after.version) == {}
    actions = TableLog(location).actions(after.version)
    (operation,) = [
        action["commitInfo"]["operation"] for action in actions if "commitInfo" in action
    ]
    return str(operation)


@pytest.mark.clause("CF-095", "CF-156")
def test_a_table_that_is_merged_is_kept_compact_without_insides_of_delta(
    spark: Spark, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(_self: Any, _jvm: Any) -> None:
        raise AssertionError("a Delta with other insides was asked for them")

    monkeypatch.setattr(spark_committer._Delta, "__init__", other)
    engine = spark_engine(spark, store, strategy=StrategySetting.MERGE)
    table = Mirrored(engine, store, SparkReader(spark.session, store), SHAPE).create()
    for start in (0, 1_000):
        table.apply([(INSERT, row(n)) for n in range(start, start + 1_000)])
    assert compacted(spark, table) == "OPTIMIZE"
    assert len(files(table)) == 1
    assert table.engine.compaction(table.path) is None
    assert table.compact() is None
    table.apply([(DELETE, (n, None, None)) for n in range(1_200)])
    assert dead(table) == [1_200]
    assert compacted(spark, table) == "REORG"
    assert dead(table) == []
    table.apply([(DELETE, (1_999, None, None)), (INSERT, row(0))])
    assert counted(table.rows()) == counted(map(row, [0, *range(1_200, 1_999)]))


def test_only_partitions_that_need_it_are_rearranged(spark: Spark, store: LocalStore) -> None:
    table = delegated(spark, store)
    named = reading.sql_name(store.location(table.path))
    vectors = "'delta.enableDeletionVectors' = 'true'"
    spark.session.sql(f"alter table {named} set tblproperties ({vectors})").collect()
    table.apply([(INSERT, (n, NAMES[n % 3], None)) for n in range(1, 3_001)])
    table.apply([(INSERT, (n, NAMES[n % 3], None)) for n in range(3_001, 3_301) if n % 3])
    assert compacted(spark, table) == "OPTIMIZE"
    assert Counter(file["partitionValues"]["name"] for file in files(table)) == Counter(NAMES)
    (untouched,) = [file for file in files(table) if file["partitionValues"]["name"] == "a"]
    table.apply([(DELETE, (n, None, None)) for n in range(2, 1_500, 3)])
    assert dead(table) == [500]
    assert compacted(spark, table) == "REORG"
    assert dead(table) == []
    assert untouched in files(table)
    assert table.compact() is None


@pytest.mark.parametrize(
    ("raised", "outcome"),
    [
        (ConcurrentDeleteReadException("other"), Conflicted("ConcurrentDeleteReadException")),
        (PySparkException("row values"), Failed),
    ],
)
def test_a_conflict_is_distinguished_from_a_fault(
    spark: Spark, monkeypatch: pytest.MonkeyPatch, raised: Exception, outcome: Any
) -> None:
    def fail(*_all: Any) -> None:
        raise raised

    monkeypatch.setattr(optimize, "_run", fail)
    command = Purge(Rewrite(((),), rows=1, gone=1, bytes=1))
    schema = TableSchema(SHAPE.schema, (), ())
    result = SparkOptimizer(spark.session, SparkRunner(spark.session)).run(
        "s.t", "/none", schema, command
    )
    assert result == outcome if isinstance(outcome, Conflicted) else isinstance(result, outcome)
    assert "row values" not in str(result)
