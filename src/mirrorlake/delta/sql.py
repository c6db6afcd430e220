"""SQL over the tables of a root, by name, without a JVM."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import duckdb
import pyarrow as pa

from mirrorlake.delta.deletion_vectors import BrokenVector
from mirrorlake.delta.log.table_log import BrokenLog
from mirrorlake.delta.quoting import quoted
from mirrorlake.delta.schema import UnknownColumnType
from mirrorlake.delta.table_view import create_view
from mirrorlake.errors import UsageError
from mirrorlake.root import true_name

_UNREADABLE = (
    duckdb.Error,
    pa.ArrowException,
    OSError,
    BrokenLog,
    BrokenVector,
    UnknownColumnType,
)
_LISTS = re.compile(r"\s*show\s+(all\s+)?tables\s*;?\s*", re.IGNORECASE)


def tables(root: Path) -> Iterator[tuple[str, str, Path]]:
    """Schema (`main` for none), name and path of every Delta table below `Tables`."""
    top = root / "Tables"
    for path in sorted(top.glob("*/_delta_log")):
        yield "main", true_name(path.parent.name), path.parent
    for path in sorted(top.glob("*/*/_delta_log")):
        yield true_name(path.parent.parent.name), true_name(path.parent.name), path.parent


class Views:
    """A DuckDB connection with a view for each table that a query may name. missing: messages for
    tables without a view."""

    def __init__(
        self,
        root: Path,
        query: str | None = None,
        versions: Mapping[Path, int] | None = None,
    ) -> None:
        """versions: the version to read by table path; tables without a version are then missing.
        None reads the newest version of all tables."""
        self.connection = duckdb.connect()
        self.missing: list[str] = []
        self._versions = versions
        self.connection.execute("set TimeZone = 'UTC'")
        found: dict[tuple[str, str], list[tuple[str, str, Path]]] = {}
        for table in tables(root):
            if query is None or _is_named(table[1], query):
                found.setdefault((table[0].casefold(), table[1].casefold()), []).append(table)
        for alike in found.values():
            if len(alike) > 1:
                paths = " and ".join(str(path) for _schema, _name, path in alike)
                self.missing.append(
                    f"the names of {paths} differ only in case, so SQL cannot distinguish them; "
                    "read one by its folder, with delta-rs or Spark"
                )
            else:
                self._add(*alike[0])

    def _add(self, schema: str, name: str, path: Path) -> None:
        version = None if self._versions is None else self._versions.get(path)
        if self._versions is not None and version is None:
            self.missing.append(f"the table at {path} is not part of the cut")
            return
        try:
            self.connection.execute(f"create schema if not exists {quoted(schema)}")
            view = f"{quoted(schema)}.{quoted(name)}"
            create_view(self.connection, view, path, version)
        except _UNREADABLE as error:
            self.missing.append(f"the table at {path} cannot be read: {_first_line(error)}")


def run(
    root: Path,
    query: str,
    more: Mapping[str, pa.Table] = MappingProxyType({}),
    versions: Mapping[Path, int] | None = None,
) -> duckdb.DuckDBPyRelation | None:
    """The result of a query; None for a statement without a result.

    more: additional tables by name; versions: as in `Views`. `show tables` lists the tables of all
    schemas with the names to use in a query. Raises UsageError.
    """
    if _LISTS.fullmatch(query):
        return _listed(root)
    views = Views(root, query, versions)
    for name, rows in more.items():
        views.connection.register(name, rows)
    try:
        return views.connection.sql(query)
    except duckdb.Error as error:
        names = [_named(schema, name) for schema, name, _ in tables(root)]
        known = ", ".join(names) if names else "none yet"
        raise UsageError(
            "; ".join([_first_line(error), *views.missing]),
            where="the query",
            hint=f"The tables are: {known}.",
        ) from error


def fetched(result: duckdb.DuckDBPyRelation) -> list[tuple[Any, ...]]:
    """The rows of a result. Raises UsageError."""
    try:
        return list(result.fetchall())
    except duckdb.Error as error:
        raise UsageError(_first_line(error), where="the query") from error


def _listed(root: Path) -> duckdb.DuckDBPyRelation:
    found = [(_named(schema, name), str(path)) for schema, name, path in tables(root)]
    names, paths = [name for name, _ in found], [path for _, path in found]
    columns = {"table": pa.array(names, pa.string()), "path": pa.array(paths, pa.string())}
    return duckdb.connect().from_arrow(pa.table(columns))


def _named(schema: str, name: str) -> str:
    return name if schema == "main" else f"{schema}.{name}"


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _is_named(name: str, query: str) -> bool:
    """Whether a query may refer to this table: it contains the name as a word, quoted or not."""
    word = re.escape(name.replace('"', '""'))
    return re.search(rf"(?<!\w){word}(?!\w)", query, re.IGNORECASE) is not None
