"""Readers of Delta tables that others have written, none of which needs a JVM."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import deltalake
import duckdb
import pyarrow as pa

from mirrorlake.delta.quoting import literal
from mirrorlake.delta.table_view import create_view
from mirrorlake.feed import change_files
from mirrorlake.storage.options import ObjectOptions
from tests.delta import duckdb_delta
from tests.histories import rows_of
from tests.reference import Row, plain


def rows_by_delta_rs(path: Path | str, condition: str = "true") -> list[Row]:
    table = deltalake.DeltaTable(str(path))
    query = deltalake.QueryBuilder().register("t", table)
    return rows_of(pa.table(query.execute(f"select * from t where {condition}").read_all()))


def rows_by_duckdb(path: Path | str, condition: str = "true") -> list[Row]:
    scan = f"delta_scan({literal(str(path))})"
    return rows_of(duckdb_delta.query(f"select * from {scan} where {condition}"))


def rows_by_view(path: Path | str, condition: str = "true") -> list[Row]:
    """As `mirrorlake sql` reads them."""
    with duckdb.connect() as connection:
        connection.execute("set TimeZone = 'UTC'")
        create_view(connection, "v", Path(path))
        rows = connection.sql(f"select * from v where {condition}")
        return rows_of(rows.to_arrow_table())


def feed_of(
    path: Path | str, first: int = 0, options: ObjectOptions | None = None
) -> dict[int, Counter[tuple[str, Row]]]:
    """The change feed as we read it: how often each (change type, plain row), by version."""
    found: dict[int, Counter[tuple[str, Row]]] = {}
    for piece in change_files.read(path, first, options=options):
        for *row, kind, version, _time in rows_of(piece):
            found.setdefault(version, Counter())[kind, plain(tuple(row))] += 1
    return found


def feed_by_delta_rs(path: Path | str) -> dict[int, Counter[tuple[str, Row]]]:
    """The change feed by version: how often each (change type, plain row)."""
    source = deltalake.DeltaTable(str(path))
    names = [field.name for field in source.schema().fields]  # partition columns come last there
    table = pa.table(source.load_cdf(starting_version=0).read_all())
    table = table.select([*names, "_change_type", "_commit_version"])
    found: dict[int, Counter[tuple[str, Row]]] = {}
    for *row, kind, version in rows_of(table):
        found.setdefault(version, Counter())[kind, plain(tuple(row))] += 1
    return found
