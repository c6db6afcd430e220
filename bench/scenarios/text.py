"""Delimited text of 1 GB, as one file and as eight: the text into typed columns in memory.

Ours are the tasks by which a load is read, on the same Spark and all of its cores: a survey that
finds where the rows of parts begin, then the parts, a piece of rows at a time that is let go.
Memory is the highest of any of their processes, the interpreter and all libraries included.
Spark's own reader has the same schema and a sink that keeps nothing; its options are those that
read quotes as RFC 4180 has them. Equal: what either wrote as Parquet outside the clock.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from bench import equality
from bench.result import Result
from bench.rounds import Plan, medians, say, timed
from bench.spark import session
from mirrorlake.apply import input_splits
from mirrorlake.apply.task.landed_rows import LandedPath
from mirrorlake.landing import text as delimited
from mirrorlake.landing.parquet.reader import Rows
from mirrorlake.landing.text.format import DeclaredColumn, TextFormat
from mirrorlake.model.change import Marker
from mirrorlake.model.table import Column, Schema
from mirrorlake.spark.runner import SparkRunner

ROWS = 14_000_000
"""About 1 GB."""
PART = 500_000
FILES = 8
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
    # Tasks get this module by value: the folder it is in is not on their path.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    one, several = plan.folder / "one", plan.folder / "several"
    rows = plan.sized(ROWS, FILES)
    _write(one, several, rows)
    with session() as spark:
        races = {"text": _Race(plan, spark, one), f"text-{FILES}": _Race(plan, spark, several)}
        return [_result(plan, name, race, rows) for name, race in races.items()]


def _result(plan: Plan, name: str, race: _Race, rows: int) -> Result:
    say(f"  {len(race.files)} of {race.size / 1e6:,.0f} MB together")
    seconds = medians(plan, {"ours": race.ours, PEER: race.spark})
    found = race.fingerprints
    say(f"  at most {race.peak} MiB in one of our processes")
    return Result(
        name,
        seconds["ours"],
        PEER,
        seconds[PEER],
        target=TARGET,
        equal=found["ours"] == found[PEER] and found["ours"].rows == rows,
        more={"rows": rows, "bytes": race.size, "ours_mebibytes": race.peak},
    )


class _Race:
    """Both sides; what the last round of each read is written and looked at after its clock."""

    def __init__(self, plan: Plan, session: SparkSession, folder: Path) -> None:
        self._plan, self._session, self._folder = plan, session, folder
        self._runner = SparkRunner(session)
        self.files = sorted(folder.iterdir())
        self.size = sum(file.stat().st_size for file in self.files)
        self.fingerprints: dict[str, equality.Fingerprint] = {}
        self.peak = 0

    def ours(self, number: int) -> float:
        landed = [
            LandedPath(file.name, str(file), file.stat().st_size, FORM) for file in self.files
        ]
        with timed() as watch:
            groups = input_splits.split_inserts(self._runner, landed, is_load=True)
            assert groups is not None
            peaks = self._runner.run(_read, groups)
        self.peak = max(self.peak, *peaks)
        if number == self._plan.rounds:
            written = self._folder.with_name(f"{self._folder.name}-ours")
            written.mkdir()
            works = [
                _Written(group, str(written / f"{n}.parquet")) for n, group in enumerate(groups)
            ]
            self._runner.run(_write_group, works)
            self._look("ours", written / "*.parquet")
        return watch.seconds

    def spark(self, number: int) -> float:
        with timed() as watch:
            self._frame().write.format("noop").mode("overwrite").save()
        if number == self._plan.rounds:
            written = self._folder.with_name(f"{self._folder.name}-spark")
            self._frame().write.parquet(str(written))
            self._look(PEER, written / "*.parquet")
        return watch.seconds

    def _frame(self) -> DataFrame:
        schema = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
        reader = self._session.read.schema(schema).option("header", True).option("escape", '"')
        reader = reader.option("timestampFormat", "yyyy-MM-dd HH:mm:ss.SSSSSS")
        return reader.csv(str(self._folder))

    def _look(self, side: str, pattern: Path) -> None:
        columns = ["id", "name", "age", "amount", 'epoch_us("at")', "flag"]
        self.fingerprints[side] = equality.fingerprint(equality.parquet(pattern), columns)


@dataclass(frozen=True, slots=True)
class _Written:
    """What a task reads, and where it writes it."""

    group: Sequence[LandedPath]
    path: str


def _blocks(group: Sequence[LandedPath]) -> Iterator[Rows]:
    for file in group:
        with Path(file.location).open("rb") as handle:
            yield from delimited.read_blocks(
                handle,
                file.size,
                SCHEMA,
                Marker.INSERT,
                FORM,
                table="bench",
                file=file.name,
                part=file.part,
            )


def _read(group: Sequence[LandedPath]) -> int:
    """Read in a task. Returns the peak of its process in MiB."""
    for _piece in _blocks(group):
        pass
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) >> 10


def _write_group(work: _Written) -> None:
    with ExitStack() as stack:
        writer: pq.ParquetWriter | None = None
        for block in _blocks(work.group):
            if writer is None:
                writer = stack.enter_context(pq.ParquetWriter(work.path, block.data.schema))
            writer.write_table(block.data)


def _write(one: Path, several: Path, rows: int) -> None:
    """The same rows as one file, and as several."""
    one.mkdir()
    several.mkdir()
    with ExitStack() as stack:
        names = [one / "rows.csv", *(several / f"rows{n}.csv" for n in range(FILES))]
        whole, *some = [stack.enter_context(name.open("wb")) for name in names]
        for file in (whole, *some):
            file.write(",".join(TYPES).encode() + b"\n")
        for part in _parts(rows):
            body = io.BytesIO()
            options = pacsv.WriteOptions(include_header=False, quoting_style="needed")
            pacsv.write_csv(part, body, options)
            whole.write(body.getvalue())
            some[part["id"][0].as_py() * FILES // rows].write(body.getvalue())


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
