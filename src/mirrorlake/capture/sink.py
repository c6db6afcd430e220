"""The contract of a sink: a destination of the changes of one stream.

A stream has one or several sinks. Each sink determines from its durable state what it already has,
and skips what is sent again. The loop gives every chunk to every sink and keeps this order for
each:

    take (any number of chunks) → roll → (a chunk of a backfill) → cut

What every sink has cut is acknowledged to the source, so the slowest sink decides what the source
retains. What a sink has taken but not rolled is lost with the process and is sent again.

Failures: an error of one table of a sink is passed to `Lost` before anything else happens; the
table then leaves the stream in all sinks. Any other error ends the process, and the next process
continues from what is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Protocol

import pyarrow as pa

from mirrorlake.capture.records.stream import StreamRecord
from mirrorlake.errors import TableError
from mirrorlake.model.landed import BackfillChunk
from mirrorlake.model.position import LogPoint
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import Snapshot
from mirrorlake.sources.chunk import Chunk
from mirrorlake.sources.table import SourceTable

Lost = Callable[[TableId, TableError], None]
"""Called with a table that cannot continue. It records the error before it returns, and makes every
writer of the stream stop the table."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A table whose load is durable: rows, files, and the point at which the stream continues."""

    table: TableId
    rows: int
    files: int
    point: LogPoint

    def facts(self) -> dict[str, str | int]:
        """As it is logged."""
        position = str(self.point)
        return {
            "table": str(self.table),
            "rows": self.rows,
            "files": self.files,
            "position": position,
        }


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """The progress of the load of a table. expected: the source's estimate of its rows. time: when
    it was so, in seconds of the machine's monotonic clock, which its processes share."""

    table: TableId
    rows: int
    expected: int | None
    done: bool = False
    time: float = field(default_factory=monotonic)


@dataclass(frozen=True, slots=True)
class BackfillRows:
    """A chunk of a backfill.

    rows: in the form of a landed file, markers last. After them the table has exactly the rows that
        the source has in the chunk's range at `point`.
    point: the position of the stream. time: the commit time of the last transaction before it, if
        known.
    read: the rows as they were read, with the columns of the table. Where a sink is not corrected,
        without those that were changed since, up to `point`: what they are came with their changes.
    taken: by the clock of the source, a moment before they were read, as in `Snapshot`.
    dropped: columns that are dropped with this chunk, because the table was read again.
    """

    table: SourceTable
    chunk: BackfillChunk
    rows: pa.Table
    point: LogPoint
    time: datetime | None
    read: pa.Table
    taken: datetime
    dropped: tuple[str, ...] = ()


class SinkWriter(Protocol):
    """A sink while its stream is read. Not thread-safe."""

    @property
    def is_corrected(self) -> bool:
        """As `Sink.is_corrected`."""
        ...

    @property
    def durable(self) -> LogPoint:
        """Everything that ends at or before this point is durable in the sink. It never
        decreases."""
        ...

    def take(self, chunk: Chunk, now: float) -> None:
        """Take the next chunk of the stream, skipping what the sink already has.

        now: on the clock of `due`.
        """
        ...

    def due(self) -> float | None:
        """When the sink wants to be rolled; None while it has no ended transaction pending."""
        ...

    def roll(self, now: float) -> None:
        """Make durable what was taken of ended transactions."""
        ...

    def cut(
        self, point: LogPoint, time: datetime | None, differing: Collection[TableId] = ()
    ) -> None:
        """Record that everything that ends at or before `point` was taken and rolled.

        Afterwards `durable` covers the point, also in the next process. Without effect for a point
        that is already covered.

        time: the commit time of the last transaction, if known.
        differing: tables that differ from the source at the point because they are being read
            again.
        """
        ...

    def is_ahead(self, table: TableId) -> bool:
        """Whether the sink has more of the table than was taken since a restart."""
        ...

    def backfill(self, chunk: BackfillRows) -> None:
        """Make a chunk of a backfill durable, after everything that was taken and rolled.

        Called between `roll` and `cut`, for a table that is not ahead. Without effect for a stopped
        table. May be called again with the same chunk after a crash.
        """
        ...

    def stop(self, table: TableId, error: TableError) -> None:
        """The table has left the stream: discard what was taken of it and is not durable."""
        ...

    def abandon(self) -> None:
        """Discard everything that is not durable; the writer is not used any more."""
        ...


class Sink(Protocol):
    """A destination, before its stream is read."""

    @property
    def name(self) -> str:
        """Distinguishes the sink from the other sinks of the stream; the same in every process."""
        ...

    @property
    def metadata(self) -> bool:
        """Whether the sink needs the source's metadata of each row."""
        ...

    @property
    def unsupported(self) -> str:
        """Why no table can be backfilled in this sink; empty when some can."""
        ...

    @property
    def is_corrected(self) -> bool:
        """Whether a backfill makes a table in this sink equal to the source."""
        ...

    def recover(self) -> None:
        """Called first. Makes durable what an earlier process wrote but may not have flushed."""
        ...

    def durable(self) -> LogPoint | None:
        """As `SinkWriter.durable`; None before the first cut."""
        ...

    def tables(self) -> Collection[TableId]:
        """The tables of this stream in the sink, loaded or not."""
        ...

    def holds(self, table: TableId) -> bool:
        """Whether the sink has anything of the table."""
        ...

    def ends(self) -> Collection[LogPoint]:
        """The point up to which the sink has changes, for each table. Empty for a sink that cannot
        be repaired."""
        ...

    def identities(self) -> Mapping[TableId, str]:
        """`SourceTable.identity` at load time of the tables that the sink can reload."""
        ...

    def loaded_as(self, table: TableId) -> str:
        """`SourceTable.identity` at load time of a table that the sink holds; empty where that is
        unknown."""
        ...

    def drop(self, table: TableId) -> None:
        """Delete everything of a table that is not streamed; it is missing afterwards. May be
        called again after a crash."""
        ...

    def end(self, table: TableId) -> bool:
        """Delete what can be deleted of a table that was dropped in the source, and that is not
        streamed. Returns whether nothing is left. May be called again after a crash, and later."""
        ...

    def clear(self) -> None:
        """Delete everything of the stream, so that it can start again. May be called again after a
        crash."""
        ...

    def missing(self, tables: Sequence[SourceTable]) -> list[SourceTable]:
        """The tables that have to be loaded. Finishes loads that were complete but not yet visible
        when they were interrupted."""
        ...

    def load(
        self,
        record: StreamRecord,
        snapshot: Snapshot,
        tables: Sequence[SourceTable],
        pool: Executor,
        guard: Callable[[], None],
    ) -> Iterator[Loaded | TableError | None]:
        """Load tables, several parts at a time; yields each as soon as it is durable, and None at
        least once a second meanwhile. guard: raises when this process may no longer write.

        A table that cannot be loaded yields its error, and the others continue. A load that is
        interrupted before it is complete leaves nothing visible to readers.
        """
        ...

    def open(
        self, record: StreamRecord, tables: Sequence[SourceTable], start: LogPoint, lost: Lost
    ) -> SinkWriter:
        """A writer for these tables, which are all loaded.

        start: where the stream begins; nothing that ends at or before it is sent.
        """
        ...
