"""Pytest plugin: what the JVMs of the tests share. `python -m tests.jvm FILE` makes it.

Dozens of them start in a run and live for seconds, half of which goes into the loading of Spark's
and Delta's classes. So one JVM writes down what it has loaded, and those that come later begin with
that. It is made while the first tests run; until then, and whenever it does not fit, a JVM does
without it by itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLASSES = Path(__file__).parent.parent / "build" / "spark.jsa"
WORTH = 20
"""Tests with Spark in a run, from which on it pays."""

# A JVM of the tests lives for seconds, and most of its work would be to compile for hours to come.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Without its log, in which it would tell of classes that do not fit, on standard output.
SHARING = f"{SHORT_LIVED} -Xlog:disable -XX:SharedArchiveFile={CLASSES}"

if "SPARK_SUBMIT_OPTS" not in os.environ:
    os.environ["SPARK_SUBMIT_OPTS"] = SHARING

_making: list[subprocess.Popen[bytes]] = []


def pytest_collection_finish(session: pytest.Session) -> None:
    """The first of the processes of a run makes it, beside the tests."""
    is_first = os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0"
    with_spark = sum(1 for item in session.items if item.get_closest_marker("spark"))
    runs = is_first and not session.config.option.collectonly
    if runs and with_spark >= WORTH and not CLASSES.exists():
        command = [sys.executable, "-m", "tests.jvm", str(CLASSES)]
        quiet = subprocess.DEVNULL
        folder = CLASSES.parents[1]
        _making.append(
            subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, cwd=folder)
        )


def pytest_unconfigure() -> None:
    for process in _making:
        process.terminate()
        process.wait()


def make(target: Path) -> None:
    """Write down the classes of everything that a mirror does with Spark, by both ways."""
    new = target.with_suffix(f".{os.getpid()}")
    target.parent.mkdir(exist_ok=True)
    os.environ["SPARK_SUBMIT_OPTS"] = f"{SHORT_LIVED} -Xlog:disable -XX:ArchiveClassesAtExit={new}"
    from pyspark import SparkContext

    from mirrorlake.spark.session.spark_session import Spark
    from mirrorlake.spark.settings import SparkSettings
    from mirrorlake.spark.trial import run as trial

    with Spark.start(SparkSettings(master="local[2]", driver_memory="1g")) as spark:
        trial.fails(spark)
        _merge(spark.session)
    gateway: Any = SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()  # upon which the JVM ends by itself, and writes
    gateway.proc.wait()
    new.rename(target)  # whole or not at all


def _merge(session: SparkSession) -> None:
    """What Delta does itself for us."""
    with tempfile.TemporaryDirectory() as folder:
        name = f"delta.`{folder}/table`"
        session.sql(f"create table {name} (id long, v string) using delta").collect()
        session.sql(
            f"merge into {name} t using (select id, 'new' v from range(9)) s on t.id = s.id "
            "when matched then update set * when not matched then insert *"
        ).collect()
        session.sql(f"optimize {name}").collect()


if __name__ == "__main__":
    make(Path(sys.argv[1]))
