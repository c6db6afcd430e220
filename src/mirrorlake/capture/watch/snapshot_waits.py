"""Snapshots that the source does not take yet, because a transaction of others goes on.

Transactions end, so that nothing is wrong at first; one that nobody ends, as one that was prepared
and forgotten, keeps tables from being loaded and read again for ever.
"""

from __future__ import annotations

from datetime import datetime

import structlog

from mirrorlake.capture.record import Records, SnapshotWait
from mirrorlake.model.clock import Clock
from mirrorlake.sources.base import AwaitedTransaction

log = structlog.get_logger()

SNAPSHOT_WAITS = "snapshot_waits"
SNAPSHOT_WAIT_ENDED = "snapshot_wait_ended"


class SnapshotWaits:
    """Records for what a snapshot waits. For one thread at a time."""

    def __init__(self, records: Records, clock: Clock) -> None:
        self._records, self._clock = records, clock
        self._wait: SnapshotWait | None = None

    def begin(self) -> None:
        """Whatever an earlier process has left is over."""
        self._wait = None
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
            self._records.begin_wait(self._wait)

    def end(self) -> None:
        """Nothing is waited for, or nobody looks any more."""
        if self._wait is not None:
            seconds = _seconds(self._wait.since, self._clock.now())
            log.info(SNAPSHOT_WAIT_ENDED, transaction=self._wait.transaction.name, seconds=seconds)
            self._wait = None
            self._records.end_wait()


def _seconds(since: datetime | None, now: datetime) -> float | None:
    return None if since is None else round((now - since).total_seconds(), 1)
