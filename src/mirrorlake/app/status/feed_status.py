"""Whether the changes of a table are recorded, and which of its versions can be read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mirrorlake.delta.log.table_log import BrokenLog, TableLog
from mirrorlake.delta.schema import FeedMode
from mirrorlake.feed.commits.coverage import CoveredVersions
from mirrorlake.feed.commits.history import CommitHistory
from mirrorlake.feed.commits.position_map import PositionMap
from mirrorlake.mirror.table.progress import Progress
from mirrorlake.storage.store import Store, UnsafePath


@dataclass(frozen=True, slots=True)
class FeedStatus:
    """The change feed of a table (CF-017).

    mode: what commits record now; since: the first version since which all are covered, oldest: the
    first one that can be read, None where there is none; without: the stretches of versions that
    the feed does not cover, of those that the log has (CF-171).
    """

    mode: FeedMode
    since: int | None
    oldest: int | None
    without: tuple[CoveredVersions, ...] = ()

    def facts(self) -> dict[str, Any]:
        return {
            "mode": str(self.mode),
            "since": self.since,
            "oldest": self.oldest,
            "without": [one.facts() for one in self.without],
        }

    def __str__(self) -> str:
        """In words; empty for what a table is made with."""
        parts = [] if self.mode is FeedMode.IMAGES else [_MODES[self.mode]]
        spans = [f"{one.first} to {one.last}" for one in self.without]
        parts += [f"does not cover versions {', '.join(spans)}"] if spans else []
        return ", and ".join(parts)


_MODES = {FeedMode.OFF: "is off", FeedMode.REPLACE: "records an update as a delete and an insert"}


def feed_status(store: Store, path: str, progress: Progress, now: datetime) -> FeedStatus | None:
    """None for a table that does not exist, or whose log cannot be read."""
    if not progress.exists:
        return None
    try:
        history = CommitHistory(TableLog.below(store, path), PositionMap(store, path))
        found = history.coverage(history.oldest)
        oldest = history.covered_since(history.first_at(now - history.keeps.readable))
    except (OSError, BrokenLog, UnsafePath):
        return None
    last = found[-1]
    return FeedStatus(
        FeedMode.of(progress.properties),
        last.first if last.has_feed else None,
        oldest if oldest <= history.latest else None,
        tuple(one for one in found if not one.has_feed),
    )
