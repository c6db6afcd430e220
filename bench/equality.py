"""Whether two sides hold the same rows, by a reader that belongs to neither."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from bench import payments
from mirrorlake.lake.sql import load_delta


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Rows, and the sum of a 64-bit hash of each whole row: the order does not matter."""

    rows: int
    total: int


def fingerprint(source: str, columns: Sequence[str] = ()) -> Fingerprint:
    """Of the rows of `source`, a table expression of DuckDB; columns: the expressions to hash."""
    connection = duckdb.connect()
    load_delta(connection)
    connection.execute("set TimeZone = 'UTC'")
    connection.execute("set enable_progress_bar = false")
    chosen = ", ".join(columns or payments.canonical())
    found = connection.execute(
        f"select count(*), coalesce(sum(hash({chosen})::hugeint), 0) from {source}"
    ).fetchone()
    assert found is not None
    return Fingerprint(int(found[0]), int(found[1]))


def delta(path: object) -> str:
    """A Delta table as a table expression."""
    return f"delta_scan('{path}')"


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
