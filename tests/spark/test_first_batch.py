"""The first batch of a table on Spark: one job and one commit."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirrorlake.apply.committer import BatchCommit
from mirrorlake.delta.log.first_commit import begin, has_commit
from mirrorlake.delta.write.table_metadata import metadata
from mirrorlake.errors import LeaseLost, TableError
from mirrorlake.mirror.engine import Applied, Conflicted, Counts, Failed
from mirrorlake.mirror.settings import TableTemplate
from mirrorlake.mirror.strategy import StrategySetting
from mirrorlake.model import types
from mirrorlake.spark import committer
from mirrorlake.spark.committer import SparkCommitter
from mirrorlake.spark.engine import spark_engine
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.spark.tables import DEFAULTS
from mirrorlake.storage.local import LocalStore
from tests.conformance.apply.creation import first
from tests.conformance.apply.scenario import insert
from tests.conformance.mirrored import Mirrored
from tests.histories import Shape
from tests.profiles import some
from tests.spark import reading
from tests.spark.test_apply import SparkReader

pytestmark = pytest.mark.spark

SHAPE = Shape.of(["id"], id=types.LONG, name=types.STRING)


def table(
    spark: Spark,
    store: LocalStore,
    name: str = "t",
    strategy: StrategySetting = StrategySetting.AUTO,
    template: TableTemplate = TableTemplate.FAST,
) -> Mirrored:
    engine = spark_engine(spark, store, strategy=strategy, template=template)
    return Mirrored(engine, store, SparkReader(spark.session, store), SHAPE, f"Tables/{name}")


def jobs(spark: Spark) -> int:
    """The number of jobs that the session has begun."""
    return int(spark.session.sparkContext._jsc.sc().statusStore().jobsList(None).size())


@pytest.mark.clause("CF-142", "CF-150")
def test_tables_and_their_rows_take_one_job_and_a_commit_each(
    spark: Spark, store: LocalStore
) -> None:
    one = table(spark, store, "one")
    other = Mirrored(one.engine, store, one.reader, SHAPE, "Tables/other")
    steps = [first(one, [insert(1, "a")]), first(other, [insert(2, "b"), insert(3, "c")])]
    before = jobs(spark)
    outcomes = one.engine.apply(steps, lambda: None)
    assert jobs(spark) == before + 1
    assert [type(outcome) for outcome in outcomes] == [Applied, Applied]
    name = reading.sql_name(store.location(other.path))
    (history,) = spark.session.sql(f"describe history {name}").collect()
    assert (history.version, history.operation) == (0, "CREATE TABLE AS SELECT")
    assert history.operationMetrics["numOutputRows"] == "2"
    assert one.feed(0) == {("insert", (1, "a")): 1}


def test_files_of_somebody_else_are_not_taken_for_those_of_a_table(
    spark: Spark, store: LocalStore
) -> None:
    new = table(spark, store)
    theirs = Path(store.location(new.path), "theirs.parquet")
    theirs.parent.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1]}), theirs)
    assert not new.engine.creates_with_batch(new.creation())
    outcome = new.run(first(new, [insert(1, "a")]))
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, TableError)
    assert "is not a Delta table" in outcome.error.what
    assert [path.name for path in theirs.parent.iterdir()] == ["theirs.parquet"]


@pytest.mark.clause("LZ-258")
def test_a_folder_that_is_removed_before_the_commit_is_made_anew(
    spark: Spark, store: LocalStore
) -> None:
    new = table(spark, store)
    step = first(new, [insert(1, "a")])
    outcome = new.run(step, lambda: shutil.rmtree(store.location(new.path)))
    assert isinstance(outcome, Conflicted)
    assert isinstance(new.run(step), Applied)
    assert new.rows() == [(1, "a")]


def test_a_session_with_properties_for_new_tables_creates_them_before(
    spark: Spark, store: LocalStore
) -> None:
    name = f"{DEFAULTS}columnMapping.mode"
    new = table(spark, store)
    spark.session.conf.set(name, "name")
    try:
        assert not new.engine.creates_with_batch(new.creation())
        assert isinstance(new.run(first(new, [insert(1, "a")])), Applied)
    finally:
        spark.session.conf.unset(name)
    assert new.rows() == [(1, "a")]


def test_a_table_that_delta_would_create_otherwise_is_not_committed(
    spark: Spark, store: LocalStore
) -> None:
    new = table(spark, store)
    described = metadata(SHAPE.schema, properties={"delta.columnMapping.mode": "name"})
    begin(store, new.path)
    location = store.location(new.path)
    commit = BatchCommit("t", location, -1, "a", 1, [], Counts(), {}, creates=described)
    outcome = SparkCommitter(spark.session).commit(commit)
    assert isinstance(outcome, Failed)
    assert "other columns or properties" in str(outcome.error)
    assert not has_commit(location)


@pytest.mark.full
def test_what_the_direct_way_cannot_create_goes_by_merge(
    spark: Spark, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "_parsed", lambda *_arguments: object())
    new = table(spark, store)
    assert isinstance(new.run(first(new, [insert(1, "a")])), Applied)
    assert new.rows() == [(1, "a")]


@pytest.mark.parametrize(
    ("strategy", "template"),
    some(
        [
            (StrategySetting.MERGE, TableTemplate.FAST),
            (StrategySetting.AUTO, TableTemplate.COMPATIBLE),
        ]
    ),
)
def test_what_an_attempt_left_is_no_obstacle_to_another_way(
    spark: Spark, store: LocalStore, strategy: StrategySetting, template: TableTemplate
) -> None:
    def refuse() -> None:
        raise LeaseLost("another process took over")

    new = table(spark, store)
    step = first(new, [insert(1, "a")])
    assert isinstance(new.run(step, refuse), Failed)
    assert list(Path(store.location(new.path)).glob("*.parquet"))
    other = table(spark, store, strategy=strategy, template=template)
    assert isinstance(other.run(step), Applied)
    assert other.rows() == [(1, "a")]
