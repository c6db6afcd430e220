"""The commits of a table of events, with every change where these are kept beside the table.

The feed has the net change of each key. `mirrorlake convert` lets commits keep the others.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from mirrorlake.app.changes.beginning import files_below, needed_files
from mirrorlake.app.subscribe import store_of_table
from mirrorlake.apply.committer import CommitOperation
from mirrorlake.apply.events.remembered.state import StateFolder
from mirrorlake.apply.events.remembered.stored_changes import EVERY_CHANGE, StoredChanges
from mirrorlake.delta.log.table_log import Action, TableLog
from mirrorlake.delta.schema import OF_EVENTS
from mirrorlake.feed.bounds import FeedRequest
from mirrorlake.feed.reader import Feed
from mirrorlake.feed.rows import BEFORE, DELETE, kinds_of
from mirrorlake.model import keys as codes
from mirrorlake.model.change import MARKER_COLUMN, Marker
from mirrorlake.model.table import TableId
from mirrorlake.storage.options import ObjectOptions

_BATCHES = {"MERGE", "CREATE TABLE"}
"""The operations of commits that apply events by key."""


class EventCommits:
    """The commits of one table, which may be one of events."""

    def __init__(self, table: str, name: TableId, log: TableLog, options: ObjectOptions | None):
        """table: folder or URL."""
        self._table, self._log, self._options = table, log, options
        self._changes: StoredChanges | None = None
        self._inside = ""
        if OF_EVENTS in log.snapshot().properties:
            self._store, self._inside = store_of_table(table, None, options)
            self._changes = StateFolder(self._store, name).stored_changes

    @property
    def are_of_events(self) -> bool:
        return self._changes is not None

    def every_change(self, version: int) -> pa.Table | None:
        """Every change of the keys that a commit changes several times, as of `StoredChanges`; None
        without any, or if they are not there."""
        name = self._named(version)
        return self._changes.read(name) if self._changes and name else None

    def is_lossy(self, version: int) -> bool:
        """Whether a commit may have changed keys several times, and this was not kept."""
        if self._changes is None:
            return False
        name = self._named(version)
        return name is None or bool(name and self._changes.read(name) is None)

    def first_version(self) -> int | None:
        """The earliest version whose later changes are all there, with the present types of
        columns; -1 if they are from the beginning. None for a table that is not of events, and if
        it is the newest version. Raises FeedError and BrokenLog."""
        if self._changes is None:
            return None
        request = FeedRequest.of(self._table, from_beginning=True)
        feed = Feed(request, self._options, log=self._log)
        latest, first = feed.plan.latest, feed.first if feed.first else -1
        for version in range(feed.first, latest + 1):
            if self.is_lossy(version) or self._is_widening(version):
                first = version
        if first >= latest:
            return None
        present = files_below(self._store, self._inside)
        return first if needed_files(self._log, first, latest) <= present else None

    def _is_widening(self, version: int) -> bool:
        """Whether a commit gave columns wider types, which a landing zone cannot (LZ-223)."""
        info = _commit_info(self._log.actions(version))
        return info.get("operation") == CommitOperation.UPDATE_SCHEMA

    def _named(self, version: int) -> str | None:
        """The file of a commit; "" if it has no need of one, None if its changes were not kept."""
        info = _commit_info(self._log.actions(version))
        if info.get("operation") not in _BATCHES:
            return ""
        try:
            said = json.loads(info.get("userMetadata") or "{}")
            found = said.get(EVERY_CHANGE) if "mirrorlake_events" in said else ""
        except (ValueError, AttributeError, TypeError):
            return ""
        return None if found is None else str(found)


def _commit_info(actions: Sequence[Action]) -> Action:
    return next((one["commitInfo"] for one in actions if one.get("commitInfo")), {})


def with_every_change(
    rows: pa.Table, changes: pa.Table, every: pa.Table, key: Sequence[str]
) -> pa.Table:
    """The rows to land of a commit, with every change of the keys that have several.

    rows: of the net changes, as of `landing_rows`; changes: these as the feed has them; every: as
    of `EventCommits.every_change`, with the columns of `rows`.
    """
    had, own, net = _coded(rows, changes, every, key)
    deletes = every.column(MARKER_COLUMN).to_numpy() == Marker.DELETE
    is_there = np.zeros(int(own.max(initial=-1)) + 1, bool)
    is_there[had[had < len(is_there)]] = True
    is_first, is_last = (np.append(True, own[1:] != own[:-1]), np.append(own[1:] != own[:-1], True))
    # A key without a net change has the row in the end that it had before, if it has one.
    is_there[own[is_last & ~deletes & ~np.isin(own, net)]] = True
    before = np.where(is_first, is_there[own], np.append(False, ~deletes[:-1]))
    marker = np.where(before, int(Marker.UPDATE), int(Marker.INSERT))
    marker = np.where(deletes, int(Marker.DELETE), marker).astype(np.int32)
    place = every.column_names.index(MARKER_COLUMN)
    marked = every.set_column(place, pa.field(MARKER_COLUMN, pa.int32()), pa.array(marker))
    several = marked.filter(pa.array(before | ~deletes)).select(rows.column_names)
    others = rows.filter(pa.array(~np.isin(net, own)))
    return pa.concat_tables([others, several.cast(others.schema)])


def _coded(
    rows: pa.Table, changes: pa.Table, every: pa.Table, key: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The keys that had a row before, those of `every`, and those of `rows`, as numbers. Those of
    `every` come first."""
    names = list(key)
    had = np.isin(kinds_of(changes), [BEFORE, DELETE])
    before = changes.select(names).filter(pa.array(had))
    parts = [every.select(names), rows.select(names), before]
    code = codes.encode(pa.concat_tables([one.cast(parts[0].schema) for one in parts])).code
    own, end = every.num_rows, every.num_rows + rows.num_rows
    return code[end:], code[:own], code[own:end]
