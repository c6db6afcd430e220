"""What a look at the source finds, logged once."""

from __future__ import annotations

import structlog

from mirrorlake.sources.base import CheckResult

log = structlog.get_logger()

FINDING = "source_finding"


class Findings:
    """The findings of one process."""

    def __init__(self) -> None:
        self._logged: set[CheckResult] = set()

    def log(self, finding: CheckResult) -> None:
        """Log a finding, unless it was logged before."""
        if finding not in self._logged:
            self._logged.add(finding)
            told(finding)


def told(finding: CheckResult) -> None:
    """Log a finding."""
    about = {"table": str(finding.table)} if finding.table else {}
    log.warning(FINDING, check=finding.check, message=finding.message, hint=finding.remedy, **about)
