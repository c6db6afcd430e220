"""Spark 3.5 with its Delta, in an environment of its own, reads what is written here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.mirror.strategy import StrategySetting
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from mirrorlake.spark.engine import spark_engine
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.storage.local import LocalStore
from tests.conformance.mirrored import Mirrored
from tests.delta.handmade import HandmadeTable
from tests.delta.lookup.test_key_lookup import filled
from tests.histories import Shape
from tests.spark.test_apply import SparkReader

pytestmark = [pytest.mark.spark, pytest.mark.full]

SHAPE = Shape.of(["id"], id=types.LONG, day=types.DATE, at=types.TIMESTAMP)
OLD = (1, date(1500, 2, 3), datetime(1800, 1, 1, tzinfo=UTC))

PACKAGES = ["pyspark==3.5.5", "delta-spark==3.3.0", "setuptools<80"]
READ = """
import json, sys
from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession
conf = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
}
builder = SparkSession.builder.master("local[1]")
for name, value in conf.items():
    builder = builder.config(name, value)
session = configure_spark_with_delta_pip(builder).getOrCreate()
reader, columns = session.read.format("delta"), ["id", "cast(day as string)", "cast(at as string)"]
if len(sys.argv) > 2:
    reader.option("readChangeFeed", "true").option("startingVersion", sys.argv[2])
    columns.insert(0, "_change_type")
found = reader.load(sys.argv[1]).selectExpr(*columns).collect()
print(json.dumps([list(row) for row in found]))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """That of an environment with Spark 3.5."""
    folder = tmp_path_factory.mktemp("spark-3")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [folder / "bin/pip", "install", "-q", *PACKAGES]
    subprocess.run(pip, check=True, timeout=900)
    return str(folder / "bin/python")


def read(python: str, table: str, *version: str) -> list[list[Any]]:
    """What Spark 3.5 reads of a table: its rows, or the change feed from a version on."""
    ours = {"PYTHONPATH", "SPARK_HOME"}
    own = {name: value for name, value in os.environ.items() if name not in ours}
    done = subprocess.run(
        [python, "-c", READ, table, *version],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env=own | {"PYSPARK_PYTHON": python},
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    found: list[list[Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.timeout(1_500)
def test_dates_before_the_gregorian_calendar_are_read(tmp_path: Path, python: str) -> None:
    table = filled(HandmadeTable(tmp_path / "t", SHAPE.schema), SHAPE, [([OLD], [])])
    assert read(python, str(table.path)) == [[1, "1500-02-03", "1800-01-01 00:00:00"]]


@pytest.mark.timeout(1_500)
def test_changes_of_such_dates_are_read_from_change_files(
    spark: Spark, store: LocalStore, python: str
) -> None:
    engine = spark_engine(spark, store, strategy=StrategySetting.DIRECT)
    table = Mirrored(engine, store, SparkReader(spark.session, store), SHAPE).create()
    other = date(1, 1, 1), datetime(1, 1, 1, tzinfo=UTC)
    table.apply(
        [(Marker.INSERT, OLD), (Marker.INSERT, (2, *OLD[1:])), (Marker.INSERT, (3, *other))]
    )
    changes = [(Marker.UPDATE, (1, *other)), (Marker.DELETE, (2, None, None))]
    version = table.apply([*changes, (Marker.UPSERT, (4, *OLD[1:]))]).version
    location = store.location(table.path)
    assert any("cdc" in action for action in TableLog(location).actions(version))
    old, oldest = ["1500-02-03", "1800-01-01 00:00:00"], ["0001-01-01", "0001-01-01 00:00:00"]
    assert sorted(read(python, location, str(version))) == [
        ["delete", 2, *old],
        ["insert", 4, *old],
        ["update_postimage", 1, *oldest],
        ["update_preimage", 1, *old],
    ]
    assert sorted(read(python, location)) == [[1, *oldest], [3, *oldest], [4, *old]]
