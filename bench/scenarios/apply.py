"""Apply of 60,000 changes to a table of 5 million rows: 80 % updates, 18 % inserts, 2 % deletions.

Ours is `apply --once` on a landing zone with one new file: look, plan, find, write, commit, flush
and move the file aside, with the change feed and the progress in the same commit. All sides get
the same file, with one change per key, keys spread over the whole table. Each round begins with a
copy of the prepared table; a small file of other changes is applied first, uncounted, so that
everybody has seen the table. Spark runs already, and is shared by the two that use it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from bench import equality
from bench.peers import delta_merge, delta_rs_merge
from bench.result import Result
from bench.rounds import Plan, medians, say, timed
from bench.spark import session
from bench.worker import Worker
from bench.zone import Zone, changes
from mirrorlake.app.mirror import Mirror
from mirrorlake.config import Project

ROWS = 5_000_000
CHANGES = 60_000
WARMING = 1_000


def run(plan: Plan) -> list[Result]:
    with session() as spark:
        race = _Race(plan, spark)
        race.prepare()
        sides: dict[str, Callable[[int], float]] = {
            "ours": race.ours,
            delta_merge.NAME: race.merge,
            delta_rs_merge.NAME: race.delta_rs,
        }
        with race.peer:
            seconds = medians(plan, sides)
    found = race.fingerprints
    return [
        Result(
            "apply",
            seconds["ours"],
            peer,
            seconds[peer],
            equal=found["ours"] == found[peer],
            more={"rows": plan.sized(ROWS), "changes": plan.sized(CHANGES)},
        )
        for peer in (delta_merge.NAME, delta_rs_merge.NAME)
    ]


class _Race:
    """The sides; what the last round of each left is looked at before it is removed."""

    def __init__(self, plan: Plan, spark: SparkSession) -> None:
        self._plan, self._spark, self._folder = plan, spark, plan.folder
        self._zone = Zone(plan.folder / "prepared")
        self._root, self._rust = plan.folder / "prepared", plan.folder / "rust"
        self._landed = 0
        self.peer = Worker(delta_rs_merge.merge)
        rows = plan.sized(ROWS)
        self._small = changes(plan.folder / "small.parquet", rows, WARMING, salt=1)
        self._large = changes(plan.folder / "large.parquet", rows, plan.sized(CHANGES), salt=2)
        self.fingerprints: dict[str, equality.Fingerprint] = {}

    def prepare(self) -> None:
        """The table as each side has it."""
        say("  preparing the tables")
        files = self._zone.load(self._plan.sized(ROWS))
        self._landed = len(files)
        delta_rs_merge.prepare(files, self._rust)
        with self._mirror(self._root) as mirror:
            mirror.apply_once()

    def ours(self, number: int) -> float:
        root = self._copy(self._root, number)
        zone = Zone(root)
        with self._mirror(root) as mirror:
            zone.land(self._landed + 1, self._small)
            mirror.apply_once()
            zone.land(self._landed + 2, self._large)
            with timed() as watch:
                report = mirror.apply_once()
        if report.errors:
            raise report.errors[0]
        self._look("ours", number, root / "Tables" / zone.name)
        shutil.rmtree(root)
        return watch.seconds

    def merge(self, number: int) -> float:
        table = self._copy(self._root / "Tables" / self._zone.name, number)
        delta_merge.merge(self._spark, table, self._small)
        seconds = delta_merge.merge(self._spark, table, self._large)
        self._look(delta_merge.NAME, number, table)
        shutil.rmtree(table)
        return seconds

    def delta_rs(self, number: int) -> float:
        table = self._copy(self._rust, number)
        self.peer.call(table, self._small)
        seconds: float = self.peer.call(table, self._large)
        self._look(delta_rs_merge.NAME, number, table)
        shutil.rmtree(table)
        return seconds

    def _copy(self, prepared: Path, number: int) -> Path:
        """A copy to work on, in a place that nobody has cached. Data files are never rewritten."""
        target = self._folder / f"{prepared.name}-{number}"
        shutil.copytree(prepared, target, copy_function=_linked)
        return target

    def _mirror(self, root: Path) -> Mirror:
        return Mirror(Project.of_root(root), spark=self._spark)

    def _look(self, side: str, number: int, table: Path) -> None:
        if number == self._plan.rounds:
            self.fingerprints[side] = equality.fingerprint(equality.delta(table))


def _linked(source: str, target: str) -> None:
    if source.endswith(".parquet"):
        Path(target).hardlink_to(source)
    else:
        shutil.copy2(source, target)
