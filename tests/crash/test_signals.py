"""Ending on a signal: soon, whoever gets it, and without losing anything."""

from __future__ import annotations

import signal

import psycopg
import pytest

from mirrorlake.model.clock import WallClock
from mirrorlake.spark.session.spark_session import Spark
from tests.crash.project import CHANGES, MORE, Project, assert_landed
from tests.crash.signalled import (
    SECONDS,
    processes_that_name,
    seconds_to_end,
    until,
    until_applied,
    until_it_says,
)
from tests.crash.test_apply_crashes import apply_again, assert_mirrored
from tests.profiles import some

pytestmark = [pytest.mark.postgres, pytest.mark.crash]


@pytest.mark.full
@pytest.mark.parametrize("number", some([signal.SIGINT, signal.SIGTERM]))
def test_capture_ends_on_a_signal_and_loses_nothing(
    project: Project, number: signal.Signals
) -> None:
    capture = project.start("capture")
    _until_loaded(project)
    project.database.execute(CHANGES)
    assert seconds_to_end(capture, number) < SECONDS
    project.database.execute(MORE)
    project.run("capture", "--once")
    assert_landed(project)


@pytest.mark.full
@pytest.mark.parametrize("number", some([signal.SIGTERM, signal.SIGINT]))
def test_capture_ends_within_five_seconds_while_it_loads(
    project: Project, number: signal.Signals
) -> None:
    """A lock keeps the load from ever getting on."""
    with psycopg.connect(project.database.url) as other:
        other.execute("lock table a.orders in access exclusive mode")
        capture = project.start("capture")
        until(lambda: _waits(other))
        assert seconds_to_end(capture, number) < SECONDS


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_ends_within_five_seconds_while_spark_starts(
    project: Project, number: signal.Signals
) -> None:
    run = project.start("run")
    until_it_says(run, "Starting Spark")
    WallClock().sleep(2.0)
    assert seconds_to_end(run, number) < SECONDS
    until(lambda: not processes_that_name(str(project.file)))


@pytest.mark.full
@pytest.mark.spark
def test_a_run_ends_within_five_seconds_while_it_loads(project: Project) -> None:
    with psycopg.connect(project.database.url) as other:
        other.execute("lock table a.orders in access exclusive mode")
        run = project.start("run")
        until(lambda: _waits(other))
        assert seconds_to_end(run, signal.SIGTERM) < SECONDS
        # Capture has the same arguments, and outlives nobody.
        until(lambda: not processes_that_name(str(project.file)))


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize(
    ("number", "group"),
    [
        (signal.SIGTERM, False),
        pytest.param(signal.SIGTERM, True, marks=pytest.mark.long),
        (signal.SIGINT, True),
    ],
)
def test_a_run_ends_on_a_signal_to_itself_or_to_its_group(
    project: Project, spark: Spark, number: signal.Signals, group: bool
) -> None:
    run = project.start("run")
    until_applied(project)
    project.database.execute(CHANGES)
    assert seconds_to_end(run, number, group=group) < SECONDS
    until(lambda: not processes_that_name(str(project.file)))
    project.database.execute(MORE)
    project.run("capture", "--once")
    apply_again(project, spark)
    assert_mirrored(project)


def _waits(other: psycopg.Connection) -> bool:
    """Whether somebody waits for a lock in the database."""
    waiting = "select 1 from pg_locks l join pg_stat_activity a using (pid) where not granted "
    return other.execute(f"{waiting} and a.datname = current_database()").fetchone() is not None


def _until_loaded(project: Project) -> None:
    until(lambda: any((project.root / "Files/LandingZone/_mirrorlake/cuts").glob("*.json")))
