"""How long changes that a reader has not read are kept (CF-186 to CF-189).

Readers are subscriptions, and the tables that a project builds from the feed of others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from mirrorlake.delta.log.retention import FILES, LOG, RetentionTimes, parse_interval
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.feed.commits.history import CommitHistory
from mirrorlake.feed.subscriptions.record import SubscriptionRecord

KEEPS = "mirrorlake.keeps"
"""The property with the retention times that the mirror has set, which it may shorten again."""

MARGIN = 0.1
"""The part of a retention by which changes are held early: files are older than the commit that
adds them, clocks differ, and checks are periodic."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Retention settings.

    vacuum: age after which vacuum deletes files, None for never.
    hold: age up to which it does not, when a reader needs them; 0 for no such hold.
    warning: the fraction of that time below which a reader is reported as late.
    """

    vacuum: timedelta | None = timedelta(days=7)
    hold: timedelta = timedelta(days=14)
    warning: float = 0.25


@dataclass(frozen=True, slots=True)
class FeedReader:
    """A reader of the feed of a table.

    table_id: of Delta.
    next: the first version that it has not read, None if it starts with a snapshot.
    """

    name: str
    table_id: str
    next: int | None

    @classmethod
    def of(cls, record: SubscriptionRecord) -> Self:
        return cls(record.name, record.table_id, record.next)


@dataclass(frozen=True, slots=True)
class NeededVersion:
    """The first version that a reader has not read.

    time: of its commit.
    begins: when vacuum may delete its changes; forgotten: when the log may.
    ends: until when both wait for this reader.
    """

    reader: str
    version: int
    time: datetime
    begins: datetime
    forgotten: datetime
    ends: datetime

    def is_held(self, now: datetime) -> bool:
        """Whether vacuum or the log clean-up would now delete what the reader needs, and has to
        wait."""
        return min(self.begins, self.forgotten) < now <= self.ends

    def is_held_in_log(self, now: datetime) -> bool:
        """Whether the log clean-up would now delete what the reader needs."""
        return self.forgotten < now <= self.ends

    def is_cut_off(self, now: datetime) -> bool:
        """Whether vacuum no longer waits for the reader."""
        return now > self.ends

    def is_late(self, now: datetime, share: float) -> bool:
        """Whether less than this fraction of the time is left."""
        return self.ends - now < (self.ends - self.time) * share

    def seconds_left(self, now: datetime) -> float:
        return max((self.ends - now).total_seconds(), 0.0)


def needed_versions(
    log: TableLog, readers: Iterable[FeedReader], retention: Retention
) -> list[NeededVersion]:
    """The versions that readers of one table need. Readers that have read everything need none, and
    none are kept for readers that can only continue with a snapshot.

    Vacuum deletes what is older than its setting, or than the table's; without vacuum, versions end
    only with the log. Raises FileNotFoundError, BrokenLog.
    """
    snapshot = log.snapshot()
    if not snapshot.exists:
        return []
    history = CommitHistory(log)
    keeps, found = history.keeps, []
    vacuum = keeps.log if retention.vacuum is None else min(retention.vacuum, keeps.files)
    ends = max(min(vacuum, keeps.log), retention.hold)
    begins, forgotten = (
        length * (1 - MARGIN) if length < ends else length for length in (vacuum, keeps.log)
    )
    for reader in readers:
        first, is_same = reader.next, reader.table_id == history.table_id
        if first is not None and is_same and history.oldest <= first <= history.latest:
            time = history.time(first)
            times = (time + begins, time + forgotten, time + ends)
            found.append(NeededVersion(reader.name, first, time, *times))
    return found


def changed_properties(
    properties: Mapping[str, str], retention: Retention, *, is_held: bool
) -> dict[str, str]:
    """The table properties to set for the required retention, as far as they differ.

    Files are kept for `vacuum`, or for `hold` while a reader holds them: otherwise Delta's batch
    reader refuses files that vacuum has kept (CF-126, CF-188). The log is kept at least as long,
    and at least as long as Delta's default. A longer time set by someone else is kept. Without
    vacuum, only the log retention is extended.
    """
    keeps = RetentionTimes.of(properties)
    files = keeps.files if retention.vacuum is None else retention.vacuum
    hold = max(files, retention.hold) if is_held else files
    needed = RetentionTimes(
        files if retention.vacuum is None else hold, max(hold, RetentionTimes().log)
    ).properties()
    known = keeps.properties()
    ours = dict(zip(needed, properties.get(KEEPS, "").split(", "), strict=False))
    result = {
        name: value
        if properties.get(name, ours.get(name)) == ours.get(name)
        or _length(value) > _length(known[name])
        else known[name]
        for name, value in needed.items()
    }
    if _length(result[LOG]) < _length(result[FILES]):
        result[LOG] = result[FILES]
    changed = {name: value for name, value in result.items() if value != known[name]}
    if not changed:
        return {}
    return changed | {KEEPS: ", ".join(changed.get(name, ours.get(name, "")) for name in needed)}


def _length(interval: str) -> timedelta:
    return parse_interval(interval) or timedelta()
