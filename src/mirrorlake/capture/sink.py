"""The contract of a sink: a destination of the changes of one stream.

A stream has one sink or several. Each sink finds out by itself what it holds, from what is durable
in it, and leaves out what comes again. The loop gives every chunk to every sink, and for each sink
keeps this order:

    take (any number of chunks) → roll → (a chunk of a backfill) → cut

What every sink has cut is acknowledged to the source, so the slowest sink decides what the source
keeps. What a sink has taken and not rolled is lost with the process, and comes again.

Failures: what is wrong with one table of a sink is told to `Lost`, at once and before anything else
is done; the table then leaves the stream, with all its sinks. Any other error ends the process,
and the next one goes on from what is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import pyarrow as pa

from mirrorlake.capture.record import StreamRecord
from mirrorlake.errors import TableError
from mirrorlake.model.landed import BackfillChunk
from mirrorlake.model.position import LogPoint
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import Snapshot
from mirrorlake.sources.chunk import Chunk
from mirrorlake.sources.table import SourceTable

Lost = Callable[[TableId, TableError], None]
"""Told of a table that cannot go on. It records the error before it returns, and has every writer
of the stream stop the table."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A table whose load is durable: rows, files, and the point at which the stream goes on."""

    table: TableId
    rows: int
    files: int
    point: LogPoint


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """How far the load of a table is. expected: its rows by the source's own estimate."""

    table: TableId
    rows: int
    expected: int | None
    done: bool = False


@dataclass(frozen=True, slots=True)
class BackfillRows:
    """A chunk of a backfill. rows: as a landed file has them, markers last: what they leave is all
    that the source has in the range of the chunk at `point`, which is where the stream stands.
    time: when the last transaction before that was committed, if known."""

    table: SourceTable
    chunk: BackfillChunk
    rows: pa.Table
    point: LogPoint
    time: datetime | None


class SinkWriter(Protocol):
    """A sink while its stream is read. Not for several threads."""

    @property
    def durable(self) -> LogPoint:
        """Everything that ends at or before it is durable in the sink. It only grows."""
        ...

    def take(self, chunk: Chunk, now: float) -> None:
        """Take the next chunk of the stream; what the sink holds already is left out.

        now: by the clock that `due` answers in.
        """
        ...

    def due(self) -> float | None:
        """When the sink wants to be rolled; None while nothing that has ended waits in it."""
        ...

    def roll(self, now: float) -> None:
        """Make everything durable that was taken of transactions that have ended."""
        ...

    def cut(self, point: LogPoint, time: datetime | None) -> None:
        """Everything that ends at or before `point` was taken and rolled; `time` is when the last
        of it was committed, if known. Afterwards `durable` covers the point, also for the next
        process. A point that is covered already changes nothing.
        """
        ...

    def is_ahead(self, table: TableId) -> bool:
        """Whether more of the table is durable in the sink than was taken, after a restart, or
        its columns have changed and nothing was taken since that could tell it."""
        ...

    def backfill(self, chunk: BackfillRows) -> None:
        """Make a chunk of a backfill durable, behind everything that was taken and rolled.

        Called between `roll` and `cut`, for a table that is not ahead. A table that was stopped
        changes nothing. May be called again with the same chunk after a crash.
        """
        ...

    def stop(self, table: TableId, error: TableError) -> None:
        """The table has left the stream: what was taken of it and is not durable is forgotten."""
        ...

    def abandon(self) -> None:
        """Forget everything that is not durable; the writer is not used any more."""
        ...


class Sink(Protocol):
    """A destination, as it is found."""

    @property
    def metadata(self) -> bool:
        """Whether it wants to be told what the log says of each row."""
        ...

    @property
    def unsupported(self) -> str:
        """Why no table can be backfilled in it; empty when some can."""
        ...

    def recover(self) -> None:
        """Called first. What an earlier process may not have lived to make durable is made so."""
        ...

    def durable(self) -> LogPoint | None:
        """As `SinkWriter.durable`; None before anything was cut."""
        ...

    def tables(self) -> Collection[TableId]:
        """The tables of this stream that the sink knows, loaded or not."""
        ...

    def holds(self, table: TableId) -> bool:
        """Whether something of the table is in the sink."""
        ...

    def identities(self) -> Mapping[TableId, str]:
        """Which tables of the source it holds, of those that it can begin anew: by name, what
        `SourceTable.identity` was when they were loaded."""
        ...

    def drop(self, table: TableId) -> None:
        """Delete everything of a table that is not streamed; it is missing then. May be called
        again after a crash."""
        ...

    def missing(self, tables: Sequence[SourceTable]) -> list[SourceTable]:
        """Those of the tables that have to be loaded. A load that is complete, but was interrupted
        before it could be seen, is finished here."""
        ...

    def load(
        self,
        record: StreamRecord,
        snapshot: Snapshot,
        tables: Sequence[SourceTable],
        pool: Executor,
    ) -> Iterator[Loaded | TableError]:
        """Load tables, several parts at a time; yields each as it is durable.

        A table that cannot be loaded yields its error, and the others go on. A load that is
        interrupted before it is complete leaves nothing that a reader would see.
        """
        ...

    def open(
        self, record: StreamRecord, tables: Sequence[SourceTable], start: LogPoint, lost: Lost
    ) -> SinkWriter:
        """A writer for these tables, which are all loaded. start: where the stream once began."""
        ...
