"""A program in a pseudo-terminal of a given width."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
HEIGHT = 24


class Terminal:
    """Everything that a program writes, which has a terminal for all three streams."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        *,
        columns: int = 80,
        term: str = "xterm",
        **environment: str,
    ) -> None:
        inherited = {k: v for k, v in os.environ.items() if k not in {"NO_COLOR", "COLUMNS"}}
        self.raw = ""
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe(command[0], command, inherited | {"TERM": term} | environment)
        size = struct.pack("HHHH", HEIGHT, columns, 0, 0)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, size)
        self.code: int | None = None
        self.cpu_seconds = 0.0

    @property
    def lines(self) -> list[str]:
        """What was written, without what moves the cursor."""
        return ESCAPE.sub("", self.raw).replace("\r\n", "\n").replace("\r", "\n").splitlines()

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def until(self, holds: str | Callable[[], bool], seconds: float = 120) -> None:
        """Read until a text is there, or something holds, or the program has ended."""
        deadline = time.monotonic() + seconds
        while not (holds in self.text if isinstance(holds, str) else holds()):
            assert self._read(), f"it ended: {self.text}"
            assert time.monotonic() < deadline, self.text

    def presses_ctrl_c(self) -> None:
        os.write(self._fd, b"\x03")

    def ended(self, seconds: float = 60) -> int:
        """Wait for the end. Returns the exit code."""
        deadline = time.monotonic() + seconds
        while self._read():
            assert time.monotonic() < deadline, self.text
        return self._reap()

    def close(self) -> None:
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            self._reap()

    def _reap(self) -> int:
        if self.code is None:
            _, status, used = os.wait4(self.pid, 0)
            self.cpu_seconds = used.ru_utime + used.ru_stime
            self.code = os.waitstatus_to_exitcode(status)
            os.close(self._fd)
        return self.code

    def _read(self) -> bool:
        """Read what is there. Returns whether there may be more."""
        ready, _, _ = select.select([self._fd], [], [], 0.1)
        if not ready:
            return True
        try:
            found = os.read(self._fd, 1 << 16)
        except OSError:  # the other side is closed
            return False
        self.raw += found.decode(errors="replace")
        return bool(found)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
