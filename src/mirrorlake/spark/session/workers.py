"""The Python processes of the executors: checks their versions and runs tasks in them."""

from __future__ import annotations

import gc
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from mirrorlake.errors import SparkUnavailable
from mirrorlake.version import VERSION

if TYPE_CHECKING:  # a command that has nothing to write does not load PySpark
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

_begun = False
"""Whether this process has already run a task."""

LIBRARIES = ("pyarrow", "numpy", "duckdb", "pyroaring", "isal")
"""The distributions that a task imports."""

_ON_AN_EXECUTOR = "on an executor"
HINT = (
    "Install the same versions there, and set spark.pyspark.python in spark.conf to that Python; "
    "see docs/how-to/cluster.md."
)


def versions() -> dict[str, str]:
    """The versions of Python and the libraries here."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = {"Python": python, "mirrorlake": VERSION}  # ours may be shipped without metadata
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "missing"
    return found


def required_versions(session: SparkSession) -> dict[str, str] | None:
    """The versions that executors must have; None if they run this Python, as usual in local
    mode."""
    context = session.sparkContext
    program = getattr(context, "pythonExec", "")  # PySpark does not document it
    return None if _is_local(context) and _is_this(program) else versions()


def _is_local(context: SparkContext) -> bool:
    return str(context.master).startswith("local")


def _is_this(program: str) -> bool:
    """Whether a program is the Python of this process, in the same environment."""
    found = shutil.which(program)
    return found is not None and Path(found).absolute().parent == Path(sys.executable).parent


def check(session: SparkSession) -> None:
    """Check the executors, unless they run this Python. Raises SparkUnavailable when they lack what
    tasks need.

    Executors that start later are checked by their first task (`done`).
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    context, needed = session.sparkContext, required_versions(session)
    if needed is None:
        return
    hint = HINT
    if _is_local(context):
        hint = f"Set PYSPARK_PYTHON={sys.executable} in the environment before the session starts."
    slots = context.defaultParallelism
    try:
        found = context.parallelize(range(slots), slots).map(lambda _task: versions()).collect()
    except (PySparkException, Py4JJavaError) as error:
        raise SparkUnavailable(
            f"no task runs on the executors of {context.master}: {_last_line(error)}", hint=hint
        ) from None
    for there in found:
        if there != needed:
            raise SparkUnavailable(difference(needed, there), hint=hint)


def require(needed: Mapping[str, str] | None) -> None:
    """Check, in a task, the versions of its process. Raises SparkUnavailable."""
    if needed is not None and (there := versions()) != needed:
        raise SparkUnavailable(difference(needed, there), hint=HINT)


def done(work: Callable[[T], R], items: Sequence[T], needed: Mapping[str, str] | None) -> list[R]:
    """Run the items of one task in its process. needed: the required versions.

    After each task, PySpark runs the garbage collector over all objects of all imported modules,
    which takes longer than a small batch. Objects that exist after the first task stay anyway, and
    are excluded from then on.
    """
    global _begun  # noqa: PLW0603  (of the process, as what is set apart is)
    if not _begun:
        require(needed)
    results = [work(item) for item in items]
    if not _begun:
        gc.collect()
        gc.freeze()
        _begun = True
    return results


def refusal(error: Exception) -> SparkUnavailable | None:
    """The error of an executor's first task that found wrong versions, if that ended a job."""
    found = re.search(rf"SparkUnavailable: ({_ON_AN_EXECUTOR} .*?)\. {re.escape(HINT)}", str(error))
    return SparkUnavailable(found[1], hint=HINT) if found else None


def difference(here: Mapping[str, str], there: Mapping[str, str]) -> str:
    """The differences, in words."""
    others = [
        f"{name} is {there[name]}, not {here[name]}" for name in here if here[name] != there[name]
    ]
    return f"{_ON_AN_EXECUTOR} {', '.join(others)}"


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines()]
    named = [line for line in lines if "Error: " in line or "Exception: " in line]
    return (named or lines or [type(error).__name__])[-1]
