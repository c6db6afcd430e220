"""1,000,000 changes to 5 million rows on a standalone cluster: two workers against one.

Every worker has one core, on which all of its threads run, the compilers of its Java included. Both
clusters run on this machine, with a driver process each, and idle while the other works. A round is
that of `apply`: a copy of the prepared table, a mirror, a small file of other changes that is not
counted, then `apply --once`. With one worker the batch is one task, with two it is spread. What a
machine of two cores cannot show is a network, and what it adds is that the driver shares the cores
of two workers, while beside one it has the other core. Java compiles what runs often in the first
batches, so three rounds of each side are not counted; it goes on doing so in later ones, and a
round takes seconds, so five times as many as usual are counted.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.standalone import Standalone

from bench import equality
from bench.catalog import CATALOG
from bench.result import Result
from bench.rounds import WARM, Plan, cached, medians, say, timed
from bench.scenarios.apply import ROWS, WARMING, linked
from bench.spark import session
from bench.worker import Worker
from bench.zone import Zone, changes
from mirrorlake.app.mirror import Mirror
from mirrorlake.cli import logs
from mirrorlake.config import Project
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.spark.settings import SparkSettings

CHANGES = 1_000_000
SIDES = {"ours": 2, "one worker": 1}
"""Workers of each."""
PEER = "one worker"
TARGET = 1.5
EXECUTOR = {"spark.executor.memory": "1g"}

UNCOUNTED = 3
"""Rounds of each side before those that count, the one of all comparisons among them."""


def run(plan: Plan) -> list[Result]:
    plan = replace(plan, rounds=plan.rounds * CATALOG["cluster"].times)
    race = _Race(plan)
    race.prepare()
    with ExitStack() as stack:
        sides: dict[str, Callable[[int], float]] = {}
        for name, workers in SIDES.items():
            folder = plan.folder / name.replace(" ", "-")
            cluster = stack.enter_context(Standalone(folder, workers, memory="1500m", pinned=True))
            driver = stack.enter_context(Worker(_apply))
            sides[name] = partial(race.side, name, driver, cluster.url, cluster.settings())
        for _round in range(UNCOUNTED - 1):
            for side in sides.values():
                side(WARM)
        seconds = medians(plan, sides)
    found = race.fingerprints
    return [
        Result(
            "cluster",
            seconds["ours"],
            PEER,
            seconds[PEER],
            target=TARGET,
            equal=found["ours"] == found[PEER],
            more={"rows": plan.sized(ROWS), "changes": plan.sized(CHANGES), "workers": 2},
        )
    ]


class _Race:
    def __init__(self, plan: Plan) -> None:
        self._plan, self._root = plan, plan.folder / "prepared"
        self._zone = Zone(self._root)
        self._landed = 0
        rows = plan.sized(ROWS)
        self._small = changes(plan.folder / "small.parquet", rows, WARMING, salt=1)
        self._large = changes(plan.folder / "large.parquet", rows, plan.sized(CHANGES), salt=2)
        self.fingerprints: dict[str, equality.Fingerprint] = {}

    def prepare(self) -> None:
        say("  preparing the table")
        self._landed = len(self._zone.load(self._plan.sized(ROWS)))
        with session() as spark, Mirror(Project.of_root(self._root), spark=spark) as mirror:
            mirror.apply_once()

    def side(
        self, name: str, driver: Worker, url: str, conf: Mapping[str, str], number: int
    ) -> float:
        root = self._plan.folder / f"{name.replace(' ', '-')}-{number}"
        shutil.copytree(self._root, root, copy_function=linked)
        for file in (self._small, self._large):
            cached(file)
        files = {self._landed + 1: self._small, self._landed + 2: self._large}
        seconds = float(driver.call(url, conf, root, files))
        if number == self._plan.rounds:
            table = root / "Tables" / self._zone.name
            self.fingerprints[name] = equality.fingerprint(equality.delta(table))
        shutil.rmtree(root)
        return seconds


_spark: Spark | None = None
"""The session of this process, which is the driver of one side."""


def _apply(url: str, conf: Mapping[str, str], root: Path, files: Mapping[int, Path]) -> float:
    """Land files one after another and apply each, on the cluster. Returns the seconds of the
    last."""
    global _spark  # noqa: PLW0603  (it outlives the call, as in a mirror that runs)
    if _spark is None:
        logs.configure(quiet=True)
        _spark = Spark.start(SparkSettings(master=url, conf={**conf, **EXECUTOR}))
    zone, seconds = Zone(root), 0.0
    with Mirror(Project.of_root(root), spark=_spark.session) as mirror:
        for number, file in files.items():
            zone.land(number, file)
            with timed() as watch:
                report = mirror.apply_once()
            if report.errors:
                raise report.errors[0]
            seconds = watch.seconds
    return seconds
