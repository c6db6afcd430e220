"""Processes to be killed begin in milliseconds: they are forked from one that has loaded the
libraries. It is started with the first of them, and ends with the tests."""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.crash import entry

PATIENCE = 240
LOADED = [
    "duckdb",
    "psycopg",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pyspark.sql",
    "mirrorlake.app.running.capture_process",
    "mirrorlake.app.mirror",
    "mirrorlake.capture.capture",
    "mirrorlake.publisher.publisher",
    "mirrorlake.sources.postgresql.source",
    "tests.crash.forked",
]

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(LOADED)


@dataclass(frozen=True)
class Ended:
    """A process that has ended. code: negative for a signal."""

    code: int
    error: str


def mirrorlake(*arguments: str, **environment: str) -> Ended:
    """Run a command of the program."""
    return forked(_command, *arguments, **environment)


def forked(main: Callable[..., object], *arguments: str, **environment: str) -> Ended:
    """Run a function in a process of its own to its end. environment: beside that of the tests."""
    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder, "error")
        process = _processes.Process(
            target=_run, args=(main, arguments, {**os.environ, **environment}, str(said))
        )
        process.start()
        process.join(PATIENCE)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise TimeoutError(f"{main.__name__} {arguments} after {PATIENCE} s")
        return Ended(process.exitcode, said.read_text() if said.exists() else "")


def _command(*arguments: str) -> None:
    sys.argv = ["mirrorlake", *arguments]
    entry.main()


def _run(
    main: Callable[..., object],
    arguments: tuple[str, ...],
    environment: Mapping[str, str],
    error: str,
) -> None:
    os.setsid()
    with open(os.devnull, "w") as nothing, open(error, "w") as said:  # noqa: PTH123
        os.dup2(nothing.fileno(), 1)
        os.dup2(said.fileno(), 2)
    os.environ.clear()
    os.environ.update(environment)
    main(*arguments)
