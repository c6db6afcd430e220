"""What follows from the outcome of a batch: made durable, reported, or tried again later."""

from __future__ import annotations

from datetime import datetime
from threading import Event

import structlog

from mirrorlake.app.loop.planning import Planning
from mirrorlake.app.loop.report import ApplyReport
from mirrorlake.app.loop.retries import Retries
from mirrorlake.app.loop.watcher import Watcher
from mirrorlake.app.status.monitor import Monitor
from mirrorlake.apply.table_definitions import log_created
from mirrorlake.errors import MirrorlakeError, TableError
from mirrorlake.mirror.engine import (
    AlreadyApplied,
    Applied,
    Conflicted,
    Failed,
    MirrorEngine,
    Outcome,
    Unknown,
)
from mirrorlake.mirror.faults import UnreadableFile
from mirrorlake.mirror.steps import ApplyFiles

log = structlog.get_logger()

BATCH_REPEATED = "batch_already_applied"
BATCH_DEFERRED = "batch_deferred"


class Outcomes:
    """Notes outcomes for one loop."""

    def __init__(
        self,
        engine: MirrorEngine,
        report: ApplyReport,
        retries: Retries,
        planning: Planning,
        monitor: Monitor,
        watcher: Watcher,
        stop: Event,
    ) -> None:
        self._engine, self._report, self._retries = engine, report, retries
        self._planning, self._monitor, self._watcher = planning, monitor, watcher
        self._stop = stop

    def note(self, step: ApplyFiles, outcome: Outcome, begun: datetime) -> bool:
        """Take note of an outcome. Returns whether the table got on. Raises what is no table's
        error."""
        match outcome:
            case Applied(version):
                self._engine.make_durable(step.path, version)
                if step.creates is not None and not version:  # others were before
                    log_created(step.creates)
                self._report.add(step, outcome)
                self._planning.limits.applied(step.evidence.landed_bytes)
                self._monitor.applied(step, outcome, begun)
                self._watcher.applied(step, outcome)
                self._retries.succeeded(step.table)
                return True
            case AlreadyApplied(recorded):
                log.info(BATCH_REPEATED, table=str(step.table), recorded=recorded)
                self._retries.succeeded(step.table)
                return True
            case Conflicted(reason) | Unknown(reason):
                # The state of the table is read again; what it has recorded decides.
                log.warning(BATCH_DEFERRED, table=str(step.table), reason=reason)
                if error := self._retries.deferred(step, outcome):
                    self._report.fail(step.table, step.path, error)
                return False
            case Failed() if self._stop.is_set():
                # Its jobs were cancelled, or its JVM ended on the same signal. It is done again.
                return False
            case Failed(error):
                return self._refuse(step, error)

    def _refuse(self, step: ApplyFiles, error: MirrorlakeError) -> bool:
        """A batch cannot be applied. Returns whether a part of it may be."""
        if not isinstance(error, TableError):
            raise error
        self._report.fail(step.table, step.path, error)
        named = next((file for file in step.files if str(file.name) == error.file), None)
        if named is None or isinstance(error, UnreadableFile):
            self._retries.failed(step, error)
        if named is None:
            return False
        if isinstance(error, UnreadableFile):
            self._planning.scanner.forget(named.path)  # it is looked at anew: it may be gone
        else:
            self._planning.refused(named, error)
        return True
