"""What Delta keeps beside commits stands beside ours too: checksums, and times that stay."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.delta.log.files import FOLDER
from mirrorlake.delta.log.table_log import TableLog, TableSnapshot, replay
from mirrorlake.mirror.compaction import small_files as compaction
from mirrorlake.mirror.engine import Applied
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from mirrorlake.spark.engine import spark_engine
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.storage.local import LocalStore
from tests.conformance.mirrored import Mirrored
from tests.histories import Shape
from tests.reference import Row
from tests.spark import reading
from tests.spark.test_apply import SparkReader

pytestmark = pytest.mark.spark

INSERT, UPDATE, DELETE = Marker.INSERT, Marker.UPDATE, Marker.DELETE
SHAPE = Shape.of(["id"], id=types.LONG, name=types.STRING)
MERGED = (
    "merge into {t} t using (select 8L id, 'by hand' name) s on t.id = s.id "
    "when matched then update set * when not matched then insert *"
)
COMPACTED = 5
"""The version that a compaction made of the first table."""

BINS = (0, 1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 2**31 - 1, 2**63 - 1)
"""Numbers of deleted rows in a file, between which Delta counts the files."""


@pytest.fixture(scope="module")
def tables(spark: Spark, tmp_path_factory: pytest.TempPathFactory) -> tuple[Mirrored, Mirrored]:
    """Two tables of the same batches, each time in one job; the first has seen a `MERGE` of Delta's
    own, a compaction and a checkpoint too."""
    store = LocalStore(tmp_path_factory.mktemp("store"))
    engine, reader = spark_engine(spark, store, compaction=False), SparkReader(spark.session, store)
    orders = Mirrored(engine, store, reader, SHAPE).create()
    other = Mirrored(engine, store, reader, SHAPE, "Tables/other").create()
    apply(orders, other, *((INSERT, (n, "a")) for n in range(30)))
    apply(orders, other, *((UPDATE, (n, "b")) for n in range(12)), (INSERT, (30, "c")))
    apply(orders, other, *((DELETE, (n, None)) for n in range(15, 31)))
    spark.session.sql(MERGED.format(t=reading.sql_name(location(orders)))).collect()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(compaction, "SMALLEST", 2)
        assert orders.compact() == Applied(COMPACTED)
    engine.checkpoint(orders.path)
    apply(orders, other, (UPDATE, (3, "after")))
    apply(orders, other, (INSERT, (31, "last")))
    return orders, other


def apply(one: Mirrored, other: Mirrored, *changes: tuple[int, Row]) -> None:
    """Apply the same batch to two tables, in one call."""
    steps = [one.step(changes), other.step(changes)]
    for table, outcome in zip((one, other), one.engine.apply(steps, lambda: None), strict=True):
        assert isinstance(outcome, Applied), outcome
        table.recorded += 1


def location(table: Mirrored) -> Path:
    return Path(table.store.location(table.path))


def versions(table: Mirrored) -> Iterator[TableSnapshot]:
    """The table at one version after the other, replayed from its log."""
    log, snapshot = TableLog(location(table)), TableSnapshot()
    for version in log.versions():
        replay(snapshot, log.actions(version), version)
        yield snapshot


def checksum(table: Mirrored, version: int) -> dict[str, Any]:
    """What Delta has written of a version beside it."""
    file = TableLog(location(table)).commit_file(version).with_suffix(".crc")
    found: dict[str, Any] = json.loads(file.read_bytes())
    return found


def times(table: Mirrored) -> list[int]:
    """When each version was committed, in ms, as the commits say themselves."""
    return [
        table.reader.commit(table.path, version)["inCommitTimestamp"]
        for version in TableLog(location(table)).versions()
    ]


def binned(counts: list[int]) -> list[int]:
    """How many of some counts lie in each bin."""
    bins = itertools.pairwise(BINS)
    return [sum(low <= count < high for count in counts) for low, high in bins]


@pytest.mark.full
def test_every_version_has_the_checksum_of_what_its_log_says(
    tables: tuple[Mirrored, Mirrored],
) -> None:
    for table in tables:
        for snapshot in versions(table):
            said, files = checksum(table, snapshot.version), snapshot.files.values()
            vectors = [file["deletionVector"] for file in files if file.get("deletionVector")]
            dead = [vector["cardinality"] for vector in vectors]
            assert said["numFiles"] == len(files)
            assert said["tableSizeBytes"] == sum(file["size"] for file in files)
            assert said["numDeletionVectorsOpt"] == len(vectors)
            assert said["numDeletedRecordsOpt"] == sum(dead)
            counts = said["deletedRecordCountsHistogramOpt"]["deletedRecordCounts"]
            assert counts == binned([0] * (len(files) - len(dead)) + dead)
            recorded = {one["appId"]: one["version"] for one in said["setTransactions"]}
            assert recorded == snapshot.transactions
        assert TableLog(location(table)).snapshot().files == snapshot.files


@pytest.mark.clause("CF-143")
def test_times_of_commits_are_their_own_and_a_copied_table_keeps_them(
    spark: Spark, tables: tuple[Mirrored, Mirrored], tmp_path: Path
) -> None:
    for table in tables:
        told = times(table)
        assert told == sorted(set(told))
        assert told == [checksum(table, n)["inCommitTimestampOpt"] for n in range(len(told))]
    orders, _other = tables
    copy = shutil.copytree(location(orders), tmp_path / "copy")
    for file in (copy / FOLDER).iterdir():
        os.utime(file, (0, 0))
    feed = reading.changes(spark.session, copy)
    found = feed.select("_commit_version", "_commit_timestamp").distinct().toArrow()
    at = {row["_commit_version"]: row["_commit_timestamp"] for row in found.to_pylist()}
    assert {version: round(time.timestamp() * 1000) for version, time in at.items()} == {
        version: time for version, time in enumerate(times(orders)) if version not in (0, COMPACTED)
    }
