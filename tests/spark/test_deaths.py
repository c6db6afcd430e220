"""A batch whose tasks die with their process stops its own table, and no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from mirrorlake.app.loop.apply_loop import ApplyLoop
from mirrorlake.app.loop.report import ApplyReport
from mirrorlake.apply.runner import TasksDied
from mirrorlake.apply.strategy import OpenBatch
from mirrorlake.apply.task.landed_rows import LandedPath, LandedRows
from mirrorlake.errors import TableError
from mirrorlake.landing.parquet.reader import Rows
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.mirror.strategy import StrategySetting
from mirrorlake.model.clock import WallClock
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.spark.engine import spark_engine
from mirrorlake.spark.errors import death
from mirrorlake.spark.runner import SparkRunner
from mirrorlake.spark.session.spark_session import Spark
from tests.app.zones import MARKER, Zone
from tests.crash.entry import kill_at
from tests.delta.handmade import HandmadeTable

ABORTED = "Job aborted due to stage failure: Task 1 in stage 0.0 failed 4 times, "
CRASHED = PySparkException(f"{ABORTED}Python worker exited unexpectedly (crashed).")
CANCELLED = PySparkException("[SPARK_JOB_CANCELLED] Job 2 cancelled part of cancelled job tags x")

# -- in a session ---------------------------------------------------------------------------------

TABLES = ("a", "deadly", "z")


def deadly_rows(sign: Path) -> Callable[[OpenBatch, int], LandedRows]:
    """A task that reads the table `deadly` kills its process, as long as `sign` is there."""
    truly, path = OpenBatch.rows, str(sign)

    class DeadlyRows(LandedRows):  # of a function, so that tasks get it by value
        def read(self, landed: LandedPath) -> Rows:
            if self.table == "s.deadly" and Path(path).exists():
                kill_at(CrashPoint.BATCH_WRITTEN)(CrashPoint.BATCH_WRITTEN)
            return LandedRows.read(self, landed)

    def rows(batch: OpenBatch, threads: int = 1) -> LandedRows:
        known = truly(batch, threads)
        return DeadlyRows(*(getattr(known, field.name) for field in fields(known)))

    return rows


@dataclass
class Scene:
    """Three tables at file 1, and a change of the only row of each, landed and not applied."""

    zone: Zone
    spark: Spark
    sign: Path
    setting: StrategySetting = StrategySetting.AUTO

    @contextmanager
    def loop(self) -> Iterator[ApplyLoop]:
        engine = spark_engine(self.spark, self.zone.store, strategy=self.setting)
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
        return [dict(HandmadeTable(path).feed(version)) for version in (0, 1)]

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        return HandmadeTable(self.zone.root / "Tables/s" / table).rows()


@pytest.fixture
def scene(tmp_path: Path, spark: Spark, monkeypatch: pytest.MonkeyPatch) -> Scene:
    scene = Scene(Zone(tmp_path / "root", spark), spark, tmp_path / "sign")
    monkeypatch.setattr(OpenBatch, "rows", deadly_rows(scene.sign))
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


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.clause("LZ-267")
@pytest.mark.parametrize(
    "setting", [StrategySetting.AUTO, pytest.param(StrategySetting.MERGE, marks=pytest.mark.long)]
)
def test_a_batch_that_kills_its_worker_stops_its_table_alone_and_is_applied_once_in_the_end(
    scene: Scene, setting: StrategySetting
) -> None:
    scene.setting = setting
    (error,) = scene.apply().errors
    assert isinstance(error, TableError)
    assert (error.table, error.code) == ("s.deadly", "worker_lost")
    assert "the Python process was killed or crashed" in error.what
    assert "too little memory" in error.hint
    assert scene.rows("deadly") == [(1, "old")]
    for name in ("a", "z"):
        assert scene.rows(name) == [(1, "new")]
        assert scene.feed(name) == CHANGED
    scene.sign.unlink()
    assert not scene.apply().errors
    for name in TABLES:
        assert scene.rows(name) == [(1, "new")]
        assert scene.feed(name) == CHANGED


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (str(CRASHED), "the Python process was killed or crashed"),
        (
            f"{ABORTED}ExecutorLostFailure (executor 3 exited) Reason: exited with code 137\n\tat",
            "their executors were lost (exit code 137)",
        ),
        (f"{ABORTED}java.lang.OutOfMemoryError: Java heap space", "Java ran out of memory"),
        (f"{ABORTED}ValueError: secret", "they failed"),
        (f"{ABORTED}org.apache.spark.api.python.PythonException: ValueError: wrong", None),
        (str(CANCELLED), None),
        ("Job 3 cancelled because SparkContext was shut down", None),
    ],
)
def test_the_death_of_tasks_is_explained_without_values(text: str, reason: str | None) -> None:
    assert death(PySparkException(text)) == reason


def test_a_job_that_was_cancelled_is_no_death(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = SparkRunner.__new__(SparkRunner)
    runner._context, runner._tag = MagicContext(), "tag"
    for error, expected in ((CRASHED, TasksDied), (CANCELLED, PySparkException)):
        with pytest.raises(expected), runner.tagged():
            raise error


class MagicContext:
    """Of a session that runs nothing."""

    def addJobTag(self, _tag: str) -> None: ...  # noqa: N802
    def removeJobTag(self, _tag: str) -> None: ...  # noqa: N802
    def setLocalProperty(self, _name: str, _value: str | None) -> None: ...  # noqa: N802
