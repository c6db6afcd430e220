"""How a process that is all our own begins: what it does without, and whose it is."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable

import pyarrow as pa
import structlog


def begun(prepare: Callable[[], None] | None) -> threading.Event:
    """Begin a process that we started. Returns what SIGTERM and SIGINT set."""
    skip_pandas()
    if prepare is not None:
        prepare()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    return stop


def prepared(prepare: Callable[[], None] | None, mirror: str) -> None:
    """Prepare this process, and let each line of its log name the mirror."""
    if prepare is not None:
        prepare()
    structlog.contextvars.bind_contextvars(mirror=mirror)


def skip_pandas() -> None:
    """Let Arrow make arrays without pandas in this process.

    Where pandas is installed Arrow imports it for the first array that it makes of Python's values,
    to see whether they are one of its frames: 45 MiB and a third of a second. It looks once. Ours
    never are. What asks for frames still gets them (`to_pandas`, `from_pandas`), but `pa.array`
    takes a series for any other sequence from then on. A driver has pandas all the same: PySpark
    imports it when a session begins.
    """
    if "pandas" in sys.modules:
        return
    sys.meta_path.insert(0, _Absent)
    try:
        pa.array([1])
    finally:
        sys.meta_path.remove(_Absent)


class _Absent:
    """Finds no pandas, wherever it is."""

    @classmethod
    def find_spec(cls, name: str, _path: object, _target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
