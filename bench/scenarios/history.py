"""A history of type 2: 100,000 changes into 5 million current rows.

Both sides read the changes from the feed of the same table and begin with a copy of the same
history, into which a small version of other changes is carried first, uncounted. Ours is one commit
with its progress in it, durable; the peer's are two commits, of which the first alone is wrong.
Equal: all rows with their intervals.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from bench import equality, payments
from bench.peers import delta_history
from bench.result import Result
from bench.rounds import Plan, medians, say, timed
from bench.scenarios.apply import WARMING, linked
from bench.spark import session
from bench.zone import Zone, changes
from mirrorlake import history
from mirrorlake.app.mirror import Mirror
from mirrorlake.config import Project
from mirrorlake.delta.log.table_log import TableLog

ROWS, CHANGES = 5_000_000, 100_000
TARGET = 4.0
OWN = ("__START_AT", "coalesce(__END_AT, -1)", "__FROM_SNAPSHOT")


def run(plan: Plan) -> list[Result]:
    with session() as spark:
        race = _Race(plan, spark)
        sides: dict[str, Callable[[int], float]] = {
            "ours": race.ours,
            delta_history.NAME: race.merge,
        }
        seconds = medians(plan, sides)
    found = race.fingerprints
    return [
        Result(
            "history",
            seconds["ours"],
            delta_history.NAME,
            seconds[delta_history.NAME],
            target=TARGET,
            equal=found["ours"] == found[delta_history.NAME],
            more={"rows": plan.sized(ROWS), "changes": plan.sized(CHANGES)},
        )
    ]


class _Race:
    """The sides. small, large: the versions of the source with the uncounted and the counted
    changes."""

    def __init__(self, plan: Plan, spark: SparkSession) -> None:
        self._plan, self._spark = plan, spark
        self.fingerprints: dict[str, equality.Fingerprint] = {}
        say("  preparing the tables")
        root, rows = plan.folder / "root", plan.sized(ROWS)
        zone = Zone(root)
        landed = len(zone.load(rows))
        self._source, self._prepared = root / "Tables" / zone.name, plan.folder / "history"
        with Mirror(Project.of_root(root), spark=spark) as mirror:
            mirror.apply_once()
            history(self._source, self._prepared, from_latest=True)
            ends = []
            for salt, count in enumerate((WARMING, plan.sized(CHANGES)), start=1):
                file = changes(plan.folder / f"changes-{salt}.parquet", rows, count, salt)
                zone.land(landed + salt, file)
                mirror.apply_once()
                ends.append(TableLog(self._source).snapshot().version)
        self._begun = TableLog(self._prepared).snapshot().transactions.popitem()[1]
        self._small, self._large = ends

    def ours(self, number: int) -> float:
        target = self._copy(number)
        history(self._source, target, to_version=self._small)
        with timed() as watch:
            history(self._source, target, to_version=self._large)
        return self._look("ours", number, target, watch.seconds)

    def merge(self, number: int) -> float:
        target = self._copy(number)
        extend = delta_history.extend
        extend(self._spark, self._source, target, self._begun + 1, self._small)
        seconds = extend(self._spark, self._source, target, self._small + 1, self._large)
        return self._look(delta_history.NAME, number, target, seconds)

    def _copy(self, number: int) -> Path:
        target = self._plan.folder / f"history-{number}"
        shutil.copytree(self._prepared, target, copy_function=linked)
        return target

    def _look(self, side: str, number: int, table: Path, seconds: float) -> float:
        if number == self._plan.rounds:
            columns = [*payments.canonical(), *OWN]
            self.fingerprints[side] = equality.fingerprint(equality.delta(table), columns)
        shutil.rmtree(table)
        return seconds
