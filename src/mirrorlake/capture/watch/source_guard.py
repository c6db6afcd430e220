"""What a source is kept from: a log that fills its disk, and changes that it rejects for us. And
when it is time to look at it."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from mirrorlake.capture.records.records import Records
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.capture.watch.retention import LogRetention, LogRetentionWatch, RetentionPolicy
from mirrorlake.capture.watch.still_log import STILL_SECONDS, StillLog
from mirrorlake.errors import SourceGap
from mirrorlake.model.clock import Clock
from mirrorlake.model.position import LogPoint
from mirrorlake.sources.base import REPAIR, Source

log = structlog.get_logger()

RETAINED = "source_log_retained"

CHECK_SECONDS = 1.0

READ_SECONDS, STILL_READ_SECONDS = 1.0, 2.0
"""How long to wait for the stream at once: between two waits is looked for requests and signals."""


class SourceGuard:
    """Guards one source. retained: called with what it keeps of its log. Not for several
    threads."""

    def __init__(
        self,
        source: Source,
        records: Records,
        settings: CaptureSettings,
        clock: Clock,
        retained: Callable[[LogRetention], None],
    ) -> None:
        self._source, self._records, self._settings = source, records, settings
        self._objects = source.objects
        self._clock, self._retained = clock, retained
        self._retention = LogRetentionWatch(settings.retained_limit)
        self._checked = self._looked = float("-inf")
        self._log = StillLog(clock)
        self._watched = self._asked = clock.monotonic()
        self._position: LogPoint | None = None  # where the log stood when that was asked last
        self._rejected = 0  # so often in a row

    def moved(self) -> None:
        """The log of the source has moved, or it is unknown whether it has."""
        if self._log.is_still:
            self._asked = float("-inf")
        self._log.moved()

    @property
    def read_seconds(self) -> float:
        """How long to wait for the stream at once."""
        return self._log.pause(READ_SECONDS, STILL_READ_SECONDS)

    def is_watch_due(self) -> bool:
        """Whether it is time for a look at the whole source, which is done then. Asks the source
        where its log stands: a stream may be kept from telling it."""
        now = self._clock.monotonic()
        if now - self._asked < self._settings.watch_seconds:
            return False
        self._asked, before, self._position = now, self._position, self._source.current()
        if self._position != before:
            self._log.moved()
        if now - self._watched < self._log.pause(0.0, STILL_SECONDS):
            return False
        self._watched = now
        return True

    def look_soon(self) -> None:
        """Something was found that the next look will treat."""
        self._asked = self._watched = float("-inf")

    def finds_rejected(self) -> bool:
        """Whether the source rejects changes because they would be streamed; looks once a second
        at most, and less often at what could not be mended, and while its log stands still."""
        now, seldom = self._clock.monotonic(), self._settings.watch_seconds
        pause = seldom if self._rejected > 1 else self._log.pause(CHECK_SECONDS, seldom)
        if self._objects is None or now - self._checked < pause:
            return False
        self._checked = now
        found = self._objects.rejects_changes()
        self._rejected = self._rejected + 1 if found else 0
        return found

    def is_due(self) -> bool:
        """Whether it is time to look at the log again."""
        return self._clock.monotonic() - self._looked >= self._settings.watch_seconds

    def look_at_log(self) -> SourceGap | None:
        """Look at how much of its log the source keeps. Returns a gap once it is to keep no more:
        then call `release` when no stream is open."""
        self._looked = self._clock.monotonic()
        if self._objects is None or (kept := self._objects.retained()) is None:
            return None
        found = self._retention.look(self._clock.now(), kept)
        self._records.write_retained(found.facts())
        self._retained(found)
        limit, policy = self._settings.retained_limit, self._settings.retained_policy
        if limit is None or found.size <= limit:
            return None
        log.warning(RETAINED, bytes=found.size, limit=limit, policy=str(policy))
        # What is too much and shrinks will soon be right.
        if policy is RetentionPolicy.WARN or not self._retention.is_growing():
            return None
        return SourceGap(
            f"the replication slot was dropped, because the source kept {found.size:,} bytes of "
            f"its log for it, more than {limit:,}",
            where="capture.retained_limit",
            hint=REPAIR,
        )

    def release(self) -> None:
        """Let the source keep nothing of its log."""
        if self._objects is not None:
            self._objects.release()
