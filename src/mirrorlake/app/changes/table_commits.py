"""The commits of a mirrored table, as they are written to another format: each with every change
that it applied, in order, or with the net change of each key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.app.changes.followed_columns import FollowedColumns
from mirrorlake.app.changes.landed_changes import LandedCommits, Truncated
from mirrorlake.app.landed_files import NotLanded
from mirrorlake.delta.feed_columns import METADATA
from mirrorlake.delta.log.history import batch_of, commit_time
from mirrorlake.delta.log.table_log import Action, TableLog
from mirrorlake.feed.landing_rows import landing_rows
from mirrorlake.feed.rows import AFTER, INSERT, kinds_of
from mirrorlake.feed.subscriptions.subscription import Delivery, Subscription
from mirrorlake.model.arrow import contiguous
from mirrorlake.model.change import (
    MARKER_COLUMN,
    RESERVED_PREFIX,
    ROW_COMMIT_TIME,
    ROW_DELETED,
    ROW_TRANSACTION,
    Marker,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def versions(
    subscription: Subscription, first: int, deliveries: Iterable[Delivery]
) -> Iterator[tuple[int, Delivery | None]]:
    """Each version from `first` on, with what the feed has of it: nothing of one whose changes
    cancel each other. A snapshot comes before all versions."""
    for delivery in deliveries:
        if not delivery.is_snapshot:
            yield from ((version, None) for version in range(first, delivery.version))
        yield delivery.version, delivery
        first = delivery.version + 1
    yield from ((version, None) for version in range(first, subscription.record.next or first))


@dataclass(frozen=True, slots=True)
class TableCommit:
    """The changes of a commit.

    read: when it was made; committed: when the source committed the last change, if that is not
        known of each; both milliseconds.
    rows: with metadata columns, if these are of each change.
    is_full: with all changes of the landed files that it applied.
    is_net: with net changes, because these files cannot be read; is_lossy: they had more.
    """

    version: int
    read: int
    committed: int
    schema: pa.Schema
    rows: pa.Table
    marker: np.ndarray
    is_full: bool
    is_net: bool
    is_lossy: bool

    def times(self, least: int) -> np.ndarray:
        """When each change was committed, milliseconds, not before `least` or the one before;
        int64."""
        found = np.full(len(self.marker), max(self.committed, least))
        if ROW_COMMIT_TIME in self.rows.column_names:
            micros = contiguous(self.rows[ROW_COMMIT_TIME]).cast(pa.int64())
            known = micros.is_valid().to_numpy(zero_copy_only=False)
            values = micros.fill_null(0).to_numpy(zero_copy_only=False) // 1_000
            found = np.maximum(np.where(known, values, found), least)
        return np.maximum.accumulate(found)

    def transactions(self) -> pa.Array:
        """What the source calls the transaction of each change, or else the version."""
        version = pa.repeat(pa.scalar(str(self.version)), len(self.marker))
        if ROW_TRANSACTION not in self.rows.column_names:
            return version
        return pc.coalesce(contiguous(self.rows[ROW_TRANSACTION]), version)


def commit_of(
    log: TableLog,
    files: LandedCommits,
    columns: FollowedColumns,
    version: int,
    delivery: Delivery | None,
) -> TableCommit | None:
    """A commit with each change that it applied, or else with the net change of each key."""
    net = delivery.rows if delivery else None
    found, is_net, is_lossy = None, False, False
    try:
        found = files.changes(version, columns, net)
    except NotLanded as reason:
        is_net = True
        is_lossy = isinstance(reason, Truncated) or files.has_more(version, columns)
    if found is not None:
        rows, marker = found.rows, found.marker
    elif net is not None:
        rows, marker = _net_rows(net, columns.key, files.table)
    elif is_lossy:
        rows, marker = pa.table({}), np.zeros(0, np.int8)
    else:
        return None
    actions = log.actions(version)
    read = commit_time(version, actions)
    committed = _source_time(version, actions)
    return TableCommit(
        version,
        read,
        read if committed is None else committed,
        delivery.schema if delivery and found is None else rows.schema,
        rows,
        marker,
        found is not None,
        is_net,
        is_lossy,
    )


def _net_rows(changes: pa.Table, key: Sequence[str], table: str) -> tuple[pa.Table, np.ndarray]:
    """The rows of a commit in the feed, at most one per key, and the marker of each. A row that is
    marked as deleted becomes a deletion."""
    if key:
        rows = landing_rows(changes, key, table)
        marker = rows.column(MARKER_COLUMN).to_numpy().astype(np.int8)
        marker[marked_as_deleted(rows)] = Marker.DELETE
    else:
        rows, stays = changes, np.isin(kinds_of(changes), [INSERT, AFTER])
        marker = np.where(stays, np.int8(Marker.INSERT), np.int8(Marker.DELETE))
    return source_columns(rows), marker


def marked_as_deleted(rows: pa.Table) -> np.ndarray:
    """Which rows of a table with soft deletes are marked as deleted; bool."""
    if ROW_DELETED not in rows.column_names:
        return np.zeros(rows.num_rows, bool)
    found = contiguous(pc.fill_null(rows.column(ROW_DELETED), False))
    return np.asarray(found.to_numpy(zero_copy_only=False))


def source_columns(rows: pa.Table) -> pa.Table:
    """The columns of the source."""
    others = {*METADATA, MARKER_COLUMN}
    return rows.select([n for n in rows.column_names if n not in others and not is_own(n)])


def is_own(column: str) -> bool:
    """Whether it is a column that the mirror adds."""
    return column.casefold().startswith(RESERVED_PREFIX)


def milliseconds(moment: datetime) -> int:
    since: int = (moment - _EPOCH) // _MILLISECOND
    return since


def _source_time(version: int, actions: Sequence[Action]) -> int | None:
    """When the source committed the last change of a commit, milliseconds, if known."""
    for action in actions:
        batch = batch_of(version, action.get("commitInfo") or {})
        if batch is not None and batch.source_time is not None:
            return milliseconds(batch.source_time)
    return None
