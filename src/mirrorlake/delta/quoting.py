"""Quoting for DuckDB's SQL."""

from __future__ import annotations

import re
from collections.abc import Sequence


def quoted(name: str) -> str:
    """A name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text as an SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def parquet_files(paths: Sequence[str], path: str, number: str) -> str:
    """The SQL of the rows of Parquet files, with columns for the path and number of each row.

    path: the name of the first, a plain word; number: of the second, which DuckDB defines.
    """
    return (
        f"read_parquet([{', '.join(map(_file, paths))}], {number} = true, filename = '{path}', "
        # Statistics do not show a NaN, so DuckDB would expect none where they are.
        "can_have_nan = true, union_by_name = true, hive_partitioning = false)"
    )


def _file(path: str) -> str:
    """A path as an SQL string literal that matches no other file. DuckDB knows no pattern for a
    backslash."""
    return literal(path if "\\" in path else re.sub(r"[*?\[]", r"[\g<0>]", path))
