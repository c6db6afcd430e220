"""What a look at the source finds: it is logged once, and tables that differ are recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import structlog

from mirrorlake.capture.records.looks import Unfollowed
from mirrorlake.capture.records.records import Records
from mirrorlake.model.clock import Clock
from mirrorlake.model.landed import format_time
from mirrorlake.sources.base import DESCRIBED, DIFFERS, UNFOLLOWED, CheckResult, CheckSeverity

log = structlog.get_logger()

FINDING = "source_finding"

READ_AGAIN = (
    "Unless mirror.schema_change says stop or ignore, the table is read again by itself; "
    "`mirrorlake status` shows how far it is."
)


class Findings:
    """The findings of one process. awaits_log: whether the log has more of what the last look has
    found than the stream has read."""

    def __init__(self, records: Records, clock: Clock) -> None:
        self._records, self._clock = records, clock
        self._logged: set[CheckResult] = set()
        self.awaits_log = False

    def told(self, found: Sequence[CheckResult]) -> Iterator[CheckResult]:
        """Each of all that a look has found that is not in order, after it is logged, unless that
        was done before."""
        self.awaits_log = any(one.check == DESCRIBED for one in found)
        self._note([one for one in found if one.check == UNFOLLOWED])
        for finding in found:
            if finding.severity is CheckSeverity.OK:
                continue
            if finding not in self._logged:
                self._logged.add(finding)
                told(finding)
            yield finding

    def _note(self, unfollowed: Sequence[CheckResult]) -> None:
        """Record the tables that differ until one of their rows changes, for `status`."""
        before = self._records.unfollowed()
        after = {
            str(one.table): before.get(str(one.table))
            or Unfollowed(format_time(self._clock.now()), one.message)
            for one in unfollowed
        }
        if after != before:
            self._records.write_unfollowed(after)


def told(finding: CheckResult) -> None:
    """Log a finding."""
    about = {"table": str(finding.table)} if finding.table else {}
    # Its remedy is for a table that cannot be read again.
    hint = READ_AGAIN if finding.check == DIFFERS else finding.remedy
    log.warning(FINDING, check=finding.check, message=finding.message, hint=hint, **about)
