"""Ends a command within five seconds after a signal, without losing data.

The first signal asks the run of a mirror to stop after the current step. If that takes too long,
our Spark jobs are cancelled, and finally the process exits: whatever is not committed by then is
done again at the next start, as after a crash.

The demo is not continued later: it stops at once and removes what it created.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

CANCEL_AFTER = 1.5
CANCEL_EVERY = 0.25
"""A step of several Spark jobs begins the next when one has been cancelled, and may be between two
of them."""
EXIT_AFTER = 4.5
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
LEFT = "\nStopped during a step; the step is repeated at the next start.\n"
_SHOW_CURSOR = "\x1b[?25h"
"""A live bar hides it."""


class Stop:
    """Turns SIGTERM and SIGINT into an event. `cancel` ends the current step; it is called again
    and again until the process has ended. exit_code: of one that did not end in time by itself."""

    def __init__(self, exit_code: int = 0) -> None:
        self._exit_code = exit_code
        self.event = threading.Event()
        self.cancel: Callable[[], None] = lambda: None
        self._terminal = os.dup(2)  # while Spark starts, descriptor 2 is redirected to its log
        for number in _SIGNALS:
            signal.signal(number, self._signalled)

    def _signalled(self, _number: int, _frame: FrameType | None) -> None:
        self.begin()

    def begin(self) -> None:
        """End the current step within seconds."""
        if not self.event.is_set():
            self.event.set()
            for follow in (self._keep_cancelling, self._exit):
                threading.Thread(target=follow, daemon=True, name="stop").start()

    def _keep_cancelling(self) -> None:
        """Until the process ends; apart from what ends it, because a JVM may never answer."""
        time.sleep(CANCEL_AFTER)
        while True:
            with contextlib.suppress(Exception):  # the JVM may be gone
                self.cancel()
            time.sleep(CANCEL_EVERY)

    def _exit(self) -> None:
        time.sleep(EXIT_AFTER)
        with contextlib.suppress(OSError):
            if os.isatty(self._terminal):
                os.write(self._terminal, _SHOW_CURSOR.encode())
            os.write(self._terminal, LEFT.encode())
        os._exit(self._exit_code)


def exit_at_once(clean_up: Callable[[], None], message: str) -> None:
    """From now on SIGTERM and SIGINT clean up and end the process with 128 and their number.

    The main thread waits meanwhile and never continues, so it does not see that what it uses is
    removed.
    """
    terminal = os.dup(2)  # while Spark starts, descriptor 2 is redirected to its log
    line = f"{_SHOW_CURSOR if sys.stderr.isatty() else ''}\n{message}\n"

    def signalled(number: int, _frame: FrameType | None) -> None:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        last = threading.Timer(EXIT_AFTER, os._exit, [128 + number])
        last.daemon = True
        last.start()
        _silence()
        with contextlib.suppress(Exception):
            clean_up()
        os.write(terminal, line.encode())
        os._exit(128 + number)

    for number in _SIGNALS:
        signal.signal(number, signalled)


def _silence() -> None:
    """Do not report errors of other threads: they fail because we end what they use."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(null, stream)
