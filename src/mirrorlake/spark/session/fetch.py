"""Prepares what the first start would have to wait for: `python -m mirrorlake.spark.session.fetch`.

Fetches the jars of Delta and of S3A, tries whether the direct way of writing is open with them, and
has a JVM write down the classes that all this takes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from mirrorlake.errors import MirrorlakeError
from mirrorlake.spark.session import class_path, jars, log_store
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.spark.settings import SparkSettings
from mirrorlake.spark.trial import record as trials
from mirrorlake.spark.trial import run as trial
from mirrorlake.storage.urls import StorageLocation

OBJECTS = StorageLocation("s3://any/bucket")


def main(step: str = "") -> int:
    """step: what a process of its own does, because it has one JVM."""
    try:
        match step:
            case "jars":
                fetch(jars.configuration(SparkSettings()))
            case "jars of S3A":
                fetch(jars.configuration(SparkSettings(), OBJECTS))
            case "classes":
                write_classes()
            case _:
                return next(filter(None, map(_apart, missing())), 0)
    except MirrorlakeError as error:
        _say(f"mirrorlake: {error}")
        return error.exit_code
    return 0


def missing() -> list[str]:
    """The steps that were not taken yet. Raises SparkUnavailable."""
    delta, s3a = jars.configuration(SparkSettings()), jars.configuration(SparkSettings(), OBJECTS)
    known = class_path.recorded(delta)
    steps = {
        "jars": not known,
        "jars of S3A": not class_path.recorded(s3a),
        "classes": not (known and classes().exists() and trials.went_well()),
    }
    return [step for step, is_missing in steps.items() if is_missing]


def fetch(conf: dict[str, str]) -> None:
    """Have Spark resolve the packages of these settings, which records their files."""
    with Spark.start(SparkSettings(master="local[1]", driver_memory="512m", conf=conf), _say):
        pass


def classes() -> Path:
    """The archive of a local session. Raises SparkUnavailable."""
    known = class_path.recorded(jars.configuration(SparkSettings()))
    return class_path.archive(os.pathsep.join([*known, str(log_store.JAR)]))


def write_classes() -> None:
    """Try the direct way, in a JVM that writes down the classes of everything that this takes."""
    target = classes()
    target.unlink(missing_ok=True)
    staged = target.with_suffix(f".{os.getpid()}")
    options = f"{class_path.QUIET} -XX:ArchiveClassesAtExit={staged}"
    conf = {class_path.OPTIONS: f"-Duser.timezone=UTC {options}"}
    with Spark.start(
        SparkSettings(master="local[2]", driver_memory="1g", conf=conf), _say
    ) as spark:
        trials.remember(trial.fails(spark))
    gateway: Any = SparkContext._gateway  # noqa: SLF001  (no public way)
    gateway.shutdown()
    gateway.proc.stdin.close()  # upon which the JVM ends by itself, and writes
    gateway.proc.wait()
    if staged.exists():
        staged.replace(target)  # whole or not at all
    class_path.sweep()


def _apart(step: str) -> int:
    done = subprocess.run([sys.executable, "-m", __spec__.name, step], check=False)
    return done.returncode


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
