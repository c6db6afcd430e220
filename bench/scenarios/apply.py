"""Apply of changes to a table of 5 million rows: 80 % updates, 18 % inserts, 2 % deletions.

60,000 changes, as a busy table has in a while; 1,000, as most have; and a million at once.

Ours is `apply --once` on a landing zone with one new file: look, plan, find, write, commit, flush
and move the file aside, with the change feed and the progress in the same commit. All sides get
the same file, with one change per key, keys spread over the whole table. Each round begins with a
copy of the prepared table; a small file of other changes is applied first, uncounted, so that
everybody has seen the table. Spark runs already, and is shared by the two that use it. Equal: the
rows, and what the change feed says of the last file.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
WARMING = 1_000


@dataclass(frozen=True, slots=True)
class Size:
    """A batch, and how many times as fast as each peer it should be."""

    name: str
    changes: int
    targets: Mapping[str, float]


SIZES = (
    Size("apply", 60_000, {delta_merge.NAME: 8.0, delta_rs_merge.NAME: 2.3}),
    Size("apply-1k", 1_000, {delta_merge.NAME: 10.0, delta_rs_merge.NAME: 3.0}),
    Size("apply-1m", 1_000_000, {delta_merge.NAME: 5.0, delta_rs_merge.NAME: 1.2}),
)


def run(plan: Plan) -> list[Result]:
    with session() as spark:
        prepared = _Prepared(plan)
        prepared.make(spark)
        return [result for size in SIZES for result in _raced(plan, spark, prepared, size)]


def _raced(plan: Plan, spark: SparkSession, prepared: _Prepared, size: Size) -> list[Result]:
    say(f"  {plan.sized(size.changes):,} changes")
    race = _Race(plan, spark, prepared, plan.sized(size.changes))
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
            size.name,
            seconds["ours"],
            peer,
            seconds[peer],
            target=target,
            equal=found["ours"] == found[peer],
            more={"rows": plan.sized(ROWS), "changes": plan.sized(size.changes)},
        )
        for peer, target in size.targets.items()
    ]


class _Prepared:
    """The table as each side has it before its changes."""

    def __init__(self, plan: Plan) -> None:
        self.rows = plan.sized(ROWS)
        self.root, self.rust = plan.folder / "prepared", plan.folder / "rust"
        self.zone = Zone(self.root)
        self.landed = 0
        self.small = changes(plan.folder / "small.parquet", self.rows, WARMING, salt=1)

    def make(self, spark: SparkSession) -> None:
        say("  preparing the tables")
        files = self.zone.load(self.rows)
        self.landed = len(files)
        delta_rs_merge.prepare(files, self.rust)
        with _mirror(self.root, spark) as mirror:
            mirror.apply_once()


class _Race:
    """The sides; what the last round of each left is looked at before it is removed."""

    def __init__(self, plan: Plan, spark: SparkSession, prepared: _Prepared, count: int) -> None:
        self._plan, self._spark, self._prepared = plan, spark, prepared
        self.peer = Worker(delta_rs_merge.merge)
        self._small = prepared.small
        path = plan.folder / f"large-{count}.parquet"
        self._large = changes(path, prepared.rows, count, salt=2)
        self.fingerprints: dict[str, tuple[equality.Fingerprint, equality.Fingerprint]] = {}

    def ours(self, number: int) -> float:
        root = self._copy(self._prepared.root, number)
        zone = Zone(root)
        with _mirror(root, self._spark) as mirror:
            zone.land(self._prepared.landed + 1, self._small)
            mirror.apply_once()
            zone.land(self._prepared.landed + 2, self._large)
            with timed() as watch:
                report = mirror.apply_once()
        if report.errors:
            raise report.errors[0]
        self._look("ours", number, root / "Tables" / zone.name)
        shutil.rmtree(root)
        return watch.seconds

    def merge(self, number: int) -> float:
        table = self._copy(self._prepared.root / "Tables" / self._prepared.zone.name, number)
        delta_merge.merge(self._spark, table, self._small)
        seconds = delta_merge.merge(self._spark, table, self._large)
        self._look(delta_merge.NAME, number, table)
        shutil.rmtree(table)
        return seconds

    def delta_rs(self, number: int) -> float:
        table = self._copy(self._prepared.rust, number)
        self.peer.call(table, self._small)
        seconds: float = self.peer.call(table, self._large)
        self._look(delta_rs_merge.NAME, number, table)
        shutil.rmtree(table)
        return seconds

    def _copy(self, prepared: Path, number: int) -> Path:
        """A copy to work on, in a place that nobody has cached. Data files are never rewritten."""
        target = self._plan.folder / f"{prepared.name}-{number}"
        shutil.copytree(prepared, target, copy_function=linked)
        return target

    def _look(self, side: str, number: int, table: Path) -> None:
        if number == self._plan.rounds:
            rows = equality.fingerprint(equality.delta(table))
            self.fingerprints[side] = rows, equality.newest_changes(table)


def _mirror(root: Path, spark: SparkSession) -> Mirror:
    return Mirror(Project.of_root(root), spark=spark)


def linked(source: str, target: str) -> None:
    """Copy a file; one that is never written again as another name of itself."""
    if source.endswith(".parquet"):
        Path(target).hardlink_to(source)
    else:
        shutil.copy2(source, target)
