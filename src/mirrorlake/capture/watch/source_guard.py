"""What a source is kept from: a log that fills its disk, and changes that it rejects for us."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from mirrorlake.capture.record import Records
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.capture.watch.retention import LogRetention, LogRetentionWatch, RetentionPolicy
from mirrorlake.errors import SourceGap
from mirrorlake.model.clock import Clock
from mirrorlake.sources.base import REPAIR, ManagedObjects

log = structlog.get_logger()

RETAINED = "source_log_retained"

CHECK_SECONDS = 1.0


class SourceGuard:
    """Guards one source, of which `objects` are the managed ones. retained: called with
    what the source keeps of its log. Not for several threads."""

    def __init__(
        self,
        objects: ManagedObjects | None,
        records: Records,
        settings: CaptureSettings,
        clock: Clock,
        retained: Callable[[LogRetention], None],
    ) -> None:
        self._objects, self._records, self._settings = objects, records, settings
        self._clock, self._retained = clock, retained
        self._retention = LogRetentionWatch(settings.retained_limit)
        self._checked = self._looked = float("-inf")
        self._rejected = 0  # so often in a row

    def finds_rejected(self) -> bool:
        """Whether the source rejects changes because they would be streamed; looks once a second
        at most, and less often at what could not be mended."""
        now = self._clock.monotonic()
        pause = self._settings.watch_seconds if self._rejected > 1 else CHECK_SECONDS
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
