"""What applies ends on a signal: soon, also while Spark works, and the next start goes on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from mirrorlake.app.mirror import Mirror
from mirrorlake.config import load_all
from mirrorlake.model.clock import WallClock
from mirrorlake.spark.session.spark_session import Spark
from tests.crash.project import CHANGES, MORE, TABLES, Project
from tests.crash.signalled import (
    PATIENCE,
    SECONDS,
    SparkJobs,
    processes_that_name,
    seconds_to_end,
    until,
    until_applied,
)
from tests.crash.test_apply_crashes import apply_again, assert_mirrored

pytestmark = [pytest.mark.postgres, pytest.mark.crash, pytest.mark.full, pytest.mark.spark]

MANY = """
insert into a.orders select g, 'many', repeat(md5(g::text), 2)
    from generate_series(100000, 130000) g;
insert into a.items select g, 1, 'many' from generate_series(100000, 130000) g;
"""

IDLE_SECONDS = 1.5
"""After which all that comes of the load has been done."""


def test_an_idle_apply_ends_within_five_seconds(project: Project, spark: Spark) -> None:
    jobs = SparkJobs(project)
    project.run("capture", "--once")
    with project.started("apply") as apply:
        until_applied(project)
        WallClock().sleep(IDLE_SECONDS)
        assert not jobs.is_at_work()
        assert seconds_to_end(apply, signal.SIGTERM) < SECONDS
        until(lambda: not processes_that_name(str(project.folder)))
    project.database.execute(CHANGES, MORE)
    project.run("capture", "--once")
    apply_again(project, spark)
    assert_mirrored(project)


WORK = [
    ("run", "direct", signal.SIGTERM, False),
    ("apply", "merge", signal.SIGTERM, False),
    ("apply", "direct", signal.SIGINT, True),
    pytest.param("run", "merge", signal.SIGINT, True, marks=pytest.mark.long),
]
"""A statement of Spark (`merge`) is several jobs, and more than a step may take; ours are short."""


@pytest.mark.parametrize(("command", "strategy", "number", "group"), WORK)
def test_who_applies_ends_within_five_seconds_during_a_batch(
    project: Project,
    spark: Spark,
    command: str,
    strategy: str,
    number: signal.Signals,
    group: bool,
) -> None:
    jobs = SparkJobs(project)
    project.configure("mirror", strategy=strategy)
    project.database.execute(MANY)
    project.run("capture", "--once")
    with project.started(command) as applying:
        until_applied(project)
        WallClock().sleep(IDLE_SECONDS)
        before, loaded = jobs.begun(), commits(project)
        project.database.execute("update a.orders set note = 'other'", CHANGES)
        with captured(project) if command == "apply" else nullcontext():
            until(lambda: jobs.is_at_work(before), pause=0.005)
            committed = commits(project) - loaded
            seconds = seconds_to_end(applying, number, group=group)
    assert len(committed) < len(TABLES), "all was done before the signal"
    assert seconds < SECONDS
    until(lambda: not processes_that_name(str(project.folder)))
    assert not failed_tables(project)
    project.database.execute(MORE)
    project.run("capture", "--once")
    apply_again(project, spark)
    assert_mirrored(project)


def failed_tables(project: Project) -> list[str]:
    """What `mirrorlake status` says of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TEST_URL", project.database.url)
        (settings,) = load_all(project.file)
    return [table.table for table in Mirror(settings).status().tables if table.error]


def commits(project: Project) -> set[Path]:
    """Of all tables."""
    return {*(project.root / "Tables").glob("*/*/_delta_log/*.json")}


@contextmanager
def captured(project: Project) -> Iterator[None]:
    """Changes are landed meanwhile, all of them."""
    with project.started("capture", "--once") as capture:
        yield
        _out, error = capture.communicate(timeout=PATIENCE)
        assert capture.returncode == 0, error
