"""The retention of old files and commits of a table, as set in its properties."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Self

FILES, LOG = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"
_DEFAULTS = {FILES: timedelta(days=7), LOG: timedelta(days=30)}
_UNITS = {
    "week": 604_800.0,
    "day": 86_400.0,
    "hour": 3_600.0,
    "minute": 60.0,
    "second": 1.0,
    "millisecond": 1e-3,
    "microsecond": 1e-6,
}
_INTERVAL = re.compile(rf"([+-]?(?:\d+\.?\d*|\.\d+)) *({'|'.join(_UNITS)})s?\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RetentionTimes:
    """files: how long data and change files are kept after their removal; log: how long commits are
    kept."""

    files: timedelta = _DEFAULTS[FILES]
    log: timedelta = _DEFAULTS[LOG]

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Self:
        """The retention in the properties of a table; Delta's defaults for missing properties."""
        found = {name: parse_interval(properties.get(name, "")) for name in _DEFAULTS}
        files, log = (
            # A time of nothing is one, too: of such a table everything may be removed at once.
            default if (time := found[name]) is None else time
            for name, default in _DEFAULTS.items()
        )
        return cls(files, log)

    @property
    def readable(self) -> timedelta:
        """How long files are taken to be there. A table that keeps them for no time says nothing of
        those that are still there, and counts as one that says nothing."""
        return self.files or _DEFAULTS[FILES]

    def properties(self) -> dict[str, str]:
        return {FILES: _interval(self.files), LOG: _interval(self.log)}


def parse_interval(text: str) -> timedelta | None:
    """Parse an interval such as `interval 7 days`; None if it is not one."""
    found = _INTERVAL.findall(text)
    seconds = sum(float(count) * _UNITS[unit.lower()] for count, unit in found)
    return timedelta(seconds=seconds) if found else None


def _interval(length: timedelta) -> str:
    days = length / timedelta(days=1)
    whole = f"{days:.0f} days" if days.is_integer() else f"{length.total_seconds():.0f} seconds"
    return f"interval {whole}"
