"""DuckDB as a reader of Delta tables, and text in its SQL."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import duckdb

from mirrorlake.errors import Unavailable


def load_delta(connection: duckdb.DuckDBPyConnection) -> None:
    """Let a connection read Delta tables, with the extension that came as a wheel."""
    found = importlib.util.find_spec("duckdb_extension_delta")
    version = connection.execute("pragma version").fetchone()
    assert version is not None
    for location in (found.submodule_search_locations or ()) if found else ():
        extension = Path(location, "extensions", version[0], "delta.duckdb_extension")
        if extension.exists():
            # Loaded from where it lies: `install` would copy it into the user's home.
            connection.execute(f"load {literal(str(extension))}")
            return
    raise Unavailable(
        f"the Delta extension for DuckDB {version[0]} is not installed",
        hint="Run `pip install mirrorlake[sql]`.",
    )


def quoted(name: str) -> str:
    """A name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"
