"""Snapshots that the source does not take yet, because a transaction of others goes on.

Transactions end, so that nothing is wrong at first; one that nobody ends, as one that was prepared
and forgotten, keeps tables from being loaded and read again for ever.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime

import structlog

from mirrorlake.capture.records.records import Records
from mirrorlake.capture.records.source_state import SnapshotWait
from mirrorlake.model.clock import Clock
from mirrorlake.sources.base import AwaitedTransaction, Pulse

log = structlog.get_logger()

LOOK_SECONDS = 0.5

SNAPSHOT_WAITS = "snapshot_waits"
SNAPSHOT_WAIT_ENDED = "snapshot_wait_ended"


class SnapshotWaits:
    """Logs and records for what a snapshot waits. For one thread at a time."""

    def __init__(self, records: Records | None, clock: Clock) -> None:
        """records: None for a command beside the capture, whose records these are."""
        self._records, self._clock = records, clock
        self._wait: SnapshotWait | None = None

    def begin(self) -> None:
        """Whatever an earlier process has left is over."""
        self._wait = None
        if self._records is not None:
            self._records.end_wait()

    def found(self, awaited: AwaitedTransaction | None) -> None:
        """What is waited for now, None for nothing."""
        if awaited is None:
            self.end()
        elif self._wait is None or self._wait.transaction != awaited:
            now = self._clock.now()
            self._wait = SnapshotWait(now, awaited)
            log.warning(
                SNAPSHOT_WAITS,
                transaction=awaited.name,
                age_seconds=_seconds(awaited.began, now),
                hint=awaited.remedy,
            )
            if self._records is not None:
                self._records.begin_wait(self._wait)

    def end(self) -> None:
        """Nothing is waited for, or nobody looks any more."""
        if self._wait is not None:
            seconds = _seconds(self._wait.since, self._clock.now())
            log.info(SNAPSHOT_WAIT_ENDED, transaction=self._wait.transaction.name, seconds=seconds)
            self._wait = None
            if self._records is not None:
                self._records.end_wait()


@contextmanager
def logged_waits(pulse: Pulse | None, clock: Clock, is_over: Callable[[], bool]) -> Iterator[None]:
    """While a snapshot is taken, log for what it waits. Once that `is_over`, who takes it gets
    SourceUnavailable."""
    done, waits = threading.Event(), SnapshotWaits(None, clock)

    def look(pulse: Pulse) -> None:
        with closing(pulse):
            while not done.wait(LOOK_SECONDS):
                waits.found(pulse.awaited())
                if is_over():
                    pulse.stop_waiting()
        waits.end()

    if pulse is None:
        yield
        return
    thread = threading.Thread(target=look, args=[pulse], daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _seconds(since: datetime | None, now: datetime) -> float | None:
    return None if since is None else round((now - since).total_seconds(), 1)
