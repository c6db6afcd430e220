"""The Pythons of the executors: whether they are what tasks need, and how they work."""

from __future__ import annotations

import gc
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TypeVar

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from mirrorlake.errors import SparkUnavailable
from mirrorlake.version import VERSION

T = TypeVar("T")
R = TypeVar("R")

_begun = False
"""Whether this process has run a task already."""

LIBRARIES = ("pyarrow", "numpy", "duckdb", "pyroaring")
"""What a task imports, by the names of the distributions."""

_ON_AN_EXECUTOR = "on an executor"
HINT = (
    "Install the same versions there, and set spark.pyspark.python in spark.conf to that Python; "
    "see docs/how-to/cluster.md."
)


def versions() -> dict[str, str]:
    """The Python here and its libraries, as text."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = {"Python": python, "mirrorlake": VERSION}  # it may be shipped without its metadata
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "missing"
    return found


def wanted(session: SparkSession) -> dict[str, str] | None:
    """What executors must have; None where they are this Python, as in local mode they usually
    are."""
    context = session.sparkContext
    return None if _is_local(context) and _is_this(context.pythonExec) else versions()


def _is_local(context: SparkContext) -> bool:
    return str(context.master).startswith("local")


def _is_this(program: str) -> bool:
    """Whether a program is the Python of this process: from the same environment, too."""
    found = shutil.which(program)
    return found is not None and Path(found).absolute().parent == Path(sys.executable).parent


def check(session: SparkSession) -> None:
    """Look at the executors, where they may be another Python than this. Raises SparkUnavailable
    when they lack what we need.

    Those that join later are looked at by their first task (`done`).
    """
    context, needed = session.sparkContext, wanted(session)
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
    """Look, in a task, at what its process has. Raises SparkUnavailable."""
    if needed is not None and (there := versions()) != needed:
        raise SparkUnavailable(difference(needed, there), hint=HINT)


def done(work: Callable[[T], R], items: Sequence[T], needed: Mapping[str, str] | None) -> list[R]:
    """The work of one task, item by item, in its process. needed: what it must have.

    PySpark has each process look for garbage after each task, among all objects of all modules it
    has ever imported, which takes longer than a small batch. What is there when the first task has
    ended stays anyway, and is not looked at any more.
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
    """What the first task of an executor found missing there, if that ended a job."""
    found = re.search(rf"SparkUnavailable: ({_ON_AN_EXECUTOR} .*?)\. {re.escape(HINT)}", str(error))
    return SparkUnavailable(found[1], hint=HINT) if found else None


def difference(here: Mapping[str, str], there: Mapping[str, str]) -> str:
    """What is not the same, in words."""
    others = [
        f"{name} is {there[name]}, not {here[name]}" for name in here if here[name] != there[name]
    ]
    return f"{_ON_AN_EXECUTOR} {', '.join(others)}"


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines()]
    named = [line for line in lines if "Error: " in line or "Exception: " in line]
    return (named or lines or [type(error).__name__])[-1]
