"""The engine on Spark keeps the contract of every engine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from mirrorlake.delta.log.table_log import TableLog, TableSnapshot
from mirrorlake.mirror.compaction import small_files as compaction
from mirrorlake.mirror.engine import Applied
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from mirrorlake.spark.engine import spark_engine
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.storage.local import LocalStore
from mirrorlake.storage.urls import is_url
from tests.conformance.apply.histories import apply_together
from tests.conformance.apply.player import Subject
from tests.conformance.apply.suite import (
    ApplyContract,
    ByTimeContract,
    CompactionContract,
    SubjectAt,
)
from tests.conformance.mirrored import Feeds, Mirrored
from tests.delta.readers import feed_by_delta_rs, feed_of, rows_by_delta_rs, rows_by_duckdb
from tests.histories import Shape, counted, histories
from tests.profiles import tries
from tests.reference import Row
from tests.spark import reading

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(1_800),  # all scenarios are played for the first of them
]


class SparkReader:
    """Reads the tables of a store through Spark, and sees to it that others read the same."""

    def __init__(self, session: SparkSession, store: LocalStore) -> None:
        self._session, self._store = session, store

    def rows(self, path: str) -> list[Row]:
        """By Spark, and the same by delta-rs and DuckDB."""
        location = self._store.location(path)
        return self._rows_of_all(location, reading.rows(self._session, location))

    def feed(self, path: str) -> Feeds:
        """By Spark, and the same by our own reader, and by delta-rs, which does not know mapped
        columns."""
        location = self._store.location(path)
        return self._feed_of_all(location, reading.feed(self._session, location))

    def tables(self, paths: Sequence[str]) -> list[tuple[list[Row], Feeds]]:
        """By as few jobs of Spark as there are schemas, and the same by the others."""
        locations = [self._store.location(path) for path in paths]
        rows = reading.rows_of_many(self._session, locations)
        feeds = reading.feeds_of_many(self._session, locations)
        return [
            (self._rows_of_all(location, found), self._feed_of_all(location, feed))
            for location, found, feed in zip(locations, rows, feeds, strict=True)
        ]

    def _rows_of_all(self, location: str, rows: list[Row]) -> list[Row]:
        if not _is_found(location):
            return rows
        assert counted(rows_by_delta_rs(location)) == counted(rows)
        described = TableLog(location).snapshot()
        # DuckDB reads NULL for partition columns that are mapped, also where Delta has written.
        if not (_is_mapped(described) and described.metadata["partitionColumns"]):
            assert counted(rows_by_duckdb(location)) == counted(rows)
        return rows

    def _feed_of_all(self, location: str, feed: Feeds) -> Feeds:
        assert feed_of(location) == feed
        # Of a path with other characters delta-rs makes a URL for its feed that it cannot read.
        is_plain = re.fullmatch(r"[\w/.-]+", location, re.ASCII)
        if is_plain and not _is_mapped(TableLog(location).snapshot()):
            assert feed_by_delta_rs(location) == feed
        return feed

    def commit(self, path: str, version: int) -> dict[str, Any]:
        actions = TableLog(self._store.location(path)).actions(version)
        (info,) = [action["commitInfo"] for action in actions if "commitInfo" in action]
        return info


def _is_found(location: str) -> bool:
    """By delta-rs and DuckDB, which take "%41" in the path of a folder for "A", and here are not
    told how to reach objects."""
    return "%" not in location and not is_url(location)


def _is_mapped(table: TableSnapshot) -> bool:
    return "delta.columnMapping.mode" in table.metadata["configuration"]


@pytest.fixture
def reader(spark: Spark, store: LocalStore) -> SparkReader:
    return SparkReader(spark.session, store)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two small files are enough to be compacted."""
    monkeypatch.setattr(compaction, "FANOUT", 2)
    monkeypatch.setattr(compaction, "SMALLEST", 2)


@pytest.mark.full
@pytest.mark.parametrize("has_one", [True, False], ids=["another", "none"])
def test_the_active_session_of_the_thread_is_the_one_it_was(
    spark: Spark, store: LocalStore, reader: SparkReader, soon: None, has_one: bool
) -> None:
    sessions = spark.session._jvm.org.apache.spark.sql.SparkSession
    before = sessions.getActiveSession()
    other = spark.session.newSession()._jsparkSession
    shape = Shape.of(["id"], id=types.LONG, v=types.STRING)
    orders = Mirrored(spark_engine(spark, store), store, reader, shape).create()
    try:
        if has_one:
            sessions.setActiveSession(other)
        else:
            sessions.clearActiveSession()
        for number in (1, 2):
            orders.apply([(Marker.INSERT, (number, "a"))])
        assert isinstance(orders.compact(), Applied)
        active = sessions.getActiveSession()
        assert active.isDefined() == has_one
        assert not has_one or active.get().equals(other)
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


WITHOUT_SHRINKING = settings(
    max_examples=tries(3, long=5),
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    database=None,
)
"""Each example makes tables; shrinking one would take longer than reading it."""


class OnSpark:
    @pytest.fixture(scope="class")
    @classmethod
    def subject_at(cls, spark: Spark) -> SubjectAt:
        def at(folder: Path) -> Subject:
            store = LocalStore(folder / "root")
            reader = SparkReader(spark.session, store)
            return Subject(lambda: spark_engine(spark, store), store, reader)

        return at


class TestSparkEngine(OnSpark, ApplyContract, ByTimeContract):
    quick = 6

    @pytest.mark.full
    @pytest.mark.clause("LZ-255")
    @WITHOUT_SHRINKING
    @given(drawn=st.lists(histories(), min_size=4, max_size=4))
    def test_rows_and_feed_of_random_histories_are_those_of_the_model(
        self, subject: Subject, drawn
    ) -> None:
        tables = subject.tables(*(shape for shape, _landings in drawn))
        apply_together(tables, [landings for _shape, landings in drawn])


class TestCompaction(OnSpark, CompactionContract):
    quick = 1
