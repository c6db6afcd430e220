"""The retention of old files and commits of a table, as set in its properties."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Self

FILES, LOG = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"
_DEFAULTS = {FILES: timedelta(days=7), LOG: timedelta(days=30)}
_UNITS = {"week": 604_800.0, "day": 86_400.0, "hour": 3_600.0, "minute": 60.0, "second": 1.0}
_INTERVAL = re.compile(rf"(\d+) *({'|'.join(_UNITS)})s?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RetentionTimes:
    """files: how long data and change files are kept after their removal; log: how long commits are
    kept."""

    files: timedelta = _DEFAULTS[FILES]
    log: timedelta = _DEFAULTS[LOG]

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Self:
        """The retention in the properties of a table; Delta's defaults for missing properties."""
        files, log = (
            parse_interval(properties.get(name, "")) or default
            for name, default in _DEFAULTS.items()
        )
        return cls(files, log)

    def properties(self) -> dict[str, str]:
        return {FILES: _interval(self.files), LOG: _interval(self.log)}


def parse_interval(text: str) -> timedelta | None:
    """Parse an interval such as `interval 7 days`; None if it is not one."""
    found = _INTERVAL.findall(text)
    seconds = sum(int(count) * _UNITS[unit.lower()] for count, unit in found)
    return timedelta(seconds=seconds) if found else None


def _interval(length: timedelta) -> str:
    days = length / timedelta(days=1)
    whole = f"{days:.0f} days" if days.is_integer() else f"{length.total_seconds():.0f} seconds"
    return f"interval {whole}"
