"""Writes the changes of a table as event files (ST-001 to ST-179).

Order of effects:

    record the version of the snapshot → write its rows → record that it is complete
    → write the changes of a commit → record its version → …

After a crash a commit that was not recorded is written again, with the same names and ids. A
snapshot that is not complete is read again at the present version, and all changes since the first
attempt follow, so that rows that were deleted in between are deleted by them. Without a key nothing
could delete rows that come twice: then the snapshot has to be the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.app.changes.followed_columns import FollowedColumns
from mirrorlake.app.subscribe import store_of_table, subscribe, with_hint
from mirrorlake.capture.events import build
from mirrorlake.capture.events.build import TakenRows
from mirrorlake.capture.events.files import FileMaker
from mirrorlake.capture.events.settings import EventsSettings
from mirrorlake.delta.feed_columns import METADATA
from mirrorlake.delta.log.history import batch_of
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.errors import FeedError, UsageError
from mirrorlake.events import types as unified
from mirrorlake.events.envelope import MOST_EVENT
from mirrorlake.events.paths import object_name
from mirrorlake.events.rows import EventObject, EventRows
from mirrorlake.events.types import EventColumn, UnifiedType
from mirrorlake.feed.bounds import Beginning, FeedRequest
from mirrorlake.feed.landing_rows import landing_rows
from mirrorlake.feed.reasons import FeedReason
from mirrorlake.feed.rows import AFTER, INSERT, kinds_of
from mirrorlake.feed.subscriptions.record import FeedPosition
from mirrorlake.feed.subscriptions.snapshot import FeedSnapshot
from mirrorlake.feed.subscriptions.subscription import Delivery
from mirrorlake.landing.parquet.reader import data_type_of
from mirrorlake.model import types
from mirrorlake.model.arrow import contiguous
from mirrorlake.model.change import MARKER_COLUMN, RESERVED_PREFIX, ROW_DELETED, Marker
from mirrorlake.model.clock import WallClock
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.model.table import Column, Schema, TableId
from mirrorlake.root import STATE
from mirrorlake.sources.table import SourceTable
from mirrorlake.storage.lease import Lease, renewed
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.store import Store

FOLDER = f"{STATE}/converted"
FORMAT = 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_WIDTH = 32
"""Bits of the row number in the `lsn` of an event, below the version of the table."""

_UNIFIED = {
    types.BOOLEAN: unified.BOOLEAN,
    types.BYTE: unified.INTEGER,
    types.SHORT: unified.INTEGER,
    types.INTEGER: unified.INTEGER,
    types.LONG: unified.LONG,
    types.FLOAT: unified.FLOAT,
    types.DOUBLE: unified.DOUBLE,
    types.STRING: unified.STRING,
    types.BINARY: unified.BYTES,
    types.DATE: unified.DATE,
    types.TIMESTAMP: unified.TIMESTAMP,
}


@dataclass(frozen=True, slots=True)
class WrittenCommit:
    """A commit that was written as event files, or the snapshot before them."""

    version: int
    is_snapshot: bool
    events: int


@dataclass(frozen=True, slots=True)
class WrittenTable:
    """The progress of a table.

    position: of the last commit that was written, or of the snapshot.
    time: of the last event, milliseconds.
    extension: of the files.
    is_whole: whether the snapshot is complete.
    """

    position: str
    time: int
    extension: str
    is_whole: bool = False

    @classmethod
    def read(cls, store: Store, path: str) -> Self | None:
        """Raises UsageError for a record that cannot be read."""
        try:
            said = json.loads(store.read(path))
            if said.pop("format") != FORMAT:
                raise ValueError("a later release wrote it")  # noqa: TRY301
            return cls(**said)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"the record of what was written as event files cannot be read: {error}",
                where=store.location(path),
                hint="Restore the file. Or delete it and the event files of the table, and run the "
                "command again, which writes the table again.",
            ) from error

    def write(self, store: Store, path: str) -> None:
        store.replace(path, json.dumps({"format": FORMAT, **asdict(self)}).encode())


def unified_type(kind: types.DataType) -> UnifiedType | None:
    """The unified type of a column of a table; None if there is none."""
    if kind.name == "decimal":
        return unified.decimal(kind.precision, kind.scale)
    return _UNIFIED.get(kind)


def write_events(
    table: str,
    name: TableId,
    key: Sequence[str],
    settings: EventsSettings,
    target: Store,
    *,
    options: ObjectOptions | None = None,
    reached: CrashHook = no_crash,
) -> Iterator[WrittenCommit]:
    """Write the changes of a table that are not in its event files yet, commit by commit.

    table: folder or URL of a Delta table of a mirror.
    name, key: of the table in the events.
    target: store in which files are written, below `settings.path`.
    Raises FeedError, LeaseHeld, UsageError, TableError.
    """
    state, _inside = store_of_table(table, None, options)
    described = f"{name.schema}\0{name.name}\0{settings.described}"
    mark = hashlib.sha256(described.encode()).hexdigest()[:12]
    lease = Lease(state, f"converted/{mark}", WallClock())
    lease.take()
    try:
        with renewed(lease):
            writer = _Writer(table, name, tuple(key), settings, target, reached)
            yield from _missing_commits(writer, state, mark, options)
    finally:
        lease.release()


def _missing_commits(
    writer: _Writer, state: Store, mark: str, options: ObjectOptions | None
) -> Iterator[WrittenCommit]:
    """Write what is not written yet, in the one process that may. Raises as `write_events` does."""
    path, table, reached = f"{FOLDER}/{mark}.json", writer.table, writer.reached
    extension = writer.settings.extension.value
    hint = (
        f"Delete the event files of the table and {state.location(path)}, then run the command "
        "again, which writes the table again."
    )
    done = WrittenTable.read(state, path)
    if done is not None and done.extension != extension:
        raise UsageError(
            f"the table was written as {done.extension} files before", where=table, hint=hint
        )
    if done is None or not done.is_whole:
        snapshot = FeedSnapshot(FeedRequest(table, Beginning()), TableLog(table, options), options)
        position = str(FeedPosition(snapshot.table_id, snapshot.version))
        if done is not None and not writer.key and done.position != position:
            raise UsageError(
                "the command was ended while it wrote the rows of this table, which has changed "
                "since and has no key by which rows could be replaced",
                where=table,
                hint=hint,
            )
        time = max(done.time if done else 0, _milliseconds(snapshot.time))
        done = WrittenTable(done.position if done else position, time, extension)
        done.write(state, path)
        reached(CrashPoint.EVENTS_ASSIGNED)
        written = writer.snapshot(snapshot, time)
        done = replace(done, is_whole=True)
        done.write(state, path)
        yield WrittenCommit(snapshot.version, is_snapshot=True, events=written)
    subscription = subscribe(
        f"event files {mark}", table, after=done.position, options=options, reached=reached
    )
    log = TableLog(table, options)
    followed = FollowedColumns(table, log, writer.key, hint)
    followed.go_on(FeedPosition.parse(done.position).version)
    with subscription:
        for delivery in with_hint(iter(subscription), hint):
            followed.go_on(delivery.version)
            time = max(done.time, _source_time(log, delivery))
            written = replace(writer, key=followed.key).changes(delivery, time)
            done = replace(done, position=str(delivery.position), time=time)
            done.write(state, path)
            yield WrittenCommit(delivery.version, is_snapshot=False, events=written)


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes rows of one table as events."""

    table: str
    name: TableId
    key: tuple[str, ...]
    settings: EventsSettings
    target: Store
    reached: CrashHook

    def snapshot(self, found: FeedSnapshot, time: int) -> int:
        """Write all rows as a backfill."""
        event_object, described = self._described(found.schema)
        # Other ids than those of the changes of this version.
        batch = build.batch_id(self.settings.stream, described, found.version, 0)
        maker, count = self._maker(found.version), 0
        for one in found.batches():
            rows = self._live(pa.Table.from_batches([one]))
            self._write(
                maker,
                event_object,
                build.loaded(event_object, described, rows, batch, count, time, time),
                count,
            )
            count += rows.num_rows
        return count

    def changes(self, delivery: Delivery, time: int) -> int:
        """Write the changes of a commit; `lsn` is their order."""
        event_object, described = self._described(delivery.schema)
        rows, marker = self._rows(delivery.rows)
        count: int = rows.num_rows
        if not count:
            return 0
        rows = rows.combine_chunks()
        taken = TakenRows(
            described,
            rows.to_batches()[0],
            marker,
            np.full(count, time, np.int64),
            pa.repeat(pa.scalar(str(delivery.version)), count),
            (np.uint64(delivery.version) << np.uint64(_WIDTH)) + np.arange(count, dtype=np.uint64),
            np.zeros(count, bool),
        )
        batch = build.batch_id(self.settings.stream, described, delivery.version)
        read = max(time, _milliseconds(delivery.time))
        events = build.changes(event_object, taken, batch, 0, read)
        self._write(self._maker(delivery.version), event_object, events, 0)
        return count

    def _write(
        self, maker: FileMaker, event_object: EventObject, events: EventRows, first: int
    ) -> None:
        for file in maker.files(event_object, events, first):
            self.target.replace(file.path, file.content)
            self.reached(CrashPoint.EVENTS_WRITTEN_ONE)
        if maker.too_large:
            raise FeedError(
                f"a row of it would be an event of more than {MOST_EVENT} bytes",
                reason=FeedReason.OTHER,
                table=self.table,
                hint="Leave its largest column out of the mirror.",
            )

    def _maker(self, version: int) -> FileMaker:
        # Two tables may have the same object name and columns: each gets file names of its own.
        worker = int(hashlib.sha256(f"{self.name}".encode()).hexdigest()[:8], 16)
        return FileMaker(self.settings, version, worker)

    def _described(self, schema: pa.Schema) -> tuple[EventObject, SourceTable]:
        """The object of its events, with the columns of a schema of the feed. Raises FeedError."""
        columns, plain = [], []
        for field in schema:
            if field.name in METADATA or _is_own(field.name):
                continue
            data_type = data_type_of(field.type)
            kind = unified_type(data_type) if data_type else None
            if data_type is None or kind is None:
                raise FeedError(
                    f"its column {field.name} is {field.type}, a type that event files do not have",
                    reason=FeedReason.OTHER,
                    table=self.table,
                    hint="Leave the column out of the mirror.",
                )
            columns.append(EventColumn(field.name, kind))
            plain.append(Column(field.name, data_type))
        name = object_name(self.name.schema, self.name.name)
        event_object = EventObject(self.settings.stream, name, build.SOURCE, tuple(columns))
        return event_object, SourceTable(self.name, Schema.of(plain), self.key, "")

    def _live(self, snapshot: pa.Table) -> pa.Table:
        """The rows of a snapshot that are not marked as deleted."""
        deleted = _marked(snapshot)
        return _data(snapshot.filter(pa.array(~deleted)) if deleted.any() else snapshot)

    def _rows(self, changes: pa.Table) -> tuple[pa.Table, np.ndarray]:
        """The rows of a commit, at most one per key, and the marker of each. A row that is marked
        as deleted becomes a deletion."""
        if self.key:
            rows = landing_rows(changes, self.key, self.table)
            marker = rows.column(MARKER_COLUMN).to_numpy().astype(np.int8)
            marker[_marked(rows)] = Marker.DELETE
        else:
            rows, stays = changes, np.isin(kinds_of(changes), [INSERT, AFTER])
            marker = np.where(stays, np.int8(Marker.INSERT), np.int8(Marker.DELETE))
        return _data(rows), marker


def _marked(rows: pa.Table) -> np.ndarray:
    """Which rows of a table with soft deletes are marked as deleted; bool."""
    if ROW_DELETED not in rows.column_names:
        return np.zeros(rows.num_rows, bool)
    found = contiguous(pc.fill_null(rows.column(ROW_DELETED), False))
    return np.asarray(found.to_numpy(zero_copy_only=False))


def _data(rows: pa.Table) -> pa.Table:
    """The columns of the source."""
    others = {*METADATA, MARKER_COLUMN}
    return rows.select([n for n in rows.column_names if n not in others and not _is_own(n)])


def _is_own(column: str) -> bool:
    """Whether it is a column that the mirror adds."""
    return column.casefold().startswith(RESERVED_PREFIX)


def _milliseconds(moment: datetime) -> int:
    since: int = (moment - _EPOCH) // _MILLISECOND
    return since


def _source_time(log: TableLog, delivery: Delivery) -> int:
    """When the source committed the last change of a commit; if unknown, when the commit was
    made."""
    for action in log.actions(delivery.version):
        batch = batch_of(delivery.version, action.get("commitInfo") or {})
        if batch is not None and batch.source_time is not None:
            return _milliseconds(batch.source_time)
    return _milliseconds(delivery.time)
