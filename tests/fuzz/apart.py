"""A process of its own that reads damaged input, so that what input does to a process is seen.

What ends the process, holds it up, fills its memory or raises what is not ours is a failure of that
one example, which is then made smaller and kept as any other is.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import re
import resource
import signal
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

MEMORY = 1 << 30
"""Bytes that the whole process may take at its worst, the libraries among them."""
PATIENCE = 120.0
"""Seconds for one example, which takes milliseconds: no machine is so busy."""
_FENCE = 8 << 30
"""Bytes that it could get at all: what has no bound ends here, and not with the machine."""


class Finding(AssertionError):
    """An input that does to a process what none may do."""


class Apart:
    """Runs functions in another process, one after another; a process that is lost is replaced.

    A function is one of a module, and what it takes and returns can be pickled.
    """

    def __init__(self, memory: int = MEMORY, patience: float = PATIENCE) -> None:
        self.memory, self.patience = memory, patience
        self._child: _Child | None = None

    def run(self, function: Callable[..., T], *given: Any) -> T:
        """What the function returns. Raises Finding."""
        self._child = self._child or _Child()
        try:
            answer, peak = self._child.ask((function, given), self.patience)
            self._check(answer, peak)
        except Finding:
            self.close()  # the next example meets a process that is whole
            raise
        found: T = answer
        return found

    def _check(self, answer: Any, peak: int) -> None:
        if isinstance(answer, _Raised):
            raise Finding(answer.error)
        if peak > self.memory:
            raise Finding(f"it took {peak:,} bytes of memory, and may take {self.memory:,}")

    def close(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None


@dataclass(frozen=True)
class _Raised:
    """What a function raised, as it is printed."""

    error: str


class _Child:
    """The other process, and what it says at its end."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._said = tempfile.NamedTemporaryFile(prefix="apart-")  # noqa: SIM115  closed below
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self._said.name), daemon=True)
        self._process.start()
        theirs.close()  # so that the end of the child is the end of the pipe

    def ask(self, task: tuple[Callable[..., Any], Any], patience: float) -> tuple[Any, int]:
        """What came of a task, and the most bytes that the process has ever taken."""
        try:
            self._pipe.send(task)
            if not self._pipe.poll(patience):
                raise Finding(f"it took more than {patience} seconds:\n{self._stopped()}")
            answer, peak = self._pipe.recv()
        except (EOFError, ConnectionError):
            raise Finding(f"it ended the process:\n{self._last_words()}") from None
        return answer, peak

    def close(self) -> None:
        self._pipe.close()
        self._process.kill()
        self._process.join()
        self._process.close()
        self._said.close()

    def _stopped(self) -> str:
        """Where it was, by an end that is told."""
        assert self._process.pid is not None
        self._process.terminate()
        return self._last_words()

    def _last_words(self) -> str:
        self._process.join(10)
        said = Path(self._said.name).read_text(errors="replace")
        return f"{said}status {self._process.exitcode}"


def _serve(pipe: Connection, said: str) -> None:
    """The life of the other process."""
    words = Path(said).open("w")  # noqa: SIM115  open as long as the process
    faulthandler.enable(words)
    faulthandler.register(signal.SIGTERM, words, chain=True)
    resource.setrlimit(resource.RLIMIT_DATA, (_FENCE, _FENCE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while True:
        try:
            function, given = pipe.recv()
        except EOFError:
            return
        try:
            answer = function(*given)
        except Exception:  # noqa: BLE001  told in the other process
            answer = _Raised(traceback.format_exc())
        pipe.send((answer, _peak()))


def _peak() -> int:
    """Bytes. Of this program alone: `getrusage` knows also those of the one that started it."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) << 10
