"""Delimited text of 1 GB: the text into typed columns in memory.

Ours is the reader of the landing zone on as many threads as the machine has cores, in this process.
Spark's own reader has the same schema, all cores and a sink that keeps nothing; its options are
those that read quotes as RFC 4180 has them. Equal: what either wrote as Parquet outside the clock.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from bench import equality
from bench.result import Result
from bench.rounds import Plan, medians, say, timed
from bench.spark import session
from mirrorlake.landing import delimited
from mirrorlake.landing.textformat import DeclaredColumn, TextFormat
from mirrorlake.model.change import Marker
from mirrorlake.model.table import Column, Schema

ROWS = 14_000_000
"""About 1 GB."""
PART = 500_000
TARGET = 0.5
PEER = "Spark's typed CSV reader"

COLUMNS = (
    DeclaredColumn("id", "Int64"),
    DeclaredColumn("name", "String"),
    DeclaredColumn("age", "Int32"),
    DeclaredColumn("amount", "Double"),
    DeclaredColumn("at", "DateTime"),
    DeclaredColumn("flag", "Boolean"),
)
TYPES = {
    "id": "bigint",
    "name": "string",
    "age": "int",
    "amount": "double",
    "at": "timestamp",
    "flag": "boolean",
}
FORM = TextFormat(columns=COLUMNS, row_separator="\n", escape="")
SCHEMA = Schema.of([Column(column.name, column.data_type) for column in COLUMNS])


def run(plan: Plan) -> list[Result]:
    path = plan.folder / "rows.csv"
    rows = plan.sized(ROWS)
    _write(path, rows)
    say(f"  {path.stat().st_size / 1e6:,.0f} MB")
    with session() as spark:
        race = _Race(plan, spark, path)
        seconds = medians(plan, {"ours": race.ours, PEER: race.spark})
        found = race.fingerprints
    return [
        Result(
            "text",
            seconds["ours"],
            PEER,
            seconds[PEER],
            target=TARGET,
            equal=found["ours"] == found[PEER] and found["ours"].rows == rows,
            more={"rows": rows, "bytes": path.stat().st_size},
        )
    ]


class _Race:
    """Both sides; what the last round of each read is written and looked at after its clock."""

    def __init__(self, plan: Plan, session: SparkSession, path: Path) -> None:
        self._plan, self._session, self._path = plan, session, path
        self.fingerprints: dict[str, equality.Fingerprint] = {}

    def ours(self, number: int) -> float:
        size = self._path.stat().st_size
        with timed() as watch, self._path.open("rb") as handle:
            rows = delimited.read(
                handle,
                size,
                SCHEMA,
                Marker.INSERT,
                FORM,
                table="bench",
                file=self._path.name,
                threads=os.cpu_count() or 1,
            )
        if number == self._plan.rounds:
            written = self._plan.folder / "ours.parquet"
            pq.write_table(rows.data, written)
            self._look("ours", written)
        return watch.seconds

    def spark(self, number: int) -> float:
        with timed() as watch:
            self._frame().write.format("noop").mode("overwrite").save()
        if number == self._plan.rounds:
            written = self._plan.folder / "spark"
            self._frame().write.parquet(str(written))
            self._look(PEER, written / "*.parquet")
        return watch.seconds

    def _frame(self) -> DataFrame:
        schema = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
        reader = self._session.read.schema(schema).option("header", True).option("escape", '"')
        return reader.option("timestampFormat", "yyyy-MM-dd HH:mm:ss.SSSSSS").csv(str(self._path))

    def _look(self, side: str, pattern: Path) -> None:
        columns = ["id", "name", "age", "amount", 'epoch_us("at")', "flag"]
        self.fingerprints[side] = equality.fingerprint(equality.parquet(pattern), columns)


def _write(path: Path, rows: int) -> None:
    with path.open("wb") as file:
        file.write(",".join(TYPES).encode() + b"\n")
        for part in _parts(rows):
            body = io.BytesIO()
            options = pacsv.WriteOptions(include_header=False, quoting_style="needed")
            pacsv.write_csv(part, body, options)
            file.write(body.getvalue())


def _parts(rows: int) -> Iterator[pa.Table]:
    """The rows, the same in every run; one name in ten needs quotes."""
    random = np.random.default_rng(1)
    for first in range(0, rows, PART):
        number = np.arange(first, min(first + PART, rows))
        names: Sequence[str] = [f"name, {n}" if n % 10 == 0 else f"name {n}" for n in number]
        yield pa.table(
            {
                "id": number,
                "name": names,
                "age": random.integers(0, 100, len(number)),
                "amount": np.round(random.random(len(number)) * 1000, 4),
                "at": pa.array(1_700_000_000_000_000 + number * 1_000_003, pa.timestamp("us")),
                "flag": pa.array(random.integers(0, 2, len(number)).astype(bool)),
            }
        )
