"""Capture in a process of its own, so that decoding and Spark's driver do not share one Python."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection

from mirrorlake.app.process import skip_pandas
from mirrorlake.errors import InternalError, MirrorlakeError, StorageUnavailable

STOP_SECONDS = 4.0
"""How long capture may take to finish the step at hand."""


class CaptureProcess:
    """Starts, watches and stops the capture of a mirror."""

    def __init__(
        self, capture: Callable[[threading.Event], None], prepare: Callable[[], None] | None = None
    ) -> None:
        """capture: runs until its event is set; prepare: called in the process first. Both must
        pickle."""
        context = multiprocessing.get_context("spawn")
        self._reports, sending = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_run, args=(capture, sending, prepare), name="capture", daemon=True
        )
        self._sending = sending
        self._stopped = False

    def start(self) -> None:
        self._process.start()
        self._sending.close()  # so that the end of the child is the end of the pipe

    def check(self) -> None:
        """Raise what ended the process, if something did."""
        if self._reports.poll():
            try:
                error = self._reports.recv()
            except EOFError:
                error = None
            if isinstance(error, MirrorlakeError):
                raise error
        if not self._process.is_alive() and self._process.pid and not self._stopped:
            raise InternalError(
                f"the capture process ended with status {self._process.exitcode}",
                where="the capture process",
                hint="See its log for the cause.",
            )

    def stop(self) -> None:
        self._stopped = True
        if self._process.pid is None:
            return
        self._process.terminate()
        self._process.join(STOP_SECONDS)
        if self._process.is_alive():
            self._process.kill()  # what it had not published is read again next time
            self._process.join()


def _run(
    capture: Callable[[threading.Event], None],
    reports: Connection,
    prepare: Callable[[], None] | None,
) -> None:
    skip_pandas()
    if prepare is not None:
        prepare()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    try:
        capture(stop)
    except MirrorlakeError as error:
        reports.send(error)
    except OSError as error:
        refused = StorageUnavailable.of(error)
        if refused is None:
            raise
        reports.send(refused)
    reports.close()
