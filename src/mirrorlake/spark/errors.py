"""Translates exceptions of Spark and Delta to errors of the affected table."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException

from mirrorlake.apply.task.errors import storage_error, worker_lost
from mirrorlake.errors import (
    ConstraintViolated,
    ForeignTable,
    TableError,
    UnsupportedTable,
    printable,
)
from mirrorlake.mirror.engine import Conflicted, Failed, Outcome, Unknown
from mirrorlake.mirror.faults import TableFault
from mirrorlake.model.table import TableId

RAISED = (PySparkException, Py4JJavaError)
"""Exceptions of a live JVM. Loss of the JVM raises others and ends the run."""

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
"""Delta's exceptions when another writer committed first and nothing was committed."""

_DEATHS = {
    "OutOfMemoryError": "Java ran out of memory",
    "spark.driver.maxResultSize": "their results are larger than spark.driver.maxResultSize",
    "ExecutorLostFailure": "their executors were lost",
    "Python worker exited": "the Python process was killed or crashed",
}
"""Texts in Spark's message for failed tasks, and their meaning. Other texts may contain values."""

_RAISED_BY_WORK = "org.apache.spark.api.python.PythonException"
"""In Spark before 4.2, the exception of a job that failed because the Python code of a task
raised."""

_NOT_READ, _CHECKSUM = "FAILED_READ_FILE", "CRC checksum verification failed"
"""Spark's condition for a data file that it cannot read, and what Parquet says of a page."""

_VIOLATIONS = frozenset({"DeltaInvariantViolationException", "InvariantViolationException"})


@dataclass(frozen=True, slots=True)
class RaisedCondition:
    """An error condition of Delta or Spark. parameters: its message parameters."""

    name: str
    sqlstate: str
    parameters: Mapping[str, str]


@contextmanager
def refused_by_delta(table: TableId) -> Iterator[None]:
    """Translates Delta's refusal of a table definition to an error of the table."""
    try:
        yield
    except RAISED as error:
        if found := damage(error, str(table)):
            raise found from error
        reason = str(error).strip().splitlines()[0]
        raise UnsupportedTable(
            f"Delta rejected the write: {reason}",
            table=str(table),
            hint="Change what the message names, in the source or in the files of the folder.",
        ) from error


def death(error: Exception) -> str | None:
    """Why the tasks of a job died, after Spark's retries, in words. None if the job ended for
    another reason, such as cancellation or the end of its session."""
    text = str(error)
    if "Job aborted due to stage failure" not in text:
        return None
    meaning = next((meaning for mark, meaning in _DEATHS.items() if mark in text), None)
    if meaning is None:
        if _RAISED_BY_WORK in text:
            return None
        meaning = "they failed"
    code = re.search(r"exited with code (\d+)", text)
    return f"{meaning} (exit code {code[1]})" if code else meaning


def name_of(error: Exception) -> str:
    """Delta's name of an exception, whether or not PySpark has translated it."""
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.getClass().getSimpleName())
    return type(error).__name__


def fault(error: Exception, table: str, doing: str) -> TableError:
    """The error for an exception before a commit was sent, by its class only, because its text may
    contain values."""
    if found := damage(error, table):
        return found
    if reason := death(error):
        return worker_lost(table, reason)
    if os.strerror(errno.ENOSPC) in str(error):
        return storage_error(table, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    return TableFault(
        f"{name_of(error)} while {doing}",
        table=table,
        hint="It is retried. If it recurs, report it with the log.",
    )


def damage(error: Exception, table: str) -> ForeignTable | None:
    """The error for a file of the table that Spark could not read; None for another exception."""
    for condition in conditions(error):
        path = condition.parameters.get("path")
        if condition.name.startswith(_NOT_READ) and path:
            is_page = _CHECKSUM in str(error)
            what = "a page does not match its checksum" if is_page else "Spark cannot read it"
            return ForeignTable(
                f"a file of the Delta table is lost or damaged: {Path(path).name}: {what}",
                table=table,
                hint=f"Restore the file, or run `mirrorlake reset {table}` to rebuild the table. "
                "It is retried.",
            )
    return None


def raised(error: Exception, table: str, moved: str) -> Outcome:
    """The outcome for an exception of a statement that commits. moved: the exception of our own
    fence."""
    names = [type(error).__name__, *(name for name, _parameters in _causes(error))]
    if conflict := next((name for name in names if name in CONFLICTS), None):
        return Conflicted(conflict)
    if moved in str(error):
        return Conflicted("another commit was made to the table during the write")
    for name, parameters in _causes(error):
        if name in _VIOLATIONS:
            return Failed(_violated(table, parameters))
    if isinstance(error, AnalysisException):
        return Failed(fault(error, table, "merging"))  # nothing was written yet
    return Unknown(names[-1])


def _causes(error: Exception) -> Iterator[tuple[str, dict[str, str]]]:
    """The names of the Java exceptions that caused an error, with their message parameters."""
    found = error.java_exception if isinstance(error, Py4JJavaError) else _origin(error)
    while found is not None:
        parameters: dict[str, str] = {}
        with suppress(Py4JError, TypeError):  # not all have parameters
            parameters = dict(found.getMessageParameters())
        yield str(found.getClass().getSimpleName()), parameters
        found = found.getCause()


def conditions(error: Exception) -> Iterator[RaisedCondition]:
    """The error conditions of an error and of its causes."""
    if isinstance(error, PySparkException) and (name := error.getCondition()):
        yield RaisedCondition(name, error.getSqlState() or "", error.getMessageParameters() or {})
    found = error.java_exception if isinstance(error, Py4JJavaError) else _origin(error)
    while found is not None:
        with suppress(Py4JError, TypeError):  # not all have a condition
            if condition := found.getCondition():
                parameters = dict(found.getMessageParameters())
                yield RaisedCondition(str(condition), str(found.getSqlState() or ""), parameters)
        found = found.getCause()


def _origin(error: Exception) -> Any:
    return getattr(error, "_origin", None)  # PySpark has no public way


def _violated(table: str, parameters: Mapping[str, str]) -> ConstraintViolated:
    """The error for a violated constraint, without its values."""
    column, constraint = parameters.get("columnName"), parameters.get("constraintName")
    named = f"the constraint {constraint}" if constraint else "a constraint"
    if length := parameters.get("expr"):  # of a CHAR or VARCHAR, which has no name
        named = f"the length limit {printable(length)}"
    return ConstraintViolated(
        f"a row violates {f'NOT NULL of {column}' if column else named} of the Delta table",
        table=table,
        column=column,
        hint=f"Drop the constraint from the table, or run `mirrorlake reset {table}` to rebuild "
        "it.",
    )
