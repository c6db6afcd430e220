"""The change feed of a table, newest first, with a bound on what is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mirrorlake.app.feed import read_feed
from mirrorlake.app.status.table_status import TableStatus
from mirrorlake.app.stores import store_of
from mirrorlake.config import Project
from mirrorlake.delta.feed_columns import METADATA
from mirrorlake.delta.log.history import batch_of
from mirrorlake.delta.log.table_log import Action, BrokenLog, TableLog
from mirrorlake.delta.write.data_files import CHANGE_TYPE
from mirrorlake.feed.commits.history import CommitHistory
from mirrorlake.feed.rows import RowChange, row_changes

MOST_COMMITS = 50
MOST_CHANGES = 200
LARGEST_COMMIT, MOST_ROWS = 4 << 20, 5_000
"""Bytes of the files, and changed rows, of a commit that is read for a page."""
LONGEST_VALUE = 300
_NULL = "NULL"


@dataclass(frozen=True, slots=True)
class Field:
    """A column before and after, None where the row was not there."""

    name: str
    before: str | None
    after: str | None

    @property
    def is_changed(self) -> bool:
        return self.before is not None and self.after is not None and self.before != self.after


@dataclass(frozen=True, slots=True)
class ShownChange:
    """One change of one row."""

    version: int
    time: datetime
    kind: str
    fields: Sequence[Field]


@dataclass(frozen=True, slots=True)
class ShownCommit:
    """A commit. left_out: how many bytes it has, if that is too much for a page; cut: whether it
    has more changes than are shown."""

    version: int
    time: datetime | None
    changes: Sequence[ShownChange]
    left_out: int = 0
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class ShownFeed:
    """Commits, newest first. older: the newest version that is not shown, None for none."""

    commits: Sequence[ShownCommit]
    older: int | None


def feed_of(project: Project, table: TableStatus, until: int | None) -> ShownFeed:
    """The changes up to a version. Raises FeedError."""
    if table.version is None:
        return ShownFeed([], None)
    store = store_of(project)
    location, options = store.location(table.path), store.options(table.path)
    try:
        history = CommitHistory(TableLog.below(store, table.path))
    except (BrokenLog, OSError):
        return ShownFeed([], None)  # the table itself says what is wrong
    found: list[ShownCommit] = []
    count = 0
    newest = history.latest if until is None else min(until, history.latest)
    version = newest
    while version >= history.oldest and newest - version < MOST_COMMITS and count < MOST_CHANGES:
        actions = history.actions(version)
        size = _size(actions)
        if size > LARGEST_COMMIT or _rows(version, actions) > MOST_ROWS:
            found.append(ShownCommit(version, history.time(version), [], left_out=size))
        elif size:
            feed = read_feed(
                location, options=options, from_version=version, to_version=version, on_gap="report"
            )
            for commit in feed:
                changes = [
                    _shown(version, commit.time, one, feed.key)
                    for one in _first(row_changes(commit.rows, feed.key), MOST_CHANGES + 1)
                ]
                is_cut = len(changes) > MOST_CHANGES
                found.append(
                    ShownCommit(version, commit.time, changes[:MOST_CHANGES], is_cut=is_cut)
                )
                count += len(changes)
        version -= 1
    return ShownFeed(found, version if version >= history.oldest else None)


def _first(changes: Iterator[RowChange], most: int) -> Iterator[RowChange]:
    for _, one in zip(range(most), changes, strict=False):
        yield one


def _size(actions: Sequence[dict[str, Any]]) -> int:
    """Bytes of the files that have the changes of a commit: change files where it has some."""
    changed = [one["cdc"]["size"] for one in actions if one.get("cdc")]
    if changed:
        return sum(changed)
    moved = (one.get(kind) for one in actions for kind in ("add", "remove"))
    return sum(one.get("size") or 1 for one in moved if one and one.get("dataChange"))


def _rows(version: int, actions: Sequence[dict[str, Any]]) -> int:
    """The rows that a batch of ours changed; 0 for a commit of somebody else."""
    info: Action = next((one["commitInfo"] for one in actions if one.get("commitInfo")), {})
    batch = batch_of(version, info)
    return batch.inserts + batch.updates + batch.deletes if batch else 0


def _shown(version: int, time: datetime, change: RowChange, key: Sequence[str]) -> ShownChange:
    before, after = change
    row = after or before
    assert row is not None
    kind = "update" if before and after else str(row[CHANGE_TYPE])
    names = [name for name in row if name not in METADATA]
    names.sort(key=lambda name: name not in key)
    fields = [
        Field(name, *(None if one is None else _text(one.get(name)) for one in change))
        for name in names
    ]
    return ShownChange(version, time, kind.replace("_", " "), fields)


def _text(value: object) -> str:
    if value is None:
        return _NULL
    text = value[:LONGEST_VALUE].hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"
