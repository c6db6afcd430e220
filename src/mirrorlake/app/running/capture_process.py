"""Capture in a process of its own, so that decoding and Spark's driver do not share one Python."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import select
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from multiprocessing.connection import Connection

from mirrorlake.app.loop.watcher import Watcher
from mirrorlake.app.running.process import begun
from mirrorlake.capture.sink import LoadProgress
from mirrorlake.capture.watch.retention import LogRetention
from mirrorlake.errors import (
    InternalError,
    MirrorlakeError,
    SourceUnavailable,
    StorageUnavailable,
)
from mirrorlake.model.table import TableId

STOP_SECONDS = 3.0
"""How long capture may take to finish the step at hand, before it is left. What it had not
published is read again next time."""

TELL_EVERY = 0.5
"""Seconds between two messages on the load of a table."""


class CaptureProcess:
    """Starts, watches and stops the capture of a mirror. It ends with the process that started it,
    however that ends."""

    def __init__(
        self,
        capture: Callable[[threading.Event, Watcher], None],
        prepare: Callable[[], None] | None = None,
        watcher: Watcher | None = None,
    ) -> None:
        """capture: runs until its event is set; prepare: called in the process first. Both must
        pickle. watcher: called, by `check`, with what capture reports."""
        self._watcher = watcher or Watcher()
        context = multiprocessing.get_context("spawn")
        self._reports, sending = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_run, args=(capture, sending, prepare), name="capture", daemon=True
        )
        self._sending, self._poll = sending, select.poll()
        self._poll.register(self._reports.fileno(), select.POLLIN)
        self._stopped = self._is_silent = False

    def start(self) -> None:
        self._process.start()
        self._sending.close()  # so that the end of the child is the end of the pipe

    def check(self) -> None:
        """Pass on what it reported, and raise what ended it, if something did."""
        while self._is_told():
            try:
                report = self._reports.recv()
            except EOFError:
                self._is_silent = True
                break
            match report:
                case _Waiting(error):
                    self._watcher.waiting(error)
                case MirrorlakeError():
                    raise report
                case LoadProgress():
                    self._watcher.loading(report)
                case LogRetention():
                    self._watcher.retained(report)
        if not self._process.is_alive() and self._process.pid and not self._stopped:
            raise InternalError(
                f"the capture process ended with status {self._process.exitcode}",
                where="the capture process",
                hint="See its log for the cause.",
            )

    def _is_told(self) -> bool:
        return not self._is_silent and bool(self._poll.poll(0))

    @property
    def is_alive(self) -> bool:
        return self._process.pid is not None and self._process.is_alive()

    def ask_to_stop(self) -> None:
        """Let it finish the step at hand; it ends by itself then."""
        self._stopped = True
        if self.is_alive:
            self._process.terminate()

    def stop(self, patience: float = STOP_SECONDS) -> None:
        self.ask_to_stop()
        if self._process.pid is None:
            return
        self._process.join(patience)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Why the source is waited for."""

    error: SourceUnavailable | None


class _Teller(Watcher):
    """Sends what capture reports, as long as somebody listens, and no more than is read."""

    def __init__(self, reports: Connection) -> None:
        self._reports, self._lock = reports, threading.Lock()
        self._sent: dict[TableId, float] = {}

    def loading(self, progress: LoadProgress) -> None:
        now = time.monotonic()
        if progress.done or now - self._sent.get(progress.table, -inf) >= TELL_EVERY:
            self._sent[progress.table] = now
            self._send(progress, must=progress.done)

    def retained(self, log: LogRetention) -> None:
        self._send(log)

    def waiting(self, error: SourceUnavailable | None) -> None:
        self._send(_Waiting(error), must=True)

    def _send(self, report: object, *, must: bool = False) -> None:
        with self._lock, contextlib.suppress(OSError):
            # Nobody waits for who does not read.
            if must or select.select([], [self._reports.fileno()], [], 0)[1]:
                self._reports.send(report)


def _end_with_parent(stop: threading.Event) -> None:
    """Stop when the process that started this one is gone, however it ended."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        stop.set()


def _end_in_time(stop: threading.Event) -> None:
    stop.wait()
    time.sleep(STOP_SECONDS)
    os._exit(0)


def _run(
    capture: Callable[[threading.Event, Watcher], None],
    reports: Connection,
    prepare: Callable[[], None] | None,
) -> None:
    stop = begun(prepare)
    for follow in (_end_with_parent, _end_in_time):
        threading.Thread(target=follow, args=[stop], daemon=True).start()
    try:
        capture(stop, _Teller(reports))
    except MirrorlakeError as error:
        reports.send(error)
    except OSError as error:
        refused = StorageUnavailable.of(error)
        if refused is None:
            raise
        reports.send(refused)
    reports.close()
