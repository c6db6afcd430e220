"""Spark 3.5 with its Delta, in an environment of its own, reads what is written here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from mirrorlake.model import types
from tests.delta.handmade import HandmadeTable
from tests.delta.lookup.test_key_lookup import filled
from tests.histories import Shape

pytestmark = [pytest.mark.spark, pytest.mark.long]

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
rows = session.read.format("delta").load(sys.argv[1])
found = rows.selectExpr("id", "cast(day as string)", "cast(at as string)").collect()
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


@pytest.mark.timeout(1_500)
def test_dates_before_the_gregorian_calendar_are_read(tmp_path: Path, python: str) -> None:
    shape = Shape.of(["id"], id=types.LONG, day=types.DATE, at=types.TIMESTAMP)
    row = (1, date(1500, 2, 3), datetime(1800, 1, 1, tzinfo=UTC))
    table = filled(HandmadeTable(tmp_path / "t", shape.schema), shape, [([row], [])])
    ours = {"PYTHONPATH", "SPARK_HOME"}
    own = {name: value for name, value in os.environ.items() if name not in ours}
    done = subprocess.run(
        [python, "-c", READ, str(table.path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env=own | {"PYSPARK_PYTHON": python},
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [[1, "1500-02-03", "1800-01-01 00:00:00"]]
