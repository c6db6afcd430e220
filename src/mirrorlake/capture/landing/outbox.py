"""The outbox of one table: from segments to published files.

Closed segments wait in memory until the roll. Segments of the open transaction are kept apart; when
they exceed the size of a file they are written to staged files, whose footers are written when the
transaction ends, so that memory stays bounded for transactions of any size. Files get their numbers
in order, when they are published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from mirrorlake.capture import origins, segments
from mirrorlake.capture.segments import Closed, Emptied, RowSegment, Segment, Span, counts, table_of
from mirrorlake.capture.staged.staged_file import StagedFile, batches_of
from mirrorlake.landing import publish
from mirrorlake.model.arrow import arrow_schema
from mirrorlake.model.change import MARKER_COLUMN, Alteration
from mirrorlake.model.landed import DEFAULT_STREAM, FileKind, Footer, RowKey
from mirrorlake.model.position import LogPoint, Position
from mirrorlake.model.table import TableId
from mirrorlake.sources.chunk import Changes, SchemaChange, Transactions, Truncation
from mirrorlake.sources.table import SourceTable
from mirrorlake.storage.store import Store

Fill = Callable[[RowSegment], RowSegment]
"""Completes rows that the source sent with missing values (strict zones)."""

Recreate = Callable[[TableId, str, Position], int]
"""Recreates the folder of a table at a position (strict zones); returns its last file number."""


@dataclass(slots=True)
class Written:
    """A staged file without its footer. schema: of its rows."""

    file: StagedFile
    kind: FileKind
    span: Span
    rows: dict[str, int]
    schema: pa.Schema
    alteration: Alteration | None = None
    key: RowKey | None = None


@dataclass(slots=True)
class Outbox:
    """The unpublished changes of one table.

    checkpoint: the position up to which everything is already landed; None once the stream has
        passed it.
    unfinished: transactions that are landed in part, with the last landed ordinal, until the stream
        has sent the rest.
    upto: the loaded rows may contain changes up to this point; until the stream has passed it,
        inserted rows replace existing ones.
    number: of the last published file.
    metadata: whether rows have metadata columns.
    key: of the newest file from before a restart, until the next change; None where it is unknown.
    """

    table: TableId
    folder: str
    stream: str
    store: Store
    number: int
    checkpoint: Position | None
    file_bytes: int
    staging: str  # where files are staged; the table's folder, unless that may be recreated
    unfinished: dict[LogPoint, int] = field(default_factory=dict)
    upto: LogPoint | None = None
    key: RowKey | None = None
    stream_id: str = DEFAULT_STREAM
    metadata: bool = False
    fill: Fill | None = None
    recreate: Recreate | None = None
    oldest: float | None = None  # arrival of the oldest closed change, on the loop's clock
    size: int = 0  # bytes of closed segments
    open_size: int = 0
    _closed: list[Segment] = field(default_factory=list)
    _open: list[Segment] = field(default_factory=list)
    _parked: list[Written] = field(default_factory=list)
    _ready: list[Written] = field(default_factory=list)
    _staged: int = 0
    _schema: pa.Schema | None = None
    _alteration: Alteration | None = None  # lands with the next change
    _altered: tuple[SchemaChange, Closed | None] | None = None  # its last, and the transaction

    def is_empty(self) -> bool:
        """Whether no closed segment is unpublished."""
        return not self._closed and not self._ready

    def has_open(self) -> bool:
        return bool(self._open or self._parked)

    def take(self, part: Changes | Truncation, transactions: Transactions, now: float) -> int:
        """Take the next change of the table, skipping what is already landed. Returns the number of
        rows."""
        closed: Segment | None
        still_open: Segment | None
        if isinstance(part, Changes):
            kept = segments.after(part, transactions, self.checkpoint)
            if kept is None:
                return 0
            if self.unfinished:
                self._finish_all(kept.transaction, transactions)
            if self.upto is not None:
                kept = segments.upserts(kept, transactions, self.upto)
                if transactions.after[0].covers(self.upto):
                    self.upto = None
            closed, still_open = segments.split(kept, transactions, metadata=self.metadata)
            rows = len(kept.marker)
        else:
            if not segments.is_after(part, transactions, self.checkpoint):
                return 0
            self._finish_all(np.array([part.transaction]), transactions)
            closed, still_open = segments.emptied(part, transactions)
            rows = 0
        if not closed:
            self._flush(now)
        alteration = self._pop_alteration(part.table)
        if alteration and closed:
            closed = replace(closed, alteration=alteration)
        elif alteration and still_open:
            still_open = replace(still_open, alteration=alteration)
        if closed:
            self._add(closed, now)
        if still_open:
            self._add_open(still_open)
        return rows

    def alter(self, change: SchemaChange, transactions: Transactions, now: float) -> None:
        """Record an alteration of the columns, which is landed with the next change, or by itself
        where none comes."""
        alteration = change.alteration
        # In a strict zone, columns come with rows.
        is_landed_alone = change.without_rows and self.fill is None
        if alteration is None or not (alteration.is_stored or is_landed_alone):
            return
        if not segments.is_landed(change, transactions, self.checkpoint):
            closed = Closed.of(transactions, change.transaction)
            if closed is None:
                self._flush(now)
            waiting = self._alteration
            self._alteration = alteration if waiting is None else waiting.then(alteration)
            self._altered = change, closed

    def has_altered(self) -> bool:
        """Whether an alteration waits for its change."""
        return self._alteration is not None

    def taken(self, now: float) -> bool:
        """A chunk of the stream is taken. Returns whether an alteration still waits."""
        self._flush(now)
        return self.has_altered()

    def _flush(self, now: float) -> None:
        """Land an alteration whose transaction has ended in the place of its change, which is left
        out: it is as durable as what follows."""
        if self._alteration is None or self._altered is None:
            return
        change, closed = self._altered
        if closed is None:
            return
        if self.checkpoint is not None and self.checkpoint.passes(closed.end):
            self._alteration = None
        elif alteration := self._pop_alteration(change.table):
            at = change.ordinal + 1
            self._add(segments.empty(change.table, Span(at, at, closed, closed), alteration), now)

    def _pop_alteration(self, table: SourceTable) -> Alteration | None:
        """What is recorded before the next row of the table, or in its place. Before the first one
        that was not landed before a restart, that is its key too if the newest file has another
        one: which key the source tells for one place depends on what it shows by then."""
        found, self._alteration = self._alteration, None
        landed, self.key = self.key, None
        if landed in {None, key_of(table)} or self.fill or (found and found.key is not None):
            return found
        key = Alteration(key=table.key, whole_rows=table.whole_rows)
        return key if found is None else found.then(key)

    def altered(self, table: SourceTable, dropped: tuple[str, ...]) -> Alteration | None:
        """Return the alteration that is landed with a chunk of a backfill, with the columns that
        it drops."""
        alteration = self._pop_alteration(table)
        if not dropped:
            return alteration
        return replace(alteration or Alteration(), dropped=dropped)

    def _finish_all(self, indexes: np.ndarray, transactions: Transactions) -> None:
        """Remove those of these transactions from `unfinished` that have ended."""
        for index in np.unique(indexes[indexes < transactions.closed()]).tolist():
            self.unfinished.pop(transactions.end[index], None)

    def _add(self, segment: Segment, now: float) -> None:
        """Add a segment of closed transactions, which follows all that were added or closed
        before."""
        self._closed.append(replace(segment, span=self._beyond(segment.span)))
        self.size += segment.size if isinstance(segment, RowSegment) else 0
        self.oldest = now if self.oldest is None else self.oldest

    def _add_open(self, segment: Segment) -> None:
        """Add a segment of the open transaction."""
        self._open.append(segment)
        self.open_size += segment.size if isinstance(segment, RowSegment) else 0
        if self.open_size >= self.file_bytes:
            self._park()

    def _park(self) -> None:
        """Write the open segments to staged files without footers."""
        for group in _files(self._open):
            self._parked.append(self._write(group))
        self._open, self.open_size = [], 0

    def close(self, transaction: Closed, now: float) -> None:
        """The open transaction has ended."""
        if self._altered is not None and self._altered[1] is None:
            self._altered = self._altered[0], transaction
        self.unfinished.pop(transaction.end, None)
        if self.checkpoint is not None and self.checkpoint.passes(transaction.end):
            # An earlier transaction after all: landed before the restart, with its alteration.
            self._discard_open()
            self._alteration = None
            return
        if self._parked:
            self._stage()  # what was closed before goes first
            for written in self._parked:
                written.span = self._beyond(written.span.closed(transaction))
            self._ready += self._parked
            self._parked = []
            self.oldest = now if self.oldest is None else self.oldest
        waiting, self._open, self.open_size = self._open, [], 0
        for segment in waiting:
            self._add(segment.closed(transaction), now)

    def pass_checkpoint(self) -> None:
        """The stream has sent everything again that was landed before the restart."""
        self.checkpoint, self.unfinished = None, {}

    def seal(self) -> None:
        """Make all closed segments durable in staged files."""
        self._stage()
        for index, written in enumerate(self._ready):
            following = self._ready[index + 1] if index + 1 < len(self._ready) else None
            self._finish(written, following)

    def publish(self) -> Iterator[int]:
        """Publish the sealed files in order; yields the number of each."""
        ready, self._ready = self._ready, []
        for written in ready:
            if written.kind is FileKind.TRUNCATE and self.recreate is not None:
                position = written.span.positions()[1]
                self.number = self.recreate(self.table, self.folder, position)
                self.store.delete(written.file.path)
                continue
            number = self.number + 1
            publish.publish(
                self.store, self.folder, written.file.path, number, table=str(self.table)
            )
            self.number = number
            yield number
        self.oldest = None

    def abandon(self) -> None:
        """Discard everything that is not published; a restart reads it again."""
        self._discard_open()
        for written in self._ready:
            written.file.drop()
        self._ready, self._closed, self.size, self.oldest = [], [], 0, None

    def _stage(self) -> None:
        """Write the closed segments to staged files."""
        for group in _files(self._closed):
            self._ready.append(self._write(group))
        self._closed, self.size = [], 0

    def _beyond(self, span: Span) -> Span:
        """The span, extended by what was landed before the restart."""
        if self.checkpoint is None:
            return span
        return span.beyond(self.checkpoint.point, self.unfinished)

    def _discard_open(self) -> None:
        for written in self._parked:
            written.file.drop()
        self._parked, self._open, self.open_size = [], [], 0

    def _write(self, group: list[Segment]) -> Written:
        """Write one file up to its footer."""
        first = group[0]
        span = first.span.until(group[-1].span)
        if isinstance(first, Emptied):
            schema, kind = arrow_schema(first.table.schema), FileKind.TRUNCATE
            table = schema.append(pa.field(MARKER_COLUMN, pa.int8())).empty_table()
            if self.metadata:
                table = origins.with_metadata(table, origins.METADATA.empty_table())
        else:
            rows = [s for s in group if isinstance(s, RowSegment)]
            table = table_of([self.fill(s) for s in rows] if self.fill else rows)
            if self.metadata and not any(s.origins for s in rows):
                table = origins.with_metadata(table, origins.METADATA.empty_table())
            kind = FileKind.CHANGES
        file = self._new_file(table.schema)
        file.write(table)
        rows_of = counts(table[MARKER_COLUMN])
        key = key_of(group[-1].table)
        return Written(file, kind, span, rows_of, table.schema, first.alteration, key)

    def _new_file(self, schema: pa.Schema) -> StagedFile:
        self._staged += 1
        path = publish.staged_path(self.staging, str(self._staged))
        return StagedFile(self.store, path, schema)

    def _with_origins(self, written: Written) -> StagedFile:
        """Write the file again with metadata columns, for rows that were written while their
        transaction was open."""
        transaction = written.span.begun
        assert transaction is not None
        origin, staged = transaction.origin, written.file
        staged.finish(None)
        file = self._new_file(origins.ended(written.schema.empty_table(), origin).schema)
        for batch in batches_of(self.store, staged.path):
            rows = pa.Table.from_batches([batch]).cast(written.schema)
            file.write(origins.ended(rows, origin))
        self.store.delete(staged.path)
        return file

    def _finish(self, written: Written, following: Written | None) -> None:
        """Write the footer, whose content is known only when the transaction has ended."""
        first, last = written.span.positions()
        begun, done = written.span.begun, written.span.done
        times = None
        if begun and done and begun.time and done.time:
            times = (begun.time, done.time)
        footer = Footer(
            stream=self.stream,
            kind=written.kind,
            first=str(first),
            last=str(last),
            complete=following is None or not _shares(written.span, following.span),
            commit_times=times,
            rows=written.rows,
            stream_id=self.stream_id,
            alteration=written.alteration,
            key=written.key,
        )
        if origins.ORDINALS.names[0] in written.schema.names:
            written.file = self._with_origins(written)
        written.file.finish(footer)


def key_of(table: SourceTable) -> RowKey:
    """By what changes of the table find their rows."""
    return RowKey(table.key, table.whole_rows)


def _shares(span: Span, following: Span) -> bool:
    """Whether the last transaction of a span continues in the one that follows."""
    assert span.done is not None
    assert following.begun is not None
    return span.done.end == following.begun.end


def _files(found: list[Segment]) -> Iterator[list[Segment]]:
    """Consecutive rows with the same columns make one file; a truncation is a file of its own."""
    group: list[Segment] = []
    for segment in found:
        if group and not _together(group[-1], segment):
            yield group
            group = []
        group.append(segment)
    if group:
        yield group


def _together(first: Segment, second: Segment) -> bool:
    return (
        isinstance(first, RowSegment)
        and isinstance(second, RowSegment)
        and first.table.schema == second.table.schema
        and second.alteration is None
    )
