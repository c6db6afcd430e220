"""What Spark and Delta raise, as errors of the table it happened to, and of no other."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException

from mirrorlake.apply.task.errors import storage_error, worker_lost
from mirrorlake.errors import ConstraintViolated, TableError, UnsupportedTable, printable
from mirrorlake.mirror.engine import Conflicted, Failed, Outcome, Unknown
from mirrorlake.mirror.faults import TableFault
from mirrorlake.model.table import TableId

RAISED = (PySparkException, Py4JJavaError)
"""What the JVM says while it is there; that it is gone is told otherwise, and ends the run."""

CONFLICTS = frozenset(
    {
        "ConcurrentAppendException",
        "ConcurrentDeleteDeleteException",
        "ConcurrentDeleteReadException",
        "ConcurrentTransactionException",
        "ConcurrentWriteException",
        "MetadataChangedException",
        "ProtocolChangedException",
    }
)
"""What Delta calls it when another writer was faster, and nothing was committed."""

_DEATHS = {
    "OutOfMemoryError": "Java ran out of memory",
    "spark.driver.maxResultSize": "their results are larger than spark.driver.maxResultSize",
    "ExecutorLostFailure": "their executors were lost",
    "Python worker exited": "the Python process was killed or crashed",
}
"""What Spark says of tasks that died, and what it means. Other texts may quote values."""

_VIOLATIONS = frozenset({"DeltaInvariantViolationException", "InvariantViolationException"})


@contextmanager
def refused_by_delta(table: TableId) -> Iterator[None]:
    """What Delta refuses of a table's definition is an error of the table."""
    try:
        yield
    except RAISED as error:
        reason = str(error).strip().splitlines()[0]
        raise UnsupportedTable(
            f"Delta rejected the write: {reason}",
            table=str(table),
            hint="Change what the message names, in the source or in the files of the folder.",
        ) from error


def death(error: Exception) -> str | None:
    """Why the tasks of a job died as often as Spark lets them, in words; None if it ended
    otherwise: cancelled, or with its session."""
    said = str(error)
    if "Job aborted due to stage failure" not in said:
        return None
    told = next((told for mark, told in _DEATHS.items() if mark in said), "they failed")
    code = re.search(r"exited with code (\d+)", said)
    return f"{told} (exit code {code[1]})" if code else told


def name_of(error: Exception) -> str:
    """Delta's name of a condition, whether or not somebody translated it for Python."""
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.getClass().getSimpleName())
    return type(error).__name__


def fault(error: Exception, table: str, doing: str) -> TableError:
    """What was raised before a commit was sent, by its kind: its text may quote values."""
    if reason := death(error):
        return worker_lost(table, reason)
    if os.strerror(errno.ENOSPC) in str(error):
        return storage_error(table, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    return TableFault(
        f"{name_of(error)} while {doing}",
        table=table,
        hint="It is retried. If it recurs, report it with the log.",
    )


def raised(error: Exception, table: str, moved: str) -> Outcome:
    """What an error of a statement that commits means. moved: what our own fence raises."""
    names = [type(error).__name__, *(name for name, _told in _causes(error))]
    if conflict := next((name for name in names if name in CONFLICTS), None):
        return Conflicted(conflict)
    if moved in str(error):
        return Conflicted("another commit was made to the table during the write")
    for name, told in _causes(error):
        if name in _VIOLATIONS:
            return Failed(_violated(table, told))
    if isinstance(error, AnalysisException):
        return Failed(fault(error, table, "merging"))  # before anything was written
    return Unknown(names[-1])


def _causes(error: Exception) -> Iterator[tuple[str, dict[str, str]]]:
    """The names of the Java exceptions behind an error, with what they tell by name."""
    found = error.java_exception if isinstance(error, Py4JJavaError) else _origin(error)
    while found is not None:
        told: dict[str, str] = {}
        with suppress(Py4JError, TypeError):  # not every one has something to tell
            told = dict(found.getMessageParameters())
        yield str(found.getClass().getSimpleName()), told
        found = found.getCause()


def conditions(error: Exception) -> Iterator[tuple[str, str]]:
    """The conditions of the Java exceptions behind an error, with their SQLSTATE."""
    found = error.java_exception if isinstance(error, Py4JJavaError) else _origin(error)
    while found is not None:
        with suppress(Py4JError, TypeError):  # not every one has a condition
            if condition := found.getCondition():
                yield str(condition), str(found.getSqlState() or "")
        found = found.getCause()


def _origin(error: Exception) -> Any:
    return getattr(error, "_origin", None)  # PySpark has no public way


def _violated(table: str, told: Mapping[str, str]) -> ConstraintViolated:
    """Which demand was not met; its values are not told."""
    column, constraint = told.get("columnName"), told.get("constraintName")
    named = f"the constraint {constraint}" if constraint else "a constraint"
    if length := told.get("expr"):  # of a CHAR or VARCHAR, which has no name
        named = f"the length limit {printable(length)}"
    return ConstraintViolated(
        f"a row violates {f'NOT NULL of {column}' if column else named} of the Delta table",
        table=table,
        column=column,
        hint=f"Drop the constraint from the table, or run `mirrorlake reset {table}` to rebuild "
        "it.",
    )
