"""Ending on a signal: within five seconds, losing nothing.

For a mirror the first signal asks the run to stop after the step at hand. If that takes too long
our Spark jobs are cancelled, and in the end the process leaves: whatever is not committed by then
is done again at the next start, because that is what a crash would leave too.

The demo is not taken up again: what it started ends at once, and what it made is removed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

CANCEL_AFTER = 1.5
EXIT_AFTER = 4.5
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
LEFT = "\nStopped during a step; the step is repeated at the next start.\n"
_SHOW_CURSOR = "\x1b[?25h"
"""A live bar hides it."""


class Stop:
    """Turns SIGTERM and SIGINT into an event. `cancel` ends what is under way."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.cancel: Callable[[], None] = lambda: None
        self._terminal = os.dup(2)  # while Spark starts, 2 is its log
        for number in _SIGNALS:
            signal.signal(number, self._signalled)

    def _signalled(self, _number: int, _frame: FrameType | None) -> None:
        self.begin()

    def begin(self) -> None:
        """End what is under way, within seconds."""
        if not self.event.is_set():
            self.event.set()
            threading.Thread(target=self._see_to_it, daemon=True, name="stop").start()

    def _see_to_it(self) -> None:
        done = threading.Event()
        done.wait(CANCEL_AFTER)
        try:
            self.cancel()
        finally:
            done.wait(EXIT_AFTER - CANCEL_AFTER)
            with contextlib.suppress(OSError):
                if os.isatty(self._terminal):
                    os.write(self._terminal, _SHOW_CURSOR.encode())
                os.write(self._terminal, LEFT.encode())
            os._exit(0)


def exit_at_once(clean_up: Callable[[], None], last_words: str) -> None:
    """From now on SIGTERM and SIGINT clean up and end the process with 128 and their number.

    The work on the main thread stands still meanwhile, and never goes on: it sees nothing of what
    is taken from under it.
    """
    terminal = os.dup(2)  # while Spark starts, 2 is its log
    words = f"{_SHOW_CURSOR if sys.stderr.isatty() else ''}\n{last_words}\n"

    def signalled(number: int, _frame: FrameType | None) -> None:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        last = threading.Timer(EXIT_AFTER, os._exit, [128 + number])
        last.daemon = True
        last.start()
        _silence()
        with contextlib.suppress(Exception):
            clean_up()
        os.write(terminal, words.encode())
        os._exit(128 + number)

    for number in _SIGNALS:
        signal.signal(number, signalled)


def _silence() -> None:
    """Other threads fail now, because we end what they work with; that is no news."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
