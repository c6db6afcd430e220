"""One cycle over fifty tables with 200 changes each: 80 % updates, 18 % inserts, 2 % deletions.

Ours is `apply --once` on a landing zone with one new file in each folder: look, plan, one job for
all tables, a commit for each, flush and move aside. The peers run four statements at once: Spark
each in a session of its own, delta-rs in threads of one process. Each round begins with copies of
the prepared tables, and other changes are applied first, uncounted, so that everybody has seen the
tables.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from bench import equality
from bench.catalog import DELTA_RS, MERGE
from bench.many_tables import COLUMNS, ManyTables, Table, write
from bench.peers import delta_merge, delta_rs_merge
from bench.result import Result
from bench.rounds import Plan, cached, medians, say, timed
from bench.scenarios.apply import linked
from bench.spark import session
from bench.worker import Worker
from mirrorlake.app.mirror import Mirror
from mirrorlake.config import Project
from mirrorlake.model.change import Marker
from mirrorlake.model.landed import FileName

TABLES, ROWS, CHANGES = 50, 20_000, 200
TARGETS = {f"{MERGE}, 4 threads": 8.0, f"{DELTA_RS}, 4 threads": None}
BY_SPARK, BY_DELTA_RS = TARGETS


def run(plan: Plan) -> list[Result]:
    with session() as spark:
        race = _Race(plan, spark)
        sides: dict[str, Callable[[int], float]] = {
            "ours": race.ours,
            BY_SPARK: race.merge,
            BY_DELTA_RS: race.delta_rs,
        }
        with race.peer:
            seconds = medians(plan, sides)
    found = race.fingerprints
    return [
        Result(
            "cycle",
            seconds["ours"],
            peer,
            seconds[peer],
            target=target,
            equal=found["ours"] == found[peer],
            more={"tables": len(race.many.tables), "changes_per_table": CHANGES},
        )
        for peer, target in TARGETS.items()
    ]


class _Race:
    """Both sides; what the last round of each left is looked at before it is removed."""

    def __init__(self, plan: Plan, spark: SparkSession) -> None:
        self._plan, self._spark = plan, spark
        self.many = ManyTables(plan.folder / "prepared", plan.sized(TABLES), ROWS)
        say("  preparing the tables")
        self.many.prepare(spark)
        random = np.random.default_rng(1)
        folder = plan.folder / "changes"
        folder.mkdir()
        self._files = [
            {t.name: _changes(folder / f"{t.name}-{n}", random, n) for t in self.many.tables}
            for n in (1, 2)
        ]
        self.fingerprints: dict[str, list[equality.Fingerprint]] = {}
        self.peer = Worker(delta_rs_merge.merge_many)
        self._rust = plan.folder / "rust"
        for table in self.many.tables:
            rows = sorted(self.many.folder(table).glob("*.parquet"))
            delta_rs_merge.prepare(rows, self._rust / self.many.path(table).name)

    def ours(self, number: int) -> float:
        root, seconds = self._copy("ours", number), 0.0
        with Mirror(Project.of_root(root), spark=self._spark) as mirror:
            for landed, files in enumerate(self._files, start=2):
                for table in self.many.tables:
                    name = root / self.many.folder(table).relative_to(self.many.root)
                    (name / str(FileName(landed))).hardlink_to(files[table.name])
                with timed() as watch:
                    report = mirror.apply_once()
                if report.errors:
                    raise report.errors[0]
                seconds = watch.seconds  # of the last, which counts
        self._look("ours", number, root, lambda table: self._path(root, table))
        return seconds

    def merge(self, number: int) -> float:
        root, seconds = self._copy("merge", number), 0.0
        for files in self._files:
            work = [(self._path(root, table), files[table.name]) for table in self.many.tables]
            seconds = delta_merge.merge_many(self._spark, work, COLUMNS)
        self._look(BY_SPARK, number, root, lambda table: self._path(root, table))
        return seconds

    def delta_rs(self, number: int) -> float:
        root, seconds = self._copy("rust", number, self._rust), 0.0
        for files in self._files:
            work = [(root / table.name, files[table.name]) for table in self.many.tables]
            seconds = self.peer.call(work, COLUMNS, COLUMNS[:1])
        self._look(BY_DELTA_RS, number, root, lambda table: root / table.name)
        return seconds

    def _copy(self, side: str, number: int, prepared: Path | None = None) -> Path:
        """A copy to work on, in a place that nobody has cached. Data files are never rewritten."""
        target = self._plan.folder / f"{side}-{number}"
        shutil.copytree(prepared or self.many.root, target, copy_function=linked)
        for files in self._files:
            for file in files.values():
                cached(file)
        return target

    def _path(self, root: Path, table: Table) -> Path:
        return root / self.many.path(table).relative_to(self.many.root)

    def _look(self, side: str, number: int, root: Path, path: Callable[[Table], Path]) -> None:
        if number == self._plan.rounds:
            self.fingerprints[side] = [
                equality.fingerprint(equality.delta(path(table)), COLUMNS)
                for table in self.many.tables
            ]
        shutil.rmtree(root)


def _changes(path: Path, random: np.random.Generator, stamp: int) -> Path:
    """One change per key; the inserts of each file have keys of their own."""
    deletions, inserts = CHANGES * 2 // 100, CHANGES * 18 // 100
    touched = random.choice(ROWS, CHANGES - inserts, replace=False)
    ids = np.concatenate([touched, ROWS + stamp * CHANGES + np.arange(inserts)])
    markers = np.full(CHANGES, int(Marker.UPDATE))
    markers[:deletions], markers[-inserts:] = int(Marker.DELETE), int(Marker.INSERT)
    return write(path.with_suffix(".parquet"), ids, stamp, markers)
