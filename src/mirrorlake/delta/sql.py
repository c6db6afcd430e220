"""SQL over the tables of a root, by name, without a JVM."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import duckdb

from mirrorlake.errors import Unavailable, UsageError


def tables(root: Path) -> Iterator[tuple[str, str, Path]]:
    """Schema (`main` for none), name and path of every Delta table below `Tables`."""
    top = root / "Tables"
    for path in sorted(top.glob("*/_delta_log")):
        yield "main", path.parent.name, path.parent
    for path in sorted(top.glob("*/*/_delta_log")):
        yield path.parent.parent.name, path.parent.name, path.parent


def connect(root: Path, query: str | None = None) -> duckdb.DuckDBPyConnection:
    """A connection with a view for each table, or for each table that a query names.

    Raises Unavailable when DuckDB's Delta extension is not installed, UsageError when two of the
    tables differ only in case, which SQL does not see.
    """
    connection = duckdb.connect()
    load_delta(connection)
    connection.execute("set TimeZone = 'UTC'")
    seen: dict[tuple[str, str], Path] = {}
    for schema, name, path in tables(root):
        if query is not None and not _is_named(name, query):
            continue
        twin = seen.setdefault((schema.casefold(), name.casefold()), path)
        if twin != path:
            raise UsageError(
                f"the names of {twin} and {path} differ only in case, so SQL cannot distinguish "
                "them",
                where="the query",
                hint="Query one by its folder: select * from delta_scan('FOLDER').",
            )
        connection.execute(f"create schema if not exists {quoted(schema)}")
        connection.execute(
            f"create view {quoted(schema)}.{quoted(name)} as "  # noqa: S608
            f"select * from delta_scan({_literal(str(path))})"
        )
    return connection


def run(root: Path, query: str) -> duckdb.DuckDBPyRelation | None:
    """The result of a query; None for a statement without one. Raises UsageError."""
    connection = connect(root, query)
    try:
        return connection.sql(query)
    except duckdb.Error as error:
        names = [
            name if schema == "main" else f"{schema}.{name}" for schema, name, _ in tables(root)
        ]
        known = ", ".join(names) if names else "none yet"
        raise UsageError(
            str(error).splitlines()[0],
            where="the query",
            hint=f"The tables are: {known}.",
        ) from error


def load_delta(connection: duckdb.DuckDBPyConnection) -> None:
    """Let a connection read Delta tables, with the extension that came as a wheel."""
    found = importlib.util.find_spec("duckdb_extension_delta")
    version = connection.execute("pragma version").fetchone()
    assert version is not None
    for location in (found.submodule_search_locations or ()) if found else ():
        extension = Path(location, "extensions", version[0], "delta.duckdb_extension")
        if extension.exists():
            # Loaded from where it lies: `install` would copy it into the user's home.
            connection.execute(f"load {_literal(str(extension))}")
            return
    raise Unavailable(
        f"the Delta extension for DuckDB {version[0]} is not installed",
        hint="Run `pip install mirrorlake[sql]`.",
    )


def _is_named(name: str, query: str) -> bool:
    """Whether a query may mean this table: it has the name as a word, quoted or not."""
    word = re.escape(name.replace('"', '""'))
    return re.search(rf"(?<!\w){word}(?!\w)", query, re.IGNORECASE) is not None


def quoted(name: str) -> str:
    """A name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
