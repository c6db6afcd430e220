"""How long the changes that a reader has not read are kept (CF-186 to CF-189).

Readers are subscriptions, and the tables that a project builds from the feed of others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from mirrorlake.delta.log.retention import FILES, LOG, KeepTimes, parse_interval
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.feed.commit_history import CommitHistory
from mirrorlake.feed.subscriptions.record import SubscriptionRecord

KEEPS = "mirrorlake.keeps"
"""The property with the times that the mirror has set, which it may shorten again."""


@dataclass(frozen=True, slots=True)
class Retention:
    """vacuum: age from which vacuum takes files away, None for never; hold: age up to which it
    does not, where a reader needs them, 0 for no such hold; warning: the part of that time below
    which what is left is little."""

    vacuum: timedelta | None = timedelta(days=7)
    hold: timedelta = timedelta(days=14)
    warning: float = 0.25


@dataclass(frozen=True, slots=True)
class FeedReader:
    """Who reads the feed of a table. table_id: of Delta; next: the first version that it has not
    read, None for one that begins with a snapshot."""

    name: str
    table_id: str
    next: int | None

    @classmethod
    def of(cls, record: SubscriptionRecord) -> Self:
        return cls(record.name, record.table_id, record.next)


@dataclass(frozen=True, slots=True)
class NeededVersion:
    """The first version that a reader has not read. time: of its commit; begins, ends: when vacuum
    would take its changes away, and until when vacuum does not for this reader."""

    reader: str
    version: int
    time: datetime
    begins: datetime
    ends: datetime

    def is_held(self, now: datetime) -> bool:
        """Whether vacuum would cut the reader off now, and has to wait."""
        return self.begins < now <= self.ends

    def is_cut_off(self, now: datetime) -> bool:
        """Whether the time is over for which vacuum waits."""
        return now > self.ends

    def is_late(self, now: datetime, share: float) -> bool:
        """Whether less than such a part of the time is left."""
        return self.ends - now < (self.ends - self.time) * share

    def seconds_left(self, now: datetime) -> float:
        return max((self.ends - now).total_seconds(), 0.0)


def needed_versions(
    log: TableLog, readers: Iterable[FeedReader], retention: Retention
) -> list[NeededVersion]:
    """What readers of one table need of it. Those that have read all of it need nothing yet, and
    nothing is kept for those that only a snapshot can continue.

    Vacuum takes away what is older than its setting, or than the table says. Without vacuum nothing
    but the log ends a version, and no hold is needed. Raises FileNotFoundError, BrokenLog.
    """
    snapshot = log.snapshot()
    if not snapshot.exists:
        return []
    history = CommitHistory(log)
    keeps, found = history.keeps, []
    vacuum = hold = keeps.log
    if retention.vacuum is not None:
        vacuum = min(retention.vacuum, keeps.files)
        hold = max(vacuum, retention.hold)
    for reader in readers:
        first, is_same = reader.next, reader.table_id == history.table_id
        if first is not None and is_same and history.oldest <= first <= history.latest:
            time = history.time(first)
            found.append(NeededVersion(reader.name, first, time, time + vacuum, time + hold))
    return found


def changed_properties(
    properties: Mapping[str, str], retention: Retention, *, is_held: bool
) -> dict[str, str]:
    """The properties by which a table keeps what it should, as far as it does not yet.

    Files are kept for `vacuum`, or for `hold` while a reader holds them: without that the batch
    reader of Delta refuses what vacuum has left (CF-126, CF-188). The log is kept no shorter, and
    never shorter than Delta does by itself. A longer time that somebody else has set stays.
    """
    assert retention.vacuum is not None
    files = max(retention.vacuum, retention.hold) if is_held else retention.vacuum
    wanted = KeepTimes(files, max(files, KeepTimes().log)).properties()
    known = KeepTimes.of(properties).properties()
    ours = dict(zip(wanted, properties.get(KEEPS, "").split(", "), strict=False))
    result = {
        name: value
        if properties.get(name, ours.get(name)) == ours.get(name)
        or _length(value) > _length(known[name])
        else known[name]
        for name, value in wanted.items()
    }
    if _length(result[LOG]) < _length(result[FILES]):
        result[LOG] = result[FILES]
    changed = {name: value for name, value in result.items() if value != known[name]}
    if not changed:
        return {}
    return changed | {KEEPS: ", ".join(changed.get(name, ours.get(name, "")) for name in wanted)}


def _length(interval: str) -> timedelta:
    return parse_interval(interval) or timedelta()
