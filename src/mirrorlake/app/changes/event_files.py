"""Writes the changes of a table as event files (ST-001 to ST-179).

Order of effects:

    record the version of the snapshot → write its rows → record that it is complete
    → write the changes of a commit → record its version → …

After a crash a commit that was not recorded is written again, with the same names and ids. A
snapshot that is not complete is read again. If its version is no longer kept, the present one is
read, and all changes since the first attempt follow, so that rows that were deleted in between are
deleted by them. Without a key nothing could delete rows that come twice: then the snapshot has to
be the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Self

import numpy as np
import pyarrow as pa

from mirrorlake.app.changes.beginning import files_below, first_version
from mirrorlake.app.changes.followed_columns import FollowedColumns
from mirrorlake.app.changes.landed_changes import LandedCommits
from mirrorlake.app.changes.table_commits import (
    TableCommit,
    commit_of,
    is_own,
    marked_as_deleted,
    milliseconds,
    source_columns,
    versions,
)
from mirrorlake.app.landed_files import LandedFiles
from mirrorlake.app.subscribe import store_of_table, subscribe, with_hint
from mirrorlake.capture.events import build
from mirrorlake.capture.events.build import TakenRows
from mirrorlake.capture.events.files import FileMaker
from mirrorlake.capture.events.settings import EventsSettings
from mirrorlake.delta.feed_columns import METADATA
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.errors import FeedError, UsageError
from mirrorlake.events import types as unified
from mirrorlake.events.envelope import MOST_EVENT
from mirrorlake.events.paths import object_name
from mirrorlake.events.rows import EventObject, EventRows
from mirrorlake.events.types import EventColumn, UnifiedType
from mirrorlake.feed.bounds import Beginning, FeedRequest
from mirrorlake.feed.reader import as_feed_error
from mirrorlake.feed.reasons import FeedReason
from mirrorlake.feed.subscriptions.record import FeedPosition
from mirrorlake.feed.subscriptions.snapshot import FeedSnapshot
from mirrorlake.feed.subscriptions.subscription import Subscription
from mirrorlake.landing.parquet.reader import data_type_of
from mirrorlake.model import types
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
_WIDTH = 32
"""Bits of the row number in the `lsn` of an event, below the version of the table."""

_NET = 1 << (_WIDTH - 1)
"""The number of the first row, where a commit is written with the net change of each key."""

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
    """A commit that was written as event files, or the snapshot before them. is_lossy: earlier
    changes of its keys are missing, because landed files that it applied cannot be read."""

    version: int
    is_snapshot: bool
    events: int
    is_lossy: bool = False


@dataclass(frozen=True, slots=True)
class WrittenTable:
    """The progress of a table.

    position: of the last commit that was written, or of the snapshot; "" before the first commit.
    time: of the last event, milliseconds.
    extension: of the files.
    is_whole: whether the snapshot is complete.
    begun: of the last event of a commit that is being written, milliseconds.
    """

    position: str
    time: int
    extension: str
    is_whole: bool = False
    begun: int = 0

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
    landed: LandedFiles,
    options: ObjectOptions | None = None,
    reached: CrashHook = no_crash,
) -> Iterator[WrittenCommit]:
    """Write the changes of a table that are not in its event files yet, commit by commit.

    table: folder or URL of a Delta table of a mirror.
    name, key: of the table in the events.
    target: store in which files are written, below `settings.path`.
    landed: the landed files of the table.
    Raises FeedError, LeaseHeld, UsageError, TableError.
    """
    state, inside = store_of_table(table, None, options)
    described = f"{name.schema}\0{name.name}\0{settings.described}"
    mark = hashlib.sha256(described.encode()).hexdigest()[:12]
    lease = Lease(state, f"converted/{mark}", WallClock())
    lease.take()
    try:
        with renewed(lease):
            writer = _Writer(table, name, tuple(key), settings, target, reached)
            conversion = _Conversion(writer, state, inside, mark, landed, options)
            yield from conversion.missing_commits()
    finally:
        lease.release()


class _Conversion:
    """Writes what is not written yet of a table, in the one process that may. Methods raise as
    `write_events` does."""

    def __init__(
        self,
        writer: _Writer,
        state: Store,
        inside: str,
        mark: str,
        landed: LandedFiles,
        options: ObjectOptions | None,
    ) -> None:
        """state: where the record is; inside: the path of the table in it."""
        self._writer, self._state, self._inside, self._mark = writer, state, inside, mark
        self._landed, self._options = landed, options
        self._path = f"{FOLDER}/{mark}.json"
        self._log = TableLog(writer.table, options)
        self._hint = (
            f"Delete the event files of the table and {state.location(self._path)}, then run the "
            "command again, which writes the table again."
        )

    def missing_commits(self) -> Iterator[WrittenCommit]:
        """The snapshot first, if it is not complete."""
        done = WrittenTable.read(self._state, self._path)
        extension = self._writer.settings.extension.value
        if done is not None and done.extension != extension:
            raise UsageError(
                f"the table was written as {done.extension} files before",
                where=self._writer.table,
                hint=self._hint,
            )
        if done is None:
            done = self._begun(extension)
        subscription = subscribe(
            f"event files {self._mark}",
            self._writer.table,
            start=0,
            after=done.position or None,
            options=self._options,
            reached=self._writer.reached,
        )
        with subscription:  # vacuum waits for it from now on
            if not done.is_whole:
                with subscription.renewing():
                    snapshot = self._first_rows(FeedPosition.parse(done.position).version)
                    written, time = self._written(snapshot, done)
                done = self._recorded(replace(done, time=time, is_whole=True))
                yield WrittenCommit(snapshot.version, is_snapshot=True, events=written)
            yield from self._commits(done, subscription)

    def _recorded(self, done: WrittenTable) -> WrittenTable:
        done.write(self._state, self._path)
        return done

    def _begun(self, extension: str) -> WrittenTable:
        """With the version from which on all changes are there, which the snapshot records."""
        writer = self._writer
        with as_feed_error(FeedRequest(writer.table, Beginning())):
            version = first_version(
                writer.table,
                self._log,
                writer.key,
                self._landed,
                files_below(self._state, self._inside),
                self._options,
            )
        if version < 0:
            return self._recorded(WrittenTable("", 0, extension, is_whole=True))
        table_id = str(self._log.snapshot().metadata.get("id", ""))
        return WrittenTable(str(FeedPosition(table_id, version)), 0, extension)

    def _first_rows(self, version: int) -> FeedSnapshot:
        request = FeedRequest(self._writer.table, Beginning())
        try:
            return FeedSnapshot(request, self._log, self._options, version=version)
        except FeedError as error:
            if error.reason is not FeedReason.EXPIRED:
                raise
            return self._present_rows()

    def _present_rows(self) -> FeedSnapshot:
        """In the place of those of a version that is no longer kept."""
        if not self._writer.key:
            raise UsageError(
                "the command was ended while it wrote the rows of this table, which are no longer "
                "kept as they were, and it has no key by which rows could be replaced",
                where=self._writer.table,
                hint=self._hint,
            )
        request = FeedRequest(self._writer.table, Beginning())
        return FeedSnapshot(request, self._log, self._options)

    def _written(self, snapshot: FeedSnapshot, done: WrittenTable) -> tuple[int, int]:
        """Write a snapshot. Returns the number of events, and their time."""
        time = max(done.time, milliseconds(snapshot.time))
        self._recorded(replace(done, time=time))
        self._writer.reached(CrashPoint.EVENTS_ASSIGNED)
        try:
            return self._writer.snapshot(snapshot, time), time
        except FeedError as error:
            is_present = snapshot.version == self._log.snapshot().version
            if is_present or error.reason is not FeedReason.EXPIRED:
                raise
            return self._written(self._present_rows(), replace(done, time=time))

    def _commits(self, done: WrittenTable, subscription: Subscription) -> Iterator[WrittenCommit]:
        """The changes of each commit behind what is written."""
        writer = self._writer
        table_id = str(self._log.snapshot().metadata.get("id", ""))
        begin = FeedPosition.parse(done.position).version if done.position else -1
        files = LandedCommits(self._log, self._landed)
        followed = FollowedColumns(writer.table, self._log, writer.key, self._hint)
        followed.go_on(max(begin, 0))
        deliveries = with_hint(iter(subscription), self._hint)
        for version, delivery in versions(subscription, begin + 1, deliveries):
            with as_feed_error(FeedRequest(writer.table, Beginning()), version):
                followed.go_on(version)
                commit = commit_of(self._log, files, followed, version, delivery)
            if commit is None:
                continue
            changed = commit.times(max(done.time, done.begun) if commit.is_net else done.time)
            last = int(changed[-1]) if len(changed) else done.time
            if len(changed) and last > changed[0]:
                done = self._recorded(replace(done, begun=last))
            written = replace(writer, key=followed.key).changes(commit, changed)
            position = str(FeedPosition(table_id, version))
            done = self._recorded(replace(done, position=position, time=last, begun=0))
            yield WrittenCommit(
                version, is_snapshot=False, events=written, is_lossy=commit.is_lossy
            )


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

    def changes(self, commit: TableCommit, changed: np.ndarray) -> int:
        """Write the changes of a commit; `lsn` is their order. changed: when each was committed,
        milliseconds."""
        count = len(changed)
        if not count:
            return 0
        event_object, described = self._described(commit.schema)
        batch = build.batch_id(self.settings.stream, described, *_numbers(commit))
        read, maker, begin = max(int(changed[-1]), commit.read), self._maker(commit.version), 0
        lsn, transactions = _lsn(commit), commit.transactions()
        # Several, where the texts of a column take more than 2 GiB.
        for rows in source_columns(commit.rows).combine_chunks().to_batches():
            end = begin + rows.num_rows
            taken = TakenRows(
                described,
                rows,
                commit.marker[begin:end],
                changed[begin:end],
                transactions.slice(begin, rows.num_rows),
                lsn[begin:end],
                np.zeros(rows.num_rows, bool),
            )
            events = build.changes(event_object, taken, batch, begin, read)
            self._write(maker, event_object, events, begin)
            begin = end
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
            if field.name in METADATA or is_own(field.name):
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
        deleted = marked_as_deleted(snapshot)
        return source_columns(snapshot.filter(pa.array(~deleted)) if deleted.any() else snapshot)


def _lsn(commit: TableCommit) -> np.ndarray:
    """The order of changes: by version, then in the commit. Net changes follow whatever an earlier
    attempt, which still had all files, has written of the same commit."""
    first = np.uint64(commit.version << _WIDTH) + np.uint64(_NET if commit.is_net else 0)
    return first + np.arange(len(commit.marker), dtype=np.uint64)


def _numbers(commit: TableCommit) -> tuple[int, ...]:
    """What tells the ids of a commit from those of others, and of the same commit with other
    changes. Those of a snapshot have 0."""
    if commit.is_full:
        return commit.version, 2
    return (commit.version, 1) if commit.is_net else (commit.version,)
