"""What checksums of pages cost: a data file of 625,000 rows written and read with and without them.

The file is written as the mirror writes it, statistics and flush included. It is read whole by
Arrow, which verifies what it reads; and as a table by DuckDB, which does not, so that its pages are
verified in a pass before: all columns in a search of keys, two columns in a query of `mirrorlake
sql`. No process has verified the file before. The peer is the same with checksums switched off.
Seconds are those of the processor. Equal: the rows that are read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import convert_to_deltalake

from bench import payments
from bench.result import Result
from bench.rounds import Plan, medians
from bench.zone import ROWS_PER_FILE, Zone
from mirrorlake.delta import sql
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.delta.lookup import key_join, page_checksums
from mirrorlake.delta.schema import parse
from mirrorlake.delta.write import data_files

PEER = "without checksums"
TARGETS = {"checksums-write": 0.9, "checksums-read": 0.75}
TIMES = 3
"""Files in a round: one alone is too short to trust."""
KEYS = 1_000
QUERY = f"select status, sum(amount) from {payments.TABLE} group by all order by all"


def run(plan: Plan) -> list[Result]:
    (landed,) = Zone(plan.folder / "root").load(plan.sized(ROWS_PER_FILE, 1_000))
    rows = pq.read_table(landed)
    race, table = _Race(plan.folder, rows), _Table(plan.folder / "tables", rows)
    found = {
        "checksums-write": medians(plan, {"ours": race.write, PEER: race.write_without}),
        "checksums-read": medians(plan, {"ours": race.read, PEER: race.read_without}),
        "checksums-search": medians(plan, {"ours": table.search, PEER: table.search_without}),
        "checksums-sql": medians(plan, {"ours": table.query, PEER: table.query_without}),
    }
    is_equal = race.is_equal and table.is_equal
    return [
        Result(name, one["ours"], PEER, one[PEER], target=TARGETS.get(name), equal=is_equal)
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


class _Table:
    """The same rows as the one file of a Delta table. is_equal: both sides have found the same."""

    def __init__(self, root: Path, rows: pa.Table) -> None:
        folder = root / "Tables" / payments.TABLE.replace(".", "/")
        folder.mkdir(parents=True)
        written = data_files.write_data(folder, rows, [payments.KEY])
        convert_to_deltalake(str(folder))
        self._root, self._paths = root, [str(folder / str(written["path"]))]
        self._schema = parse(TableLog(folder).snapshot().metadata)
        every = max(rows.num_rows // KEYS, 1)
        self._keys = rows.select([payments.KEY]).take(pa.array(range(0, rows.num_rows, every)))
        self._found: dict[str, pa.Table] = {}
        self.is_equal = True

    def search(self, _number: int) -> float:
        return _cpu(self._search)

    def search_without(self, _number: int) -> float:
        verify = page_checksums.verify
        page_checksums.verify = lambda *_arguments: None
        try:
            return _cpu(self._search)
        finally:
            page_checksums.verify = verify

    def query(self, _number: int) -> float:
        return _cpu(self._query)

    def query_without(self, _number: int) -> float:
        return _cpu(partial(self._query, verify=False))

    def _search(self) -> None:
        page_checksums._cache.clear()
        found = key_join.rows(self._paths, self._schema, self._keys, 1)
        self._compare("search", found.sort_by(key_join.CODE))

    def _query(self, *, verify: bool = True) -> None:
        page_checksums._cache.clear()
        found = sql.run(self._root, QUERY, verify=verify)
        assert found is not None
        self._compare("query", found.to_arrow_table())

    def _compare(self, what: str, found: pa.Table) -> None:
        self.is_equal &= found.num_rows > 0 and self._found.setdefault(what, found).equals(found)


def _plain_writer(writer: Any, *arguments: Any, **options: Any) -> Any:
    return writer(*arguments, **options | {"write_page_checksum": False})


def _cpu(work: Callable[[], object]) -> float:
    begun = time.process_time()
    for _time in range(TIMES):
        work()
    return (time.process_time() - begun) / TIMES
