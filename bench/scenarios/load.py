"""Initial load of 5 million rows, from PostgreSQL to a Delta table.

Ours is the product's whole way: slot, exported snapshot, landing zone, table with change feed and
deletion vectors. Spark runs before the clock starts. dlt writes a plain Delta table; COPY writes
text. All of them begin with nothing, and their output is removed after each round.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from bench import equality, payments
from bench import server as servers
from bench.peers import copy_file, dlt_load
from bench.result import Result
from bench.rounds import Plan, medians, timed
from bench.server import Server
from bench.spark import session
from bench.worker import Worker
from mirrorlake.app.mirror import Mirror

ROWS = 5_000_000
TARGETS = {dlt_load.NAME: 2.0, dlt_load.IN_PARTS: 1.2, copy_file.NAME: None}


def run(plan: Plan) -> list[Result]:
    with servers.started() as (server, sql), session() as spark:
        payments.fill(sql, plan.sized(ROWS))
        race = _Race(plan, server, spark)
        sides: dict[str, Callable[[int], float]] = {
            "ours": race.ours,
            dlt_load.NAME: partial(race.dlt, dlt_load.NAME, 1),
            dlt_load.IN_PARTS: partial(race.dlt, dlt_load.IN_PARTS, os.cpu_count() or 1),
            copy_file.NAME: race.copy,
        }
        with race.peer:
            seconds = medians(plan, sides)
        found = race.fingerprints
    return [
        Result(
            "load",
            seconds["ours"],
            peer,
            seconds[peer],
            target=target,
            equal=found["ours"] == found[peer],
            more={"rows": found["ours"].rows},
        )
        for peer, target in TARGETS.items()
    ]


class _Race:
    """The sides; what the last round of each wrote is looked at before it is removed."""

    def __init__(self, plan: Plan, server: Server, spark: SparkSession) -> None:
        self._plan, self._server, self._spark = plan, server, spark
        self.peer = Worker(dlt_load.load)
        self.fingerprints: dict[str, equality.Fingerprint] = {}

    def ours(self, number: int) -> float:
        root = self._folder("ours", number)
        project = servers.project(self._server, root, f"load_{number}", payments.TABLE)
        with Mirror(project, spark=self._spark) as mirror:
            with timed() as watch:
                mirror.capture_once()
                mirror.apply_once()
            mirror.detach()
        table = root / "Tables" / Path(*payments.TABLE.split("."))
        self._look("ours", number, equality.delta(table))
        shutil.rmtree(root)
        return watch.seconds

    def dlt(self, peer: str, parts: int, number: int) -> float:
        folder = self._folder("dlt", number)
        seconds, table = self.peer.call(self._server.url, folder, parts)
        self._look(peer, number, equality.delta(table))
        shutil.rmtree(folder)
        return float(seconds)

    def copy(self, number: int) -> float:
        path = self._plan.folder / f"copied-{number}.csv"
        seconds = copy_file.copy(self._server.url, path)
        self._look(copy_file.NAME, number, equality.csv(path))
        path.unlink()
        return seconds

    def _folder(self, side: str, number: int) -> Path:
        return self._plan.folder / f"{side}-{number}"

    def _look(self, side: str, number: int, source: equality.Source) -> None:
        if number == self._plan.rounds:
            self.fingerprints[side] = equality.fingerprint(source)
