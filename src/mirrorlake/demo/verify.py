"""Every row and value of the mirror against PostgreSQL, by a reader that shares nothing with it.

PostgreSQL says each value in a plain text of its own making, DuckDB says the same of the rows that
delta-rs reads from the Delta table, and compares the two sets of rows. The change feed is also read
by delta-rs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import psycopg
import pyarrow as pa
from deltalake import DeltaTable
from psycopg import sql

from mirrorlake.delta.quoting import quoted
from mirrorlake.demo import delta_rs

# How each side says a value of a type. The source's type decides for both.
_SAYS: dict[str, tuple[str, str]] = {
    "timestamptz": ("(extract(epoch from {c}) * 1000000)::bigint::text", "epoch_us({c})::varchar"),
    "date": ("({c} - date '1970-01-01')::text", "({c} - date '1970-01-01')::bigint::varchar"),
    "float8": ("{c}::text", "{c}"),
    "_text": ("array_to_json({c})::text", "{c}"),
    "_int8": ("array_to_json({c})::text", "{c}"),
}
_PLAIN = ("{c}::text", "{c}::varchar")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of one table: its rows in the source, how many differ, and whether its feed adds up."""

    table: str
    rows: int
    missing: int
    unexpected: int
    feed_differs: int

    @property
    def verified(self) -> bool:
        return not (self.missing or self.unexpected or self.feed_differs)


def verify(
    url: str, tables: dict[str, Path], folder: Path, done: Callable[[str], None]
) -> list[Verdict]:
    """Compare tables (name in the source to path of the Delta table); `folder` is for scratch."""
    verdicts = []
    with psycopg.connect(url) as source:
        for name, path in tables.items():
            verdicts.append(_verify(source, name, path, folder))
            done(name)
    return verdicts


def _verify(source: psycopg.Connection, name: str, path: Path, folder: Path) -> Verdict:
    columns = _columns(source, name)
    exported = folder / f"{name}.csv"
    with exported.open("wb") as file, source.cursor() as cursor:
        expressions = [sql.SQL(_SAYS.get(t, _PLAIN)[0].format(c=quoted(c))) for c, t in columns]
        query = sql.SQL("copy (select {} from {}) to stdout with (format csv, null '\\N')").format(
            sql.SQL(", ").join(expressions), sql.Identifier(*name.split("."))
        )
        with cursor.copy(query) as rows:
            for row in rows:
                file.write(row)
    connection = duckdb.connect()
    connection.execute("set TimeZone = 'UTC'")
    names = ", ".join(f"'{column}': 'varchar'" for column, _ in columns)
    read = ", ".join(f"{_read(t).format(c=quoted(c))} as {quoted(c)}" for c, t in columns)
    csv = f"header = false, nullstr = '\\N', quote = '\"', escape = '\"', columns = {{{names}}}"
    connection.execute(
        f"create table source as select {read} "  # noqa: S608
        f"from read_csv(?, {csv}, parallel = false)",
        [str(exported)],
    )
    exported.unlink()
    plain = ((c, _SAYS.get(t, _PLAIN)[1].format(c=quoted(c))) for c, t in columns)
    said = ", ".join(f"{text} as {quoted(c)}" for c, text in plain)
    connection.register("stored", delta_rs.rows(path))
    connection.execute("create table present as from stored")
    connection.execute(f"create table mirror as select {said} from present")  # noqa: S608
    return Verdict(
        table=name,
        rows=_count(connection, "select count(*) from source"),
        missing=_count(connection, _difference("source", "mirror")),
        unexpected=_count(connection, _difference("mirror", "source")),
        feed_differs=_feed_differs(connection, path, [c for c, _ in columns]),
    )


def _feed_differs(connection: duckdb.DuckDBPyConnection, path: Path, columns: Sequence[str]) -> int:
    """Rows that the change feed, replayed from version 0, does not leave exactly as they are.

    Each insert and after image counts one, each deletion and before image takes one away; what is
    left must be the rows of the table.
    """
    connection.register("feed", pa.table(DeltaTable(path).load_cdf(starting_version=0).read_all()))
    names = ", ".join(map(quoted, columns))
    connection.execute(
        f"""
        create temp table replayed as
        select {names}, sum(case when _change_type in ('insert', 'update_postimage') then 1
                                 else -1 end)::bigint as n
        from feed group by {names} having n <> 0
        """  # noqa: S608
    )
    connection.execute(
        f"create temp table counted as select {names}, count(*)::bigint as n "  # noqa: S608
        f"from present group by {names}"
    )
    return _count(connection, _difference("replayed", "counted")) + _count(
        connection, _difference("counted", "replayed")
    )


def _columns(source: psycopg.Connection, name: str) -> list[tuple[str, str]]:
    schema, table = name.split(".")
    found = source.execute(
        "select column_name, udt_name from information_schema.columns "
        "where table_schema = %s and table_name = %s order by ordinal_position",
        [schema, table],
    )
    return [(str(column), str(kind)) for column, kind in found]


def _read(kind: str) -> str:
    """What DuckDB makes of the source's text: floating point is compared as numbers."""
    return "{c}::double" if kind == "float8" else "{c}"


def _difference(one: str, other: str) -> str:
    return f"select count(*) from (from {one} except all from {other})"  # noqa: S608


def _count(connection: duckdb.DuckDBPyConnection, query: str) -> int:
    # All rows, though it is one: DuckDB does nothing else before the end of a result.
    ((number,),) = connection.execute(query).fetchall()
    return int(number)
