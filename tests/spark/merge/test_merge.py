"""The plain way on Spark: the contract of every engine, and what is its own to keep."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from mirrorlake.apply.strategy import OpenBatch
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.errors import BadValue, UnsupportedColumn
from mirrorlake.mirror.engine import Applied, Conflicted, Failed, MirrorEngine
from mirrorlake.mirror.strategy import StrategySetting
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from mirrorlake.spark.engine import spark_engine
from mirrorlake.spark.merge import statements
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.storage.local import LocalStore
from tests.conformance.apply.backfills import LOST_OTHER_GONE, REPEATED
from tests.conformance.apply.columns import ANY_NAMES, KEYS
from tests.conformance.apply.histories import apply_together
from tests.conformance.apply.player import Subject
from tests.conformance.apply.rows import MARKERS, TRUNCATION
from tests.conformance.apply.scenario import ORDERS, Refused, Scenario, insert, lands, update
from tests.conformance.apply.suite import (
    SCENARIOS,
    ApplyContract,
    ByTimeContract,
    CompactionContract,
    ScenarioContract,
    SubjectAt,
)
from tests.conformance.apply.whole_rows import SOME
from tests.conformance.mirrored import Mirrored
from tests.delta.readers import feed_by_delta_rs
from tests.histories import NAN, Landing, Shape, counted, histories
from tests.reference import UNCHANGED, Change, Row
from tests.spark.test_apply import SparkReader
from tests.spark.test_readers import agree, partitioned, replayed

pytestmark = pytest.mark.spark

INSERT, UPDATE, DELETE, UPSERT = Marker.INSERT, Marker.UPDATE, Marker.DELETE, Marker.UPSERT
FLOATS = Shape.of(["x", "y"], x=types.DOUBLE, y=types.STRING, v=types.LONG, w=types.STRING)
KEYLESS = Shape.of([], a=types.LONG, **{"b c.'d": types.STRING})
_numbers = itertools.count(1)


@pytest.fixture
def reader(spark: Spark, store: LocalStore) -> SparkReader:
    return SparkReader(spark.session, store)


@pytest.fixture
def new_engine(spark: Spark, store: LocalStore) -> Callable[[], MirrorEngine]:
    return lambda: spark_engine(spark, store, strategy=StrategySetting.MERGE)


@pytest.fixture
def orders(
    new_engine: Callable[[], MirrorEngine], store: LocalStore, reader: SparkReader
) -> Mirrored:
    """A table with one row, at version 1."""
    table = Mirrored(new_engine(), store, reader, ORDERS).create()
    table.apply([(INSERT, (1, "a", "x"))])
    return table


def landing(*files: list[tuple[int, Row]], truncate: bool = False) -> Landing:
    return Landing(tuple(tuple(Change(*change) for change in file) for file in files), truncate)


EVERYTHING = [
    landing(
        [(INSERT, (x, y, n, "old")) for n, (x, y) in enumerate([(0.0, "a"), (-0.0, "a")])],
        [(INSERT, (NAN, "a", 2, "old")), (INSERT, (None, None, 3, "old"))],
        [(INSERT, (1.5, "twice", n, "old")) for n in (4, 5)],
        [(INSERT, (2.5, "thrice", n, "old")) for n in (6, 7, 8)],
        [(INSERT, (3.5, "moves", 9, "kept")), (INSERT, (4.5, "goes", 10, "old"))],
    ),
    landing(
        [(UPDATE, (0.0, "a", 10, "new")), (UPDATE, (NAN, "a", 12, "new"))],
        [(UPSERT, (None, None, 13, UNCHANGED)), (UPDATE, (1.5, "twice", 14, "one"))],
        [(DELETE, (2.5, "thrice", None, None)), (DELETE, (9.0, "never", None, None))],
        [(DELETE, (3.5, "moves", None, None)), (INSERT, (3.5, "moved", UNCHANGED, UNCHANGED))],
        [(INSERT, (1.5, "twice", 15, "two")), (INSERT, (-0.0, "a", 16, "beside"))],
        [(DELETE, (4.5, "goes", None, None)), (INSERT, (4.5, "goes", 17, "and comes"))],
        [(UPDATE, (5.5, "absent", 18, "new")), (INSERT, (5.5, "absent", 19, "beside"))],
    ),
    landing([(INSERT, (7.0, "x", 1, "")), (DELETE, (7.0, "x", None, None))]),
    landing([(INSERT, (1.0, "b", 1, "")), (UPDATE, (1.0, "b", 2, ""))], truncate=True),
]
"""Markers, duplicates, NULL and both zeros in keys, values that were not sent, a changed key, a
batch without net change, and a truncation."""

GROWING = [
    landing([(INSERT, (1, "a")), (INSERT, (1, "a"))], [(INSERT, (None, None))]),
    landing([]),
    landing([(INSERT, (3, "c"))], truncate=True),
    landing(truncate=True),
]


@pytest.mark.long
@pytest.mark.clause("LZ-261", "LZ-264", "CF-081")
def test_rows_feed_and_statistics_are_those_of_the_model_to_every_reader(
    new_engine: Callable[[], MirrorEngine], store: LocalStore, reader: SparkReader
) -> None:
    engine = new_engine()
    keyed = Mirrored(engine, store, reader, FLOATS, "Tables/keyed").create()
    keyless = Mirrored(engine, store, reader, KEYLESS, "Tables/it`s 'keyless'").create()
    apply_together([keyed, keyless], [EVERYTHING, GROWING])
    agree(keyed)
    agree(keyless)
    feed = reader.feed(keyed.path)
    assert feed_by_delta_rs(store.location(keyed.path)) == feed
    assert replayed(feed) == counted(keyed.rows())
    assert not list(store.root.glob("Files/Mirrorlake/merging/*/*/*")), "left behind"


# -- another writer -----------------------------------------------------------------------------

BATCHES = {
    "append": [[(INSERT, (n, "mine", ""))] for n in range(2, 6)],
    "merge": [[(INSERT, (2, "mine", "")), (UPSERT, (1, "mine", ""))], [(INSERT, (3, "mine", ""))]],
}


@pytest.mark.full
@pytest.mark.parametrize("files", BATCHES.values(), ids=BATCHES)
def test_a_batch_never_follows_another_that_holds_a_part_of_it(
    orders: Mirrored,
    spark: Spark,
    store: LocalStore,
    monkeypatch: pytest.MonkeyPatch,
    files: list[list[tuple[int, Row]]],
) -> None:
    # Files 2 and later here, file 2 alone there, just before Delta begins its transaction: to its
    # own record of applications the larger number would be right after the smaller one.
    first, *_ = files
    rival = Mirrored(spark_engine(spark, store), store, orders.reader, ORDERS, recorded=1)
    rows = statements.MergeSource.rows

    def overtaken(*args: Any) -> Any:
        rival.apply(first)
        return rows(*args)

    step = orders.step(*files)
    monkeypatch.setattr(statements.MergeSource, "rows", overtaken)
    assert isinstance(orders.run(step), Conflicted)
    assert orders.engine.progress(orders.path).recorded == 2
    expected = ORDERS.table()
    expected.apply([Change(INSERT, (1, "a", "x")), *(Change(*change) for change in first)])
    assert counted(orders.rows()) == counted(expected.rows)


def overtaking(
    batch: OpenBatch, operation: str = ""
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A fence behind which somebody at once does something, or records the same application."""
    following = str(TableLog(batch.location).commit_file(batch.version + 1))

    def fence(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _batch in batches:
            yield pa.RecordBatch.from_arrays([pa.array([-1], pa.int8())], ["act"])
            path, now = Path(following), int(time.time() * 1000)
            known = path.with_name(f"{int(path.stem) - 1:020d}.json").read_text().splitlines()
            (txn,) = [line for line in known if '"txn"' in line]
            info = {"timestamp": now, "inCommitTimestamp": now, "operation": operation or "BY HAND"}
            if not path.exists():
                said = json.dumps({"commitInfo": info}) + "\n"
                path.write_text(said if operation else said + txn + "\n")

    return fence


@pytest.mark.full
def test_a_batch_that_is_overtaken_inside_its_transaction_is_a_conflict(
    orders: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = orders.step([(UPDATE, (1, "mine", ""))])
    monkeypatch.setattr(statements, "_fence", overtaking)
    assert orders.run(step) == Conflicted("ConcurrentTransactionException")
    assert orders.rows() == [(1, "a", "x")]


@pytest.mark.full
def test_a_restore_beneath_rows_that_were_added_is_noticed(
    orders: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.apply([(INSERT, (2, "b", ""))])
    step = orders.step([(INSERT, (3, "c", ""))])
    monkeypatch.setattr(statements, "_fence", partial(overtaking, operation="RESTORE"))
    assert isinstance(orders.run(step), Applied)  # what is only added conflicts with nothing
    progress = orders.engine.progress(orders.path)
    assert (progress.recorded, progress.restored) == (3, progress.version - 1)


@pytest.mark.full
@pytest.mark.parametrize(("marker", "text"), [(INSERT, ""), (UPSERT, "__HIVE_DEFAULT_PARTITION__")])
def test_a_text_that_delta_would_make_null_is_refused(
    spark: Spark, orders: Mirrored, marker: int, text: str
) -> None:
    table = replace(partitioned(spark, orders, [ORDERS.schema.names[1]]), recorded=0)
    outcome = table.run(table.step([(marker, (1, text, "x"))]))
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, BadValue)
    assert (outcome.error.column, outcome.error.value) == (ORDERS.schema.names[1], text)
    assert table.rows() == []


# -- all that every engine keeps ----------------------------------------------------------------

FEW = settings(
    max_examples=5,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    database=None,
)


PATTERN = Scenario(
    "the name of a table is no pattern",
    [],
    ORDERS,
    [lands([insert(1, "a", "x")]), lands([update(1, "b", UNCHANGED)])],
    rows=[(1, "b", "x")],
    path="Tables/[a-z]{x,y}*?",
)
# Delta's MERGE forgets to quote a backtick, where it looks for a change image.
BACKTICK = Scenario(
    "a column whose name has a backtick is refused",
    [],
    Shape.of(["id"], id=types.LONG, **{"back`tick": types.STRING}),
    [
        lands([insert(1, "a")]),
        lands([update(1, "b")], outcome=Refused(UnsupportedColumn, column="back`tick", file=None)),
    ],
    rows=[(1, "a")],
)
WITH_BACKTICKS = {ANY_NAMES.name, *(f"a key may be called {key}" for key in KEYS if "`" in key)}


class ByMerge:
    @pytest.fixture(scope="class")
    @classmethod
    def subject_at(cls, spark: Spark) -> SubjectAt:
        def at(folder: Path) -> Subject:
            store = LocalStore(folder / "root")
            reader = SparkReader(spark.session, store)
            return Subject(
                lambda: spark_engine(spark, store, strategy=StrategySetting.MERGE), store, reader
            )

        return at


class TestMergeCore(ByMerge, ScenarioContract):
    """What of the suite runs each time: every marker, and a truncation."""

    scenarios = (*MARKERS, TRUNCATION, PATTERN, LOST_OTHER_GONE, REPEATED, SOME)
    quick = 1


@pytest.mark.long
class TestMerge(ByMerge, ApplyContract, ByTimeContract):
    scenarios = (BACKTICK, *(one for one in SCENARIOS if one.name not in WITH_BACKTICKS))

    @FEW
    @given(drawn=st.lists(histories(), min_size=4, max_size=4))
    def test_rows_and_feed_of_random_histories_are_those_of_the_model(
        self, subject: Subject, drawn
    ) -> None:
        tables = subject.tables(*(shape for shape, _landings in drawn))
        apply_together(tables, [landings for _shape, landings in drawn])


@pytest.mark.long
class TestCompaction(ByMerge, CompactionContract):
    pass
