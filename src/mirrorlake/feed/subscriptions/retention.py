"""How long the changes that a subscription has not read are kept (CF-187, CF-189)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.feed.commit_history import CommitHistory
from mirrorlake.feed.subscriptions.record import SubscriptionRecord


@dataclass(frozen=True, slots=True)
class Retention:
    """vacuum: age from which vacuum takes files away, None for never; hold: age up to which it
    does not, where a subscription needs them, 0 for no such hold; warning: the part of that time
    below which what is left is little."""

    vacuum: timedelta | None = timedelta(days=7)
    hold: timedelta = timedelta(days=14)
    warning: float = 0.25


@dataclass(frozen=True, slots=True)
class NeededVersion:
    """The first version that a subscription has not read. time: of its commit; begins, ends: when
    vacuum would take its changes away, and until when vacuum does not for this subscription."""

    subscription: str
    version: int
    time: datetime
    begins: datetime
    ends: datetime

    def is_held(self, now: datetime) -> bool:
        """Whether vacuum would cut the subscription off now, and has to wait."""
        return self.begins < now <= self.ends

    def is_cut_off(self, now: datetime) -> bool:
        """Whether the time is over for which vacuum waits."""
        return now > self.ends

    def is_late(self, now: datetime, share: float) -> bool:
        """Whether less than such a part of the time is left."""
        return self.ends - now < (self.ends - self.time) * share


def needed_versions(
    log: TableLog, records: Iterable[SubscriptionRecord], retention: Retention
) -> list[NeededVersion]:
    """What subscriptions of one table need of it. Those that have read all of it need nothing yet,
    and nothing is kept for those that only a snapshot can continue.

    Vacuum takes away what is older than its setting, or than the table says. The log keeps versions
    for some time of its own, after which no hold can help. Raises FileNotFoundError, BrokenLog.
    """
    snapshot = log.snapshot()
    if not snapshot.exists:
        return []
    history = CommitHistory(log)
    kept, found = history.log_retention, []
    vacuum = kept if retention.vacuum is None else min(retention.vacuum, history.retention)
    hold = min(max(vacuum, retention.hold), kept)
    for record in records:
        first, is_same = record.next, record.table_id == history.table_id
        if first is not None and is_same and history.oldest <= first <= history.latest:
            time = history.time(first)
            found.append(NeededVersion(record.name, first, time, time + vacuum, time + hold))
    return found
