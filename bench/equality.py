"""Whether two sides hold the same rows, and tell of the same changes, by readers that belong to
neither of them, or to a peer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from bench import payments

Source: TypeAlias = str | pa.RecordBatchReader
"""Rows: a table expression of DuckDB, or what `delta` returns, which can be read once."""

VERSIONS = 3
"""After the last changes: files are joined in versions of their own, which tell of none."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Rows, and the sum of a 64-bit hash of each whole row: the order does not matter."""

    rows: int
    total: int


def fingerprint(source: Source, columns: Sequence[str] = ()) -> Fingerprint:
    """Of the rows of a source. columns: the expressions to hash."""
    columns = columns or payments.canonical()
    if isinstance(source, str):
        return _fingerprint(_connected(), source, columns)
    return of_rows(source, columns)


def newest_changes(table: Path, columns: Sequence[str]) -> Fingerprint:
    """Of the change feed of the newest version of a Delta table that has one, with the kind of each
    change: by delta-rs. columns: the expressions to hash."""
    source = DeltaTable(table)
    first = max(source.version() - VERSIONS, 0)
    connection = _connected()
    connection.register("told", pa.table(source.load_cdf(starting_version=first).read_all()))
    connection.execute("create table feed as select * from told")  # Arrow cannot filter its texts
    newest = "(select * from feed where _commit_version = (select max(_commit_version) from feed))"
    return _fingerprint(connection, newest, [*columns, "_change_type"])


def of_rows(rows: pa.Table | pa.RecordBatchReader, columns: Sequence[str]) -> Fingerprint:
    """Of rows of Arrow. columns: the expressions to hash."""
    connection = _connected()
    connection.register("given", rows)
    return _fingerprint(connection, "given", columns)


def _connected() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("set TimeZone = 'UTC'")
    connection.execute("set enable_progress_bar = false")
    return connection


def _fingerprint(
    connection: duckdb.DuckDBPyConnection, source: str, columns: Sequence[str]
) -> Fingerprint:
    chosen = ", ".join(columns)
    ((rows, total),) = connection.execute(
        f"select count(*), coalesce(sum(hash({chosen})::hugeint), 0) from {source}"
    ).fetchall()
    return Fingerprint(int(rows), int(total))


def rows(source: Source) -> int:
    """How many rows a source has."""
    return fingerprint(source, ["1"]).rows


def delta(path: Path) -> pa.RecordBatchReader:
    """The rows of a Delta table, by delta-rs."""
    query = QueryBuilder().register("t", DeltaTable(path))
    return pa.RecordBatchReader.from_stream(query.execute("select * from t"))


def parquet(pattern: object) -> str:
    """Parquet files as a table expression."""
    return f"read_parquet('{pattern}')"


def csv(path: object) -> str:
    """A file of PostgreSQL's COPY with `format csv, null '\\N'` as a table expression."""
    columns = ", ".join(f"'{name}': 'varchar'" for name in payments.TYPES)
    return (
        f"read_csv('{path}', header = false, nullstr = '\\N', quote = '\"', escape = '\"', "
        f"delim = ',', columns = {{{columns}}})"
    )
