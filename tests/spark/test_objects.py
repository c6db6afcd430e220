"""Tables on S3, written by Spark and by our own tasks: the whole way, and back."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.app.mirror import Mirror
from mirrorlake.app.stores import store_of
from mirrorlake.apply.stages.spread import SpreadSettings
from mirrorlake.config import Project
from mirrorlake.errors import ForeignTable, StorageUnavailable, UsageError
from mirrorlake.landing import Publisher
from mirrorlake.mirror.compaction import small_files as compaction
from mirrorlake.mirror.engine import Applied, MirrorEngine
from mirrorlake.mirror.strategy import StrategySetting
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from mirrorlake.spark.engine import spark_engine
from mirrorlake.spark.session import s3a
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.storage.local import LocalStore
from mirrorlake.storage.store import Store
from mirrorlake.storage.urls import StorageLocation
from tests.conformance.mirrored import Mirrored
from tests.delta.handmade import HandmadeTable
from tests.histories import Shape, counted
from tests.objects import CREDENTIALS, S3Server
from tests.profiles import some
from tests.spark.test_apply import SparkReader

pytestmark = pytest.mark.spark

INSERT, UPDATE, DELETE, UPSERT = Marker.INSERT, Marker.UPDATE, Marker.DELETE, Marker.UPSERT
SHAPE = Shape.of(["id"], id=types.LONG, name=types.STRING)


@pytest.fixture
def project(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    s3.described(monkeypatch)
    tables = StorageLocation(f"{s3.new_bucket()}/shop", s3.options)
    return Project("shop", tmp_path / "root", tables=tables)


@pytest.fixture
def store(project: Project) -> Store:
    return store_of(project)


@pytest.fixture
def reader(spark: Spark, store: LocalStore) -> SparkReader:
    return SparkReader(spark.session, store)


def table_of(engine: MirrorEngine, store: Any, reader: SparkReader) -> Mirrored:
    return Mirrored(engine, store, reader, SHAPE)


@pytest.mark.full
@pytest.mark.parametrize("setting", some([StrategySetting.DIRECT, StrategySetting.MERGE]))
def test_rows_and_feed_are_those_of_the_changes(
    spark: Spark, store: Store, reader: SparkReader, setting: StrategySetting, monkeypatch: Any
) -> None:
    monkeypatch.setattr(compaction, "SMALLEST", 2)
    orders = table_of(spark_engine(spark, store, strategy=setting), store, reader).create()
    orders.apply([(INSERT, (n, "old")) for n in range(6)])
    done = orders.apply([(UPDATE, (1, "new")), (DELETE, (2, None)), (UPSERT, (7, "x"))])
    orders.engine.make_durable(orders.path, done.version)
    rows = [(0, "old"), (1, "new"), (3, "old"), (4, "old"), (5, "old"), (7, "x")]
    assert counted(orders.rows()) == counted(rows)
    assert dict(orders.feed(done.version)) == {
        ("update_preimage", (1, "old")): 1,
        ("update_postimage", (1, "new")): 1,
        ("delete", (2, "old")): 1,
        ("insert", (7, "x")): 1,
    }
    again = spark_engine(spark, store, strategy=setting)  # as after a restart
    assert again.progress(orders.path).recorded == 2
    if setting is StrategySetting.MERGE:
        return  # the rest is not of its doing
    orders.engine = again
    orders.apply([(DELETE, (0, None))])
    assert isinstance(orders.compact(), Applied)
    orders.apply([(UPSERT, (9, "y"))], truncated=True)
    assert counted(orders.rows()) == counted([(9, "y")])
    again.checkpoint(orders.path)
    assert spark_engine(spark, store).progress(orders.path).recorded == orders.recorded


@pytest.mark.full
def test_a_batch_is_spread_over_tasks(spark: Spark, store: Store, reader: SparkReader) -> None:
    engine = spark_engine(spark, store, spread=SpreadSettings(rows=1))
    orders = table_of(engine, store, reader).create()
    orders.apply([(INSERT, (n, "old")) for n in range(1_000)])
    done = orders.apply(
        [(UPDATE, (n, "new")) for n in range(500)], [(DELETE, (n, None)) for n in range(500)]
    )
    assert counted(orders.rows()) == counted([(n, "old") for n in range(500, 1_000)])
    assert sum(orders.feed(done.version).values()) == 500


@pytest.mark.full
def test_vacuum_removes_what_no_version_needs_and_spares_tables_inside(
    spark: Spark, store: Store, reader: SparkReader
) -> None:
    orders = table_of(spark_engine(spark, store), store, reader).create()
    orders.apply([(INSERT, (1, "a"))])
    orders.apply([(UPSERT, (2, "b"))], truncated=True)
    orders.engine.vacuum(orders.path, timedelta(0), lambda: None)
    parts = [file.name for file in store.list(orders.path).files if file.name.startswith("part-")]
    assert len(parts) == 1
    assert orders.rows() == [(2, "b")]
    HandmadeTable(store.location(f"{orders.path}/inner"), SHAPE.schema)
    with pytest.raises(ForeignTable, match="inner"):
        orders.engine.vacuum(orders.path, timedelta(0), lambda: None)


@pytest.mark.full
def test_a_mirror_on_objects_is_looked_at_without_a_jvm_and_holds_no_secret(
    spark: Spark, project: Project, s3: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [{"id": n, "v": f"v{n}"} for n in range(5)]
    with Publisher(LocalStore(project.root)) as publisher:
        publisher.load("s.t", rows, key="id")
        publisher.publish("s.t", [{"id": 2}], operation="delete")
    with Mirror(project, spark=spark.session) as mirror:
        assert not mirror.apply_once().errors
    found = [tuple(row) for row in spark.session.read.format("delta").load(url(project)).collect()]
    assert sorted(found) == [(0, "v0"), (1, "v1"), (3, "v3"), (4, "v4")]
    looking = Mirror(project)
    assert looking.status().facts()["tables"][0]["state"] == "Replicating"
    told = [tuple(file.values())[1:3] for file in looking.files("s.t").facts()["files"]]
    assert told == [(1, "applied"), (2, "applied")]
    assert not any(step for plan in looking.plan() for step in plan.steps if "Apply" in repr(step))
    secret = CREDENTIALS["AWS_SECRET_ACCESS_KEY"]
    told_by_spark = str(spark.session.sparkContext.getConf().getAll())
    assert secret not in told_by_spark + caplog.text + repr(project)
    assert spark.log is None or secret not in spark.log.read_text()
    for page in store_objects(project):
        assert secret.encode() not in page


def url(project: Project) -> str:
    assert project.tables is not None
    return f"{project.tables.url}/Tables/s/t"


def store_objects(project: Project) -> list[bytes]:
    store = store_of(project)
    log = "Tables/s/t/_delta_log"
    return [store.read(f"{log}/{file.name}") for file in store.list(log).files]


class TestTheWayThere:
    def test_a_missing_bucket_is_reported_before_anything_is_written(
        self, spark: Spark, s3: S3Server
    ) -> None:
        index = StorageLocation("s3://no-such-bucket/shop", s3.options)
        with pytest.raises(StorageUnavailable, match="cannot access"):
            Spark.given(spark.session, index)

    def test_a_session_without_a_way_there_is_refused(self, spark: Spark) -> None:
        with pytest.raises(UsageError, match="cannot access gs:// URLs"):
            s3a.check(spark.session, StorageLocation("gs://bucket/shop"))
