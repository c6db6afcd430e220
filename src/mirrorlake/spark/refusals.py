"""What Spark and Delta raise, as errors of the table it happened to, and of no other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from mirrorlake.errors import UnsupportedTable
from mirrorlake.mirror.faults import TableFault
from mirrorlake.model.table import TableId

RAISED = (PySparkException, Py4JJavaError)
"""What the JVM says while it is there; that it is gone is told otherwise, and ends the run."""


@contextmanager
def refusals(table: TableId) -> Iterator[None]:
    """What Delta refuses of a table's definition is an error of the table."""
    try:
        yield
    except RAISED as error:
        reason = str(error).strip().splitlines()[0]
        raise UnsupportedTable(
            f"Delta refuses it: {reason}",
            table=str(table),
            hint="Change what it names in the source or in the folder's files.",
        ) from error


def fault(error: Exception, table: str, doing: str) -> TableFault:
    """What was raised before a commit was sent, by its kind: its text may quote values."""
    kind = type(error).__name__
    if isinstance(error, Py4JJavaError):
        kind = str(error.java_exception.getClass().getSimpleName())
    return TableFault(
        f"{kind} while {doing}",
        table=table,
        hint="It is tried again. Report this with the log if it stays.",
    )
