"""What checksums of pages cost: a data file of 625,000 rows written and read with and without them.

The file is written as the mirror writes it, statistics and flush included, and read as it reads a
file whole. The peer is the same with checksums switched off. Seconds are those of the processor, on
one core. Equal: the rows that are read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench import payments
from bench.result import Result
from bench.rounds import Plan, medians
from bench.zone import ROWS_PER_FILE, Zone
from mirrorlake.delta.write import data_files

PEER = "without checksums"
TARGETS = {"checksums-write": 0.9, "checksums-read": 0.75}
TIMES = 3
"""Files in a round: one alone is too short to trust."""


def run(plan: Plan) -> list[Result]:
    (landed,) = Zone(plan.folder / "root").load(plan.sized(ROWS_PER_FILE, 1_000))
    race = _Race(plan.folder, pq.read_table(landed))
    found = {
        "checksums-write": medians(plan, {"ours": race.write, PEER: race.write_without}),
        "checksums-read": medians(plan, {"ours": race.read, PEER: race.read_without}),
    }
    return [
        Result(name, one["ours"], PEER, one[PEER], target=TARGETS[name], equal=race.is_equal)
        for name, one in found.items()
    ]


class _Race:
    """is_equal: every file that was written holds the rows."""

    def __init__(self, folder: Path, rows: pa.Table) -> None:
        self._folder, self._rows = folder, rows
        self.is_equal, self._file = True, folder

    def write(self, _number: int) -> float:
        return _cpu(self._write)

    def write_without(self, _number: int) -> float:
        writer = pq.ParquetWriter
        pq.ParquetWriter = partial(_plain_writer, writer)
        try:
            return _cpu(self._write)
        finally:
            pq.ParquetWriter = writer

    def read(self, _number: int) -> float:
        self._write()  # with checksums, whichever was written last
        self.is_equal &= pq.read_table(self._file).equals(self._rows)
        return _cpu(lambda: pq.read_table(self._file, page_checksum_verification=True))

    def read_without(self, _number: int) -> float:
        self._write()
        return _cpu(lambda: pq.read_table(self._file, page_checksum_verification=False))

    def _write(self) -> None:
        written = data_files.write_data(self._folder, self._rows, [payments.KEY])
        self._file = self._folder / str(written["path"])


def _plain_writer(writer: Any, *arguments: Any, **options: Any) -> Any:
    return writer(*arguments, **options | {"write_page_checksum": False})


def _cpu(work: Callable[[], object]) -> float:
    begun = time.process_time()
    for _time in range(TIMES):
        work()
    return (time.process_time() - begun) / TIMES
