"""Landed Parquet of 5 million rows to a Delta table, against Spark reading and writing Parquet.

Ours is `apply --once` on a landing zone that holds a load in files of 625,000 rows: a table with
statistics, change feed and deletion vectors. Spark writes the same rows as plain Parquet, by
`spark.read.parquet(...).write.parquet(...)`, without a table. Spark runs already.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from bench import equality
from bench.result import Result
from bench.rounds import Plan, medians, timed
from bench.spark import session
from bench.zone import Zone
from mirrorlake.app.mirror import Mirror
from mirrorlake.config import Project

ROWS = 5_000_000
TARGET = 1.0
PEER = "Spark, Parquet to Parquet"


def run(plan: Plan) -> list[Result]:
    with session() as spark:
        race = _Race(plan, spark)
        sides: dict[str, Callable[[int], float]] = {"ours": race.ours, PEER: race.spark}
        seconds = medians(plan, sides)
    found = race.fingerprints
    return [
        Result(
            "landed",
            seconds["ours"],
            PEER,
            seconds[PEER],
            target=TARGET,
            equal=found["ours"] == found[PEER],
            more={"rows": found["ours"].rows},
        )
    ]


class _Race:
    def __init__(self, plan: Plan, spark: SparkSession) -> None:
        self._plan, self._spark = plan, spark
        self._files = Zone(plan.folder / "prepared").load(plan.sized(ROWS))
        self.fingerprints: dict[str, equality.Fingerprint] = {}

    def ours(self, number: int) -> float:
        root = self._plan.folder / f"ours-{number}"
        shutil.copytree(self._plan.folder / "prepared", root)
        with Mirror(Project.of_root(root), spark=self._spark) as mirror, timed() as watch:
            report = mirror.apply_once()
        if report.errors:
            raise report.errors[0]
        self._look("ours", number, equality.delta(root / "Tables" / Zone(root).name))
        shutil.rmtree(root)
        return watch.seconds

    def spark(self, number: int) -> float:
        target = self._plan.folder / f"spark-{number}"
        with timed() as watch:
            rows = self._spark.read.parquet(*(str(file) for file in self._files))
            rows.write.parquet(str(target))
        self._look(PEER, number, equality.parquet(Path(target, "*.parquet")))
        shutil.rmtree(target)
        return watch.seconds

    def _look(self, side: str, number: int, source: equality.Source) -> None:
        if number == self._plan.rounds:
            self.fingerprints[side] = equality.fingerprint(source)
