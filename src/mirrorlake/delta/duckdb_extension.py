"""DuckDB's Delta extension, and quoting for DuckDB's SQL."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import duckdb

from mirrorlake.errors import Unavailable


def load_delta(connection: duckdb.DuckDBPyConnection) -> None:
    """Load the Delta extension, which is installed as a wheel, into a connection."""
    found = importlib.util.find_spec("duckdb_extension_delta")
    version = connection.execute("pragma version").fetchone()
    assert version is not None
    for location in (found.submodule_search_locations or ()) if found else ():
        extension = Path(location, "extensions", version[0], "delta.duckdb_extension")
        if extension.exists():
            # Loaded from the wheel: `install` would copy it into the user's home.
            connection.execute(f"load {literal(str(extension))}")
            return
    raise Unavailable(
        f"the Delta extension for DuckDB {version[0]} is not installed",
        hint="Run `pip install mirrorlake[sql]`.",
    )


def quoted(name: str) -> str:
    """A name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text as an SQL string literal."""
    return "'" + text.replace("'", "''") + "'"
