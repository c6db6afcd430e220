"""Ending on a signal: soon, whoever gets it, and without losing anything."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from mirrorlake.model.clock import WallClock
from mirrorlake.spark.session.spark_session import Spark
from tests.crash.project import (
    CHANGES,
    LARGE,
    MORE,
    PART_BYTES,
    TABLES,
    Project,
    assert_landed,
    is_large_loading,
)
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
def test_capture_ends_within_five_seconds_while_it_waits_for_a_lock(
    project: Project, number: signal.Signals
) -> None:
    """It makes its publication, for which it needs one on each table."""
    with psycopg.connect(project.database.url) as other:
        other.execute("lock table a.orders in access exclusive mode")
        capture = project.start("capture")
        until(lambda: _waits(other))
        assert seconds_to_end(capture, number) < SECONDS


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize(
    ("command", "number"), [("capture", signal.SIGINT), ("run", signal.SIGTERM)]
)
def test_who_loads_ends_within_five_seconds_though_no_row_comes_and_goes_on(
    project: Project, spark: Spark, command: str, number: signal.Signals
) -> None:
    project.database.execute(LARGE)
    project.configure("load", part_bytes=PART_BYTES)
    with project.started(command) as loading:
        until(lambda: is_large_loading(project), pause=0.005)
        with _stalled(project):
            assert is_large_loading(project), "it was loaded before"
            assert seconds_to_end(loading, number) < SECONDS
        until(lambda: not processes_that_name(str(project.file)))
    project.run("capture", "--once")
    apply_again(project, spark)
    assert_mirrored(project, [*TABLES, "a.large"])


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
def test_a_run_ends_within_five_seconds_while_it_waits_for_a_lock(project: Project) -> None:
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


@contextmanager
def _stalled(project: Project) -> Iterator[None]:
    """The server sends nothing on the connections of others, and says nothing of it."""
    found = project.database.sql.execute(
        "select pid from pg_stat_activity where datname = current_database() "
        "and pid <> pg_backend_pid()"
    ).fetchall()
    for (process,) in found:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for (process,) in found:
            os.kill(process, signal.SIGCONT)


def _until_loaded(project: Project) -> None:
    until(lambda: any((project.root / "Files/LandingZone/_mirrorlake/cuts").glob("*.json")))
