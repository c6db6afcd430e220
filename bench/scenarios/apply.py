"""Apply of changes to a table of 5 million rows: 80 % updates, 18 % inserts, 2 % deletions.

60,000 changes, as a busy table has in a while; 1,000, as most have; and a million at once. 1,000 as
the first batch on the table, of whose keys there are no indexes yet. And 60,000 where the key is a
UUID, or two texts.

Ours is `apply --once` on a landing zone with one new file: look, plan, find, write, commit, flush
and move the file aside, with the change feed and the progress in the same commit. All sides get
the same file, with one change per key, keys spread over the whole table. Each round begins with a
copy of the prepared table; but for the first batch, a small file of other changes is applied first,
uncounted, so that everybody has seen the table. Spark runs already, and is shared by those that use
it. Equal: the rows, and what the change feed says of the last file.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from bench import equality
from bench.catalog import DELTA_RS, MERGE, MERGE_OWN_LAYOUT
from bench.peers import delta_merge, delta_rs_merge
from bench.result import Result
from bench.rounds import Plan, cached, medians, say, timed
from bench.spark import session
from bench.worker import Worker
from bench.zone import NUMBER, TEXTS, UUID, Key, Zone, changes
from mirrorlake.app.mirror import Mirror
from mirrorlake.config import Project

ROWS = 5_000_000
WARMING = 1_000


@dataclass(frozen=True, slots=True)
class Case:
    """A batch, and how many times as fast as each peer it should be, None for no target. is_first:
    nobody has seen the table before."""

    name: str
    changes: int
    targets: Mapping[str, float | None]
    is_first: bool = False


OTHERS = {MERGE_OWN_LAYOUT: None, DELTA_RS: None}
CASES: Sequence[tuple[Key, Sequence[Case]]] = [
    (
        NUMBER,
        [
            Case("apply", 60_000, {MERGE: 12.0, MERGE_OWN_LAYOUT: 12.0, DELTA_RS: 3.5}),
            Case("apply-1k", 1_000, {MERGE: 15.0, MERGE_OWN_LAYOUT: 15.0, DELTA_RS: 5.0}),
            Case("apply-1m", 1_000_000, {MERGE: 5.0, MERGE_OWN_LAYOUT: 5.0, DELTA_RS: 1.5}),
            Case("apply-first", 1_000, OTHERS, is_first=True),
        ],
    ),
    (UUID, [Case("apply-uuid", 60_000, OTHERS)]),
    (TEXTS, [Case("apply-texts", 60_000, OTHERS)]),
]


def run(plan: Plan) -> list[Result]:
    found = []
    with session() as spark:
        for key, cases in CASES:
            prepared = _Prepared(plan, key)
            prepared.make(spark)
            for case in cases:
                found += _raced(plan, spark, prepared, case)
            shutil.rmtree(prepared.folder)
    return found


def _raced(plan: Plan, spark: SparkSession, prepared: _Prepared, case: Case) -> list[Result]:
    say(f"  {case.name}: {plan.sized(case.changes):,} changes")
    race = _Race(plan, spark, prepared, case)
    peers: dict[str, Callable[[int], float]] = {
        MERGE: partial(race.merge, MERGE, prepared.root / "Tables" / prepared.zone.name),
        MERGE_OWN_LAYOUT: partial(race.merge, MERGE_OWN_LAYOUT, prepared.spark),
        DELTA_RS: race.delta_rs,
    }
    with race.peer:
        seconds = medians(plan, {"ours": race.ours} | {peer: peers[peer] for peer in case.targets})
    found = race.fingerprints
    return [
        Result(
            case.name,
            seconds["ours"],
            peer,
            seconds[peer],
            target=target,
            equal=found["ours"] == found[peer],
            more={"rows": plan.sized(ROWS), "changes": plan.sized(case.changes)},
        )
        for peer, target in case.targets.items()
    ]


class _Prepared:
    """The table as each side has it before its changes. spark: as Spark writes it."""

    def __init__(self, plan: Plan, key: Key) -> None:
        self.rows, self.key = plan.sized(ROWS), key
        self.folder = plan.folder / "-".join(key.columns)
        self.folder.mkdir()
        self.root, self.spark, self.rust = (
            self.folder / name for name in ("prepared", "spark", "rust")
        )
        self.zone = Zone(self.root, key)
        self.landed = 0
        self.small = changes(self.folder / "small.parquet", self.rows, WARMING, salt=1, key=key)

    def make(self, spark: SparkSession) -> None:
        say(f"  preparing the tables with the key {', '.join(self.key.columns)}")
        files = self.zone.load(self.rows)
        self.landed = len(files)
        delta_merge.prepare(spark, files, self.spark)
        delta_rs_merge.prepare(files, self.rust)
        with _mirror(self.root, spark) as mirror:
            mirror.apply_once()


class _Race:
    """The sides; what the last round of each left is looked at before it is removed."""

    def __init__(self, plan: Plan, spark: SparkSession, prepared: _Prepared, case: Case) -> None:
        self._plan, self._spark, self._prepared = plan, spark, prepared
        self.peer = Worker(delta_rs_merge.merge)
        self._key = key = prepared.key
        large = prepared.folder / f"{case.name}.parquet"
        large = changes(large, prepared.rows, plan.sized(case.changes), salt=2, key=key)
        self._files = [large] if case.is_first else [prepared.small, large]
        self.fingerprints: dict[str, tuple[equality.Fingerprint, equality.Fingerprint]] = {}

    def ours(self, number: int) -> float:
        root, seconds = self._copy(self._prepared.root, number), 0.0
        zone = Zone(root)
        with _mirror(root, self._spark) as mirror:
            for landed, file in enumerate(self._files, start=self._prepared.landed + 1):
                zone.land(landed, file)
                with timed() as watch:
                    report = mirror.apply_once()
                if report.errors:
                    raise report.errors[0]
                seconds = watch.seconds  # of the last, which counts
        self._look("ours", number, root / "Tables" / zone.name)
        shutil.rmtree(root)
        return seconds

    def merge(self, peer: str, prepared: Path, number: int) -> float:
        table, seconds = self._copy(prepared, number), 0.0
        for file in self._files:
            seconds = delta_merge.merge(self._spark, table, file, self._key)
        self._look(peer, number, table)
        shutil.rmtree(table)
        return seconds

    def delta_rs(self, number: int) -> float:
        table, seconds = self._copy(self._prepared.rust, number), 0.0
        for file in self._files:
            seconds = self.peer.call(table, file, self._key.names, list(self._key.columns))
        self._look(DELTA_RS, number, table)
        shutil.rmtree(table)
        return seconds

    def _copy(self, prepared: Path, number: int) -> Path:
        """A copy to work on, in a place that nobody has cached. Data files are never rewritten."""
        target = self._plan.folder / f"{prepared.name}-{number}"
        shutil.copytree(prepared, target, copy_function=linked)
        for file in self._files:
            cached(file)
        return target

    def _look(self, side: str, number: int, table: Path) -> None:
        if number == self._plan.rounds:
            columns = self._key.canonical()
            rows = equality.fingerprint(equality.delta(table), columns)
            self.fingerprints[side] = rows, equality.newest_changes(table, columns)


def _mirror(root: Path, spark: SparkSession) -> Mirror:
    return Mirror(Project.of_root(root), spark=spark)


def linked(source: str, target: str) -> None:
    """Copy a file; one that is never written again as another name of itself. It is cached."""
    cached(source)
    if source.endswith(".parquet"):
        Path(target).hardlink_to(source)
    else:
        shutil.copy2(source, target)
