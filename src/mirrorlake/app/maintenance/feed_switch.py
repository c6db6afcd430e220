"""Switches the change feed of a table on (CF-016)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mirrorlake import root
from mirrorlake.app.maintenance.maintain import tables_of
from mirrorlake.app.stores import store_of
from mirrorlake.config import Project
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.delta.schema import FeedMode
from mirrorlake.errors import UsageError
from mirrorlake.feed.commits.history import CommitHistory
from mirrorlake.feed.commits.position_map import PositionMap
from mirrorlake.mirror.engine import MirrorEngine
from mirrorlake.mirror.table.progress import table_name
from mirrorlake.model.clock import Clock
from mirrorlake.storage.lease import Lease, renewed


@dataclass(frozen=True, slots=True)
class FeedSwitch:
    """since: the first version that the change feed of a table covers; was_on: nothing had to be
    done."""

    table: str
    since: int
    was_on: bool

    def facts(self) -> dict[str, Any]:
        return {"table": self.table, "since": self.since, "was_on": self.was_on}


def enable_feed(project: Project, engine: MirrorEngine, clock: Clock, table: str) -> FeedSwitch:
    """Let the commits to a mirrored table record changes, from the next version on.

    Raises LeaseHeld while the mirror runs, UsageError for a table that there is not, and where the
    project says that the table has no feed.
    """
    (path,) = tables_of(engine, [table])
    table = table_name(path)
    wanted = project.mirror.options_of(root.table_at(path)).feed
    if wanted is FeedMode.OFF:
        raise UsageError(
            "the project says that the table has no change feed, so the mirror would switch it off "
            "again",
            where=table,
            hint=f"Set mirror.tables: {{{table}: {{change_feed: true}}}} in the project file.",
        )
    store = store_of(project)
    known = FeedMode.of(engine.progress(path).properties)
    if known is FeedMode.OFF:
        lease = Lease(store, "mirror", clock)
        lease.take()
        try:
            with renewed(lease):
                engine.set_properties(path, wanted.properties)
        finally:
            lease.release()
    history = CommitHistory(TableLog.below(store, path), PositionMap(store, path))
    return FeedSwitch(table, history.covered_since(), known is not FeedMode.OFF)
