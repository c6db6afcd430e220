"""Decides whether the direct strategy may be used with a Spark: tested versions or newer patch
releases, the right jars, and a self-test.

The self-test applies a few rows with everything that the direct strategy depends on, once for each
set of versions. Its result is recorded (`trials`); a failed test is repeated at the next start.
"""

from __future__ import annotations

import subprocess
import sys

import structlog
from pyspark.sql import SparkSession

from mirrorlake.spark.session import jars
from mirrorlake.spark.session.internals import MISSING
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.spark.trial import record as trials
from mirrorlake.spark.trial import run as trial
from mirrorlake.storage.urls import StorageLocation

log = structlog.get_logger()

CLOSED = "direct_strategy_closed"
PATIENCE = 300
"""Maximum seconds for a self-test in a separate process."""


def closed(spark: Spark, tables: StorageLocation | None = None) -> str:
    """Why the direct strategy may not be used, in words; empty when it may. Logs a warning. tables:
    their location, if on an object store."""
    reason = jars.untested() or _other_jars(spark.session) or _trial(spark)
    if tables is not None:
        reason = reason or _trial_on_objects(spark, tables)
    if reason:
        log.warning(CLOSED, reason=reason, strategy="merge")
    return reason


def _other_jars(session: SparkSession) -> str:
    """Compares the versions that actually run: a given session has its own jars."""
    spark, delta = jars.pair()
    try:
        runs = str(session._jvm.io.delta.__getattr__("package$").__getattr__("MODULE$").VERSION())  # type: ignore[union-attr]  # noqa: SLF001
    except MISSING:
        return "the version of Delta in the session cannot be determined"
    if (session.version, runs) != (spark, delta):
        return (
            f"the session runs Spark {session.version} with Delta {runs}, but pyspark {spark} "
            f"with delta-spark {delta} is installed"
        )
    return ""


def _trial(spark: Spark) -> str:
    """Why the self-test fails; empty when it succeeded, now or earlier."""
    if trials.went_well():
        return ""
    if str(spark.session.sparkContext.master).startswith("local"):
        reason = trial.fails(spark)
    else:
        reason = _apart(spark.session)
    trials.remember(reason)
    return reason


def _trial_on_objects(spark: Spark, tables: StorageLocation) -> str:
    """Why the self-test fails on an object store, with versions that our tests do not cover there.
    All processes of the session can access it."""
    if jars.is_tested() or trials.went_well(trials.ON_OBJECTS):
        return ""
    reason = trial.fails(spark, tables)
    trials.remember(reason, trials.ON_OBJECTS)
    return reason


def _apart(session: SparkSession) -> str:
    """Run the self-test in a local Spark with the same jars, because the workers of this session do
    not see our temporary files."""
    found = session.sparkContext.getConf().get("spark.jars") or ""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "mirrorlake.spark.trial.run", found],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the self-test of direct did not finish ({type(error).__name__})"
    return "" if done.returncode == 0 else (done.stdout.strip() or "the self-test of direct failed")
