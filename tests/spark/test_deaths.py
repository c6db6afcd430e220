"""A batch whose tasks die with their process stops its own table, and no other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkException

from mirrorlake.app.loop.apply_loop import ApplyLoop
from mirrorlake.app.loop.report import ApplyReport
from mirrorlake.errors import TableError, WorkerLost
from mirrorlake.landing.text.format import TextFormat
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.mirror.strategy import Wanted
from mirrorlake.model.seams import CrashPoint, WallClock, kill_at
from mirrorlake.spark import parting, task
from mirrorlake.spark.engine import SparkEngine
from mirrorlake.spark.jobs import Jobs
from mirrorlake.spark.refusals import death
from mirrorlake.spark.session.spark_session import Spark
from tests.app.zones import MARKER, Zone
from tests.delta.handmade import HandmadeTable

ABORTED = "Job aborted due to stage failure: Task 1 in stage 0.0 failed 4 times, "
CRASHED = PySparkException(f"{ABORTED}Python worker exited unexpectedly (crashed).")
CANCELLED = PySparkException("[SPARK_JOB_CANCELLED] Job 2 cancelled part of cancelled job tags x")

# -- in a session ---------------------------------------------------------------------------------

TABLES = ("a", "deadly", "z")


class DeadlyJobs(Jobs):
    """Whatever works on the table `deadly` kills its own process, as long as `sign` is there."""

    def __init__(self, spark: Spark, sign: Path) -> None:
        super().__init__(spark.session)
        self._sign = str(sign)

    def map(self, work: Callable[[Any], Any], items: Sequence[Any], *more: Any) -> list[Any]:
        sign = self._sign

        def deadly(item: Any) -> Any:
            table = item.table if hasattr(item, "table") else item.batch.table
            if table == "s.deadly" and Path(sign).exists():
                kill_at(CrashPoint.BATCH_WRITTEN)(CrashPoint.BATCH_WRITTEN)
            return work(item)

        return super().map(deadly, items, *more)


@dataclass
class Scene:
    """Three tables at file 1, and a change of the only row of each, landed and not applied."""

    zone: Zone
    spark: Spark
    sign: Path
    wanted: Wanted = Wanted.AUTO

    @contextmanager
    def loop(self) -> Iterator[ApplyLoop]:
        jobs = DeadlyJobs(self.spark, self.sign)
        engine = SparkEngine(self.spark, self.zone.store, wanted=self.wanted, jobs=jobs)
        loop = ApplyLoop(self.zone.store, engine, MirrorSettings(), WallClock())
        loop.open()
        try:
            yield loop
        finally:
            loop.close()

    def apply(self) -> ApplyReport:
        with self.loop() as loop:
            return loop.once()

    def feed(self, table: str) -> list[dict[Any, int]]:
        path = self.zone.root / "Tables/s" / table
        return [dict(HandmadeTable(path).feed(version)) for version in (1, 2)]

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        return HandmadeTable(self.zone.root / "Tables/s" / table).rows()


@pytest.fixture
def scene(tmp_path: Path, spark: Spark) -> Scene:
    scene = Scene(Zone(tmp_path / "root", spark), spark, tmp_path / "sign")
    for name in TABLES:
        scene.zone.table(name, "id")
        scene.zone.land(name, 1, {"id": [1], "v": ["old"]})
    assert not scene.apply().errors
    for name in TABLES:
        scene.zone.land(name, 2, {"id": [1], "v": ["new"], MARKER: [1]})
    scene.sign.touch()
    return scene


CHANGED = [
    {("insert", (1, "old")): 1},
    {("update_preimage", (1, "old")): 1, ("update_postimage", (1, "new")): 1},
]


@pytest.mark.spark
@pytest.mark.clause("LZ-267")
@pytest.mark.parametrize(
    "wanted", [Wanted.AUTO, pytest.param(Wanted.MERGE, marks=pytest.mark.long)]
)
def test_a_batch_that_kills_its_worker_stops_its_table_alone_and_is_applied_once_in_the_end(
    scene: Scene, wanted: Wanted
) -> None:
    scene.wanted = wanted
    (error,) = scene.apply().errors
    assert isinstance(error, TableError)
    assert (error.table, error.code) == ("s.deadly", "worker_lost")
    assert "their Python was killed, or crashed" in error.what
    assert "memory is short" in error.hint
    assert scene.rows("deadly") == [(1, "old")]
    for name in ("a", "z"):
        assert scene.rows(name) == [(1, "new")]
        assert scene.feed(name) == CHANGED
    scene.sign.unlink()
    assert not scene.apply().errors
    for name in TABLES:
        assert scene.rows(name) == [(1, "new")]
        assert scene.feed(name) == CHANGED


# -- what a job that ends falls apart into --------------------------------------------------------


class FakeJobs(Jobs):
    """Jobs end with `error` when a table of theirs is deadly."""

    def __init__(self, deadly: Iterable[str], error: Exception = CRASHED) -> None:
        self.deadly, self.error = set(deadly), error
        self.jobs: list[list[str]] = []

    @property
    def slots(self) -> int:
        return 2

    def map(self, work: Callable[[Any], Any], items: Sequence[Any], *_: Any) -> list[Any]:
        self.jobs.append([item.table for item in items])
        if self.deadly.intersection(self.jobs[-1]):
            raise self.error
        return [task.TaskResult(handed=item) for item in items]


def spec(table: str) -> Any:
    return SimpleNamespace(table=table)


@given(
    tables=st.lists(st.sampled_from("abcde"), min_size=1, max_size=12),
    deadly=st.sets(st.sampled_from("abcde")),
)
def test_each_specification_has_its_result_and_only_what_is_deadly_its_error(
    tables: list[str], deadly: set[str]
) -> None:
    jobs, specs = FakeJobs(deadly), [spec(table) for table in tables]
    results = jobs.run(specs)
    for one, result in zip(specs, results, strict=True):
        if one.table in deadly:
            assert isinstance(result.error, WorkerLost)
            assert result.error.table == one.table
        else:
            assert result.handed is one
    if not deadly.intersection(tables):
        assert jobs.jobs == [tables]
    elif len(set(tables)) > 1:
        alone = {table: [tables.count(table) * [table]] for table in tables}
        assert jobs.jobs[0] == tables
        assert sorted(jobs.jobs[1:]) == sorted(job for one in alone.values() for job in one)


def test_a_job_that_was_cancelled_is_not_tried_again() -> None:
    jobs = FakeJobs("a", CANCELLED)
    with pytest.raises(PySparkException):
        jobs.run([spec("a"), spec("b")])
    assert jobs.jobs == [["a", "b"]]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (str(CRASHED), "their Python was killed, or crashed"),
        (
            f"{ABORTED}ExecutorLostFailure (executor 3 exited) Reason: exited with code 137\n\tat",
            "their executors were lost (exit code 137)",
        ),
        (f"{ABORTED}java.lang.OutOfMemoryError: Java heap space", "Java ran out of memory"),
        (f"{ABORTED}ValueError: secret", "they failed"),
        (str(CANCELLED), None),
        ("Job 3 cancelled because SparkContext was shut down", None),
    ],
)
def test_the_death_of_tasks_is_told_in_words_and_without_values(
    said: str, told: str | None
) -> None:
    assert death(PySparkException(said)) == told


def test_a_text_that_kills_who_looks_where_to_cut_it_is_read_by_one_task() -> None:
    class Dying(FakeJobs):
        def map(self, work: Callable[[Any], Any], items: Sequence[Any], *_: Any) -> list[Any]:
            raise self.error

    size = 4 * parting.LEAST
    landed = [task.LandedPath("1.csv", "/1.csv", size, TextFormat())]
    assert parting.groups(Dying("a"), landed, is_load=True) is None
    with pytest.raises(PySparkException):
        parting.groups(Dying("a", CANCELLED), landed, is_load=True)
