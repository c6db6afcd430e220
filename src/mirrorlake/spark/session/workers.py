"""The Pythons of the executors: whether they are what tasks need, and how they work."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from mirrorlake.errors import SparkUnavailable
from mirrorlake.spark.session.libraries import versions

T = TypeVar("T")
R = TypeVar("R")

_frozen = False
"""Whether what this process keeps anyway is set apart already."""

HINT = (
    "Install the same versions there, and set spark.pyspark.python in spark.conf to that Python; "
    "see docs/how-to/cluster.md."
)


def check(session: SparkSession) -> None:
    """Look at the executors of a cluster. Raises SparkUnavailable when they lack what we need.

    In local mode they are this Python.
    """
    context = session.sparkContext
    if str(context.master).startswith("local"):
        return
    slots = context.defaultParallelism
    wanted = versions()
    try:
        found = context.parallelize(range(slots), slots).map(lambda _task: versions()).collect()
    except (PySparkException, Py4JJavaError) as error:
        raise SparkUnavailable(
            f"no task runs on the executors of {context.master}: {_last_line(error)}",
            hint=HINT,
        ) from None
    for there in found:
        if there != wanted:
            raise SparkUnavailable(difference(wanted, there), hint=HINT)


def done(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """The work of one task, item by item, in its process.

    PySpark has each process look for garbage after each task, among all objects of all modules it
    has ever imported, which takes longer than a small batch. What is there when the first task has
    ended stays anyway, and is not looked at any more.
    """
    global _frozen  # noqa: PLW0603  (of the process, as what is set apart is)
    results = [work(item) for item in items]
    if not _frozen:
        gc.collect()
        gc.freeze()
        _frozen = True
    return results


def difference(here: Mapping[str, str], there: Mapping[str, str]) -> str:
    """What is not the same, in words."""
    others = [
        f"{name} is {there[name]}, not {here[name]}" for name in here if here[name] != there[name]
    ]
    return f"on an executor {', '.join(others)}"


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines()]
    named = [line for line in lines if "Error: " in line or "Exception: " in line]
    return (named or lines or [type(error).__name__])[-1]
