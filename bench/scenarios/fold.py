"""Fold of 2 million changes of 600,000 keys to the last row of each key, from files to files.

Ours are the waves of a batch that is spread, but for what concerns the table: deal, fold, and write
data files with statistics. The peer is Spark's own way, a window over the same files:
`row_number() over (partition by key order by seq desc) = 1`, written as Parquet. Both use the same
session and Snappy, ours not for columns that it leaves nearly as large; a column says the order.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from bench import equality, payments
from bench.result import Result
from bench.rounds import Plan, medians, say, timed
from bench.spark import session
from bench.zone import history
from mirrorlake.apply.stages.plan import StagePlan
from mirrorlake.apply.task.batch import BatchTask
from mirrorlake.apply.task.landed_rows import LandedPath, LandedRows
from mirrorlake.delta.schema import TableSchema
from mirrorlake.delta.write import compression
from mirrorlake.landing.parquet import reader as parquet
from mirrorlake.model.change import MARKER_COLUMN, Marker
from mirrorlake.model.crash_points import no_crash
from mirrorlake.spark.runner import SparkRunner

CHANGES = 2_000_000
KEYS = 600_000
FILES = 4
PEER = "Spark's window"
TARGET = 3.0


def run(plan: Plan) -> list[Result]:
    changes = plan.sized(CHANGES)
    say("  writing the changes")
    files = history(plan.folder, changes, plan.sized(KEYS), FILES)
    with session() as spark:
        race = _Race(plan, spark, files)
        sides: dict[str, Callable[[int], float]] = {"ours": race.ours, PEER: race.window}
        seconds = medians(plan, sides)
    return [
        Result(
            "fold",
            seconds["ours"],
            PEER,
            seconds[PEER],
            target=TARGET,
            equal=race.fingerprints["ours"] == race.fingerprints[PEER],
            more={"changes": changes, "keys": race.fingerprints["ours"].rows},
        )
    ]


class _Race:
    def __init__(self, plan: Plan, spark: SparkSession, files: list[Path]) -> None:
        self._plan, self._spark, self._files = plan, spark, files
        self._runner = SparkRunner(spark)
        with files[0].open("rb") as handle:
            size = files[0].stat().st_size
            schema = parquet.inspect(handle, size, table=payments.TABLE, file="1").schema
        self._schema = TableSchema(schema, tuple(schema.names), (None,) * len(schema))
        self.fingerprints: dict[str, equality.Fingerprint] = {}

    def ours(self, number: int) -> float:
        target = self._plan.folder / f"ours-{number}"
        target.mkdir()
        landed = tuple(
            LandedPath(file.name, str(file), file.stat().st_size) for file in self._files
        )
        rows = LandedRows(payments.TABLE, self._schema, (payments.KEY,), Marker.UPSERT)
        batch = BatchTask(rows, str(target), landed, truncate=False, files=())
        with timed() as watch:
            StagePlan(batch, self._runner, self._runner.slots, no_crash).run()
        self._look("ours", number, target)
        return watch.seconds

    def window(self, number: int) -> float:
        target = self._plan.folder / f"window-{number}"
        with timed() as watch:
            self._spark.read.parquet(*map(str, self._files)).createOrReplaceTempView("changes")
            last = self._spark.sql(f"""
                select * except (place) from (
                    select * except ({MARKER_COLUMN}),
                        row_number() over (partition by {payments.KEY} order by seq desc) as place
                    from changes
                ) where place = 1
            """)
            last.write.option("compression", compression.CODEC).parquet(str(target))
        self._look(PEER, number, target)
        return watch.seconds

    def _look(self, side: str, number: int, target: Path) -> None:
        if number == self._plan.rounds:
            columns = [*payments.canonical(), "seq"]
            found = equality.fingerprint(equality.parquet(target / "*.parquet"), columns)
            self.fingerprints[side] = found
        shutil.rmtree(target)
