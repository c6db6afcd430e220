"""A peer in a process of its own: warm through all rounds, and in nobody's way.

Peers leave threads and millions of objects behind, which slow whatever runs in their process next.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any


class Worker:
    """Calls one function in a process. Use as a context manager.

    function: of a module, so that it can be named to the process; what it returns must pickle.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, self._theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(function, self._theirs), daemon=True)

    def __enter__(self) -> Worker:
        self._process.start()
        self._theirs.close()  # so that the end of the process is the end of the pipe
        return self

    def __exit__(self, *_exc: object) -> None:
        self._pipe.close()
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def call(self, *arguments: Any) -> Any:
        """The function's result. Raises RuntimeError when it failed."""
        self._pipe.send(arguments)
        result, failure = self._pipe.recv()
        if failure:
            raise RuntimeError(failure)
        return result


def _serve(function: Callable[..., Any], pipe: Connection) -> None:
    while True:
        try:
            arguments = pipe.recv()
        except EOFError:
            os._exit(0)  # the threads of a JVM would keep us
        try:
            pipe.send((function(*arguments), ""))
        except Exception as error:  # noqa: BLE001  (it is raised where the bench runs)
            pipe.send((None, f"{function.__module__}: {type(error).__name__}: {error}"))
