"""Ending on a signal: soon, whoever gets it, and without losing anything."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from mirrorlake.model.clock import WallClock
from mirrorlake.spark.session.spark_session import Spark
from tests.crash.project import CHANGES, MORE, Project, assert_landed
from tests.crash.test_apply_crashes import apply_again, assert_mirrored
from tests.profiles import some

pytestmark = [pytest.mark.postgres, pytest.mark.crash]

SECONDS = 5.5
"""The end comes within five seconds; half of one is what it takes to see it."""

PATIENCE = 90
"""Seconds for what takes less than five by itself: other tests run on the same cores."""


@pytest.mark.full
@pytest.mark.parametrize("number", some([signal.SIGINT, signal.SIGTERM]))
def test_capture_ends_on_a_signal_and_loses_nothing(
    project: Project, number: signal.Signals
) -> None:
    capture = project.start("capture")
    _until_loaded(project)
    project.database.execute(CHANGES)
    assert _seconds_to_end(capture, number) < SECONDS
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
        _until(lambda: _waits(other))
        assert _seconds_to_end(capture, number) < SECONDS


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_ends_within_five_seconds_while_spark_starts(
    project: Project, number: signal.Signals
) -> None:
    run = project.start("run")
    _until_it_says(run, "Starting Spark")
    WallClock().sleep(2.0)
    assert _seconds_to_end(run, number) < SECONDS
    _until(lambda: not _processes_that_name(str(project.file)))


@pytest.mark.full
@pytest.mark.spark
def test_a_run_ends_within_five_seconds_while_it_loads(project: Project) -> None:
    with psycopg.connect(project.database.url) as other:
        other.execute("lock table a.orders in access exclusive mode")
        run = project.start("run")
        _until(lambda: _waits(other))
        assert _seconds_to_end(run, signal.SIGTERM) < SECONDS
        # Capture has the same arguments, and outlives nobody.
        _until(lambda: not _processes_that_name(str(project.file)))


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
    _until_applied(project)
    project.database.execute(CHANGES)
    assert _seconds_to_end(run, number, group=group) < SECONDS
    _until(lambda: not _processes_that_name(str(project.file)))
    project.database.execute(MORE)
    project.run("capture", "--once")
    apply_again(project, spark)
    assert_mirrored(project)


MOMENTS = [
    ("Filling", signal.SIGINT, 130),
    ("Starting Spark", signal.SIGTERM, 143),
    ("Initial load", signal.SIGINT, 130),
    ("Mirroring", signal.SIGINT, 130),
]


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize(("moment", "number", "code"), some(MOMENTS), ids=[m for m, *_ in MOMENTS])
def test_the_demo_ends_on_a_signal_and_leaves_nothing(
    temporary: Path, moment: str, number: signal.Signals, code: int
) -> None:
    demo = _demo(temporary)
    _until_it_says(demo, moment)
    WallClock().sleep(0.7)
    os.killpg(demo.pid, number)
    told = demo.communicate(timeout=PATIENCE)[1]
    assert demo.returncode == code, told
    assert "Traceback" not in told, told
    assert "Exception" not in told
    assert _processes_that_name(str(temporary)) == []
    # The folder in which PySpark waits for a JVM that is just starting is not ours.
    assert [f.name for f in temporary.glob("mirrorlake-*") if f.is_dir()] == []


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder for temporary files that PostgreSQL's user can enter."""
    folder = Path(tempfile.mkdtemp(prefix="mirrorlake-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def _demo(temporary: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "mirrorlake.cli.main",
            "demo",
            "--rows",
            "300000",
            "--seconds",
            "60",
        ],
        env=os.environ | {"TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _until_it_says(demo: subprocess.Popen[str], words: str) -> None:
    assert demo.stderr is not None
    for line in demo.stderr:
        if line.startswith(words):
            return
    raise AssertionError(f"the demo ended before it said {words}")


def _processes_that_name(text: str) -> list[str]:
    found = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it may end while we look
            if text in (line := command.read_text(errors="replace")):
                found.append(line)
    return found


def _seconds_to_end(
    process: subprocess.Popen[str], number: signal.Signals, *, group: bool = False
) -> float:
    """Send the signal, also to its group; returns how long the process lived on. It ends well."""
    begun = time.monotonic()
    if group:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    process.wait(PATIENCE)
    seconds = time.monotonic() - begun
    assert process.returncode == 0
    for stream in (process.stdout, process.stderr):
        assert stream is not None
        stream.close()
    return seconds


def _waits(other: psycopg.Connection) -> bool:
    """Whether somebody waits for a lock in the database."""
    waiting = "select 1 from pg_locks l join pg_stat_activity a using (pid) where not granted "
    return other.execute(f"{waiting} and a.datname = current_database()").fetchone() is not None


def _until_loaded(project: Project) -> None:
    _until(lambda: any((project.root / "Files/LandingZone/_mirrorlake/cuts").glob("*.json")))


def _until_applied(project: Project) -> None:
    _until((project.root / "Tables/a/orders/_delta_log/00000000000000000001.json").exists)


def _until(holds) -> None:
    clock, deadline = WallClock(), time.monotonic() + 2 * PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        clock.sleep(0.05)
