"""The outbox of one table: from segments to published files.

Closed segments wait in memory until the roll. Segments of the open transaction are kept apart; when
they grow beyond a file they are written to staged files whose footers wait for the end of the
transaction, so that memory stays bounded whatever its size. Files get their numbers when they are
published, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from mirrorlake.capture import segments
from mirrorlake.capture.landing.staged import StagedFile
from mirrorlake.capture.segments import Closed, Emptied, RowSegment, Segment, Span, counts, table_of
from mirrorlake.landing import publish
from mirrorlake.model.arrow import arrow_schema
from mirrorlake.model.change import MARKER_COLUMN, Alteration
from mirrorlake.model.landed import DEFAULT_STREAM, FileKind, Footer
from mirrorlake.model.position import LogPoint, Position
from mirrorlake.model.table import TableId
from mirrorlake.sources.chunk import Changes, Transactions, Truncation
from mirrorlake.storage.store import Store

Fill = Callable[[RowSegment], RowSegment]
"""Makes rows whole that the source sent in part (strict zones)."""

Recreate = Callable[[TableId, str, Position], int]
"""Makes the folder of a table anew at a position (strict zones); returns its last file number."""


@dataclass(slots=True)
class Written:
    """A staged file that waits for its footer."""

    file: StagedFile
    kind: FileKind
    span: Span
    rows: dict[str, int]
    alteration: Alteration | None = None


@dataclass(slots=True)
class Outbox:
    """What waits to be published for one table.

    checkpoint: the position up to which everything is landed already; None once the stream has
    passed it. unfinished: transactions of which only the first changes are landed, with the last
    ordinal of those, until the rest has come. upto: what the loaded rows may hold, until all of it
    has come: whatever tells a row replaces it. number: of the last published file.
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
    stream_id: str = DEFAULT_STREAM
    fill: Fill | None = None
    recreate: Recreate | None = None
    oldest: float | None = None  # when the oldest closed change arrived, by the loop's clock
    size: int = 0  # bytes of closed segments
    open_size: int = 0
    _closed: list[Segment] = field(default_factory=list)
    _open: list[Segment] = field(default_factory=list)
    _parked: list[Written] = field(default_factory=list)
    _ready: list[Written] = field(default_factory=list)
    _staged: int = 0
    _schema: pa.Schema | None = None
    _alteration: Alteration | None = None  # before what is taken next

    def is_empty(self) -> bool:
        """Nothing is closed and unpublished."""
        return not self._closed and not self._ready

    @property
    def is_altered(self) -> bool:
        """The columns have changed, which is landed with what is taken next."""
        return self._alteration is not None

    def has_open(self) -> bool:
        return bool(self._open or self._parked)

    def take(self, part: Changes | Truncation, transactions: Transactions, now: float) -> int:
        """What happened to the table next; what is landed already is left out. Returns its rows."""
        closed: Segment | None
        still_open: Segment | None
        alteration, self._alteration = self._alteration, None
        if isinstance(part, Changes):
            kept = segments.after(part, transactions, self.checkpoint)
            if kept is None:
                return 0
            if len(kept.marker) < len(part.marker) and not segments.begin_together(kept, part):
                alteration = None  # landed with the first row
            if self.unfinished:
                self._finish_all(kept.transaction, transactions)
            if self.upto is not None:
                kept = segments.upserts(kept, transactions, self.upto)
                if transactions.after[0].covers(self.upto):
                    self.upto = None
            closed, still_open = segments.split(kept, transactions)
            rows = len(kept.marker)
        else:
            if not segments.is_after(part, transactions, self.checkpoint):
                return 0
            self._finish_all(np.array([part.transaction]), transactions)
            closed, still_open = segments.emptied(part, transactions)
            rows = 0
        if alteration and closed:
            closed = replace(closed, alteration=alteration)
        elif alteration and still_open:
            still_open = replace(still_open, alteration=alteration)
        if closed:
            self._add(closed, now)
        if still_open:
            self._add_open(still_open)
        return rows

    def alter(self, alteration: Alteration | None) -> None:
        """The columns have changed before what is taken next; the two are landed together."""
        self._alteration = alteration if alteration and alteration.columns else None

    def _finish_all(self, indexes: np.ndarray, transactions: Transactions) -> None:
        """The rest of these transactions has come, of those that have ended."""
        for index in np.unique(indexes[indexes < transactions.closed()]).tolist():
            self.unfinished.pop(transactions.end[index], None)

    def _add(self, segment: Segment, now: float) -> None:
        """A segment whose transactions are closed, after all that were added or closed before."""
        self._closed.append(replace(segment, span=self._beyond(segment.span)))
        self.size += segment.size if isinstance(segment, RowSegment) else 0
        self.oldest = now if self.oldest is None else self.oldest

    def _add_open(self, segment: Segment) -> None:
        """A segment of the open transaction."""
        self._open.append(segment)
        self.open_size += segment.size if isinstance(segment, RowSegment) else 0
        if self.open_size >= self.file_bytes:
            self._park()

    def _park(self) -> None:
        """Write the open segments to staged files that wait for the end of their transaction."""
        for group in _files(self._open):
            self._parked.append(self._write(group))
        self._open, self.open_size = [], 0

    def close(self, transaction: Closed, now: float) -> None:
        """The open transaction has ended."""
        self.unfinished.pop(transaction.end, None)
        if self.checkpoint is not None and self.checkpoint.passes(transaction.end):
            self._discard_open()  # an earlier transaction after all: landed before the restart
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
            self._add(replace(segment, span=segment.span.closed(transaction)), now)

    def pass_checkpoint(self) -> None:
        """Everything that was landed before the restart has come again."""
        self.checkpoint, self.unfinished = None, {}

    def seal(self) -> None:
        """Make everything that is closed durable in staged files."""
        self._stage()
        for index, written in enumerate(self._ready):
            following = self._ready[index + 1] if index + 1 < len(self._ready) else None
            self._finish(written, following)

    def publish(self) -> Iterator[int]:
        """Give the sealed files their numbers, in order, yielding each number."""
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
        """Forget everything that is not published; a restart reads it again."""
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
        """The span, where what was landed before the restart is landed too."""
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
        self._staged += 1
        path = publish.staged_path(self.staging, str(self._staged))
        if isinstance(first, Emptied):
            schema, kind = arrow_schema(first.table.schema), FileKind.TRUNCATE
            table = schema.append(pa.field(MARKER_COLUMN, pa.int8())).empty_table()
        else:
            rows = [s for s in group if isinstance(s, RowSegment)]
            table = table_of([self.fill(s) for s in rows] if self.fill else rows)
            kind = FileKind.CHANGES
        file = StagedFile(self.store, path, table.schema)
        file.write(table)
        return Written(file, kind, span, counts(table[MARKER_COLUMN]), first.alteration)

    def _finish(self, written: Written, following: Written | None) -> None:
        """Write the footer, which is known only when the transaction has ended."""
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
        )
        written.file.finish(footer)


def _shares(span: Span, following: Span) -> bool:
    """Whether the last transaction of a span goes on in the one that follows."""
    assert span.done is not None
    assert following.begun is not None
    return span.done.end == following.begun.end


def _files(found: list[Segment]) -> Iterator[list[Segment]]:
    """Neighbouring rows with the same columns make one file; a truncation is one by itself."""
    group: list[Segment] = []
    for segment in found:
        if group and not _together(group[-1], segment):
            yield group
            group = []
        group.append(segment)
    if group:
        yield group


def _together(one: Segment, other: Segment) -> bool:
    return (
        isinstance(one, RowSegment)
        and isinstance(other, RowSegment)
        and one.table.schema == other.table.schema
        and other.alteration is None
    )
