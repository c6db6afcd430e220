"""Prepares what the first start would otherwise have to do: `python -m
mirrorlake.spark.session.fetch`.

Downloads the jars of Delta and S3A, runs the self-test of the direct strategy with them, and has a
JVM write an archive of the loaded classes.
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
from mirrorlake.spark.session.internals import MISSING, report_missing
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.spark.settings import SparkSettings
from mirrorlake.spark.trial import record as trials
from mirrorlake.spark.trial import run as trial
from mirrorlake.storage.urls import StorageLocation

OBJECTS = StorageLocation("s3://any/bucket")


def main(step: str = "") -> int:
    """step: the part to run in a separate process, because a process has only one JVM."""
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
    """The remaining steps. Raises SparkUnavailable."""
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
    """The class archive of a local session. Raises SparkUnavailable."""
    known = class_path.recorded(jars.configuration(SparkSettings()))
    return class_path.archive(os.pathsep.join([*known, str(log_store.JAR)]))


def write_classes() -> None:
    """Run the self-test of the direct strategy in a JVM that writes an archive of all loaded
    classes."""
    target = classes()
    target.unlink(missing_ok=True)
    staged = target.with_suffix(f".{os.getpid()}")
    options = f"{class_path.QUIET} -XX:ArchiveClassesAtExit={staged}"
    conf = {class_path.OPTIONS: f"-Duser.timezone=UTC {options}"}
    with Spark.start(
        SparkSettings(master="local[2]", driver_memory="1g", conf=conf), _say
    ) as spark:
        trials.remember(trial.fails(spark))
    try:
        gateway: Any = SparkContext._gateway  # noqa: SLF001  (no public way)
        gateway.shutdown()
        gateway.proc.stdin.close()  # the JVM then exits and writes the archive
        gateway.proc.wait()
    except MISSING as error:
        report_missing("SparkContext._gateway", "starts without an archive", error)
    if staged.exists():
        staged.replace(target)  # atomic
    class_path.sweep()


def _apart(step: str) -> int:
    done = subprocess.run([sys.executable, "-m", __spec__.name, step], check=False)
    return done.returncode


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
