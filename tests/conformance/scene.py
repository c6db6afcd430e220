"""What a source stands on in tests, and how its chunks are read: one row after another.

A `Scene` is a database with an application that writes and an operator who alters. Its tables have
the columns `id` (an integer, the key unless said otherwise) and `note` (text). Everything the
suite of the contract does to a database goes through it, so that a source in memory and a server
can pass the same suite.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial, reduce
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from mirrorlake.errors import SourceUnavailable
from mirrorlake.model.change import Marker
from mirrorlake.model.position import LogPoint
from mirrorlake.sources.base import ChangeStream, ManagedObjects, OpenAgain, Snapshot, Source
from mirrorlake.sources.chunk import (
    Changes,
    Chunk,
    TableDiffers,
    TableLost,
    Transactions,
    Truncation,
)
from mirrorlake.sources.table import SourceTable

T = TypeVar("T")

PATIENCE = 120.0
"""Seconds after which something that should have happened never will."""

UNCHANGED = "<unchanged>"
"""Stands where the source did not send a value."""

TRUNCATE = "truncate"


class Writer(Protocol):
    """An open transaction of the application."""

    def insert(self, table: str, *rows: tuple[int, str | None]) -> None: ...
    def update(self, table: str, key: int, note: str) -> None: ...
    def rekey(self, table: str, key: int, new: int) -> None: ...
    def delete(self, table: str, key: int) -> None: ...
    def truncate(self, *tables: str) -> None: ...


class Scene(Protocol):
    """A database, used by its application and its operator. Table names are without schema."""

    def source(self, *, chunk_rows: int | None = None) -> Source:
        """The source anew, as after a restart. `chunk_rows`: at most so many changes per chunk."""
        ...

    def create(self, *tables: str, keyed: bool = True) -> None: ...

    @property
    def admits_tables(self) -> bool:
        """Whether tables can join while others are streamed."""
        ...

    def transaction(self) -> AbstractContextManager[Writer]:
        """Committed at the end of the block."""
        ...

    def busy(self, table: str) -> AbstractContextManager[list[int]]:
        """Until the end of the block rows are inserted, always in more than one open transaction.

        Gives the keys of what was committed; the list is complete after the block.
        """
        ...

    def write_elsewhere(self) -> None:
        """Let the log grow by something that is not for us."""
        ...

    def acknowledged(self) -> LogPoint:
        """Up to where the server remembers to have been told that it may forget."""
        ...

    def recreate(self, table: str) -> None:
        """Drop the table and make another one of the same name."""
        ...

    def add_column(self, table: str, column: str) -> None: ...
    def drop_column(self, table: str, column: str) -> None: ...
    def rename_column(self, table: str, column: str, new: str) -> None: ...

    def lose_place(self) -> None:
        """Let what was written to the log until now be gone from it."""
        ...


@dataclass(frozen=True)
class Event:
    """A change as a reader of one row at a time sees it.

    transaction: what the source calls its transaction; end: the point of that; through: where the
    stream stands behind it.
    """

    table: str
    kind: Marker | str
    row: dict[str, Any]
    ordinal: int
    time: datetime | None
    transaction: str
    end: LogPoint | None = None
    through: LogPoint | None = None


class Reader:
    """Reads a stream to its end, and takes its chunks apart."""

    def __init__(self, since: LogPoint, opened: Callable[[LogPoint], ChangeStream]) -> None:
        """opened: a stream of what is behind a point."""
        self._since, self._opened = since, opened
        self.stream = opened(since)
        self.chunks: list[Chunk] = []

    def read_to(self, target: LogPoint) -> list[Chunk]:
        """All chunks up to one with which everything that ends at or before `target` has come."""
        begun = len(self.chunks)

        def has_come() -> bool:
            try:
                chunk = self.stream.read(0.2)
            except OpenAgain:
                self._open_again()
                return False
            if chunk is None:
                return False
            self.chunks.append(chunk)
            return any(point.covers(target) for point in reached(chunk))

        until(has_come)
        return self.chunks[begun:]

    def _open_again(self) -> None:
        """Behind the last transaction that has ended with its chunk."""
        self.stream.close()
        while self.chunks and self.chunks[-1].transactions.is_open:
            self.chunks.pop()
        points = [self._since, *(point for chunk in self.chunks for point in reached(chunk))]
        self.stream = self._opened(reduce(lambda one, other: one.join(other), points))

    def close(self) -> None:
        self.stream.close()


def until(condition: Callable[[], T]) -> T:
    """Try again and again until it is true."""
    deadline = time.monotonic() + PATIENCE
    while not (result := condition()):
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.005)  # what is waited for may need this core, or this interpreter
    return result


def passed(transactions: Transactions) -> list[LogPoint]:
    """Where the stream stands behind each transaction that has ended."""
    return [transactions.through(index) for index in range(transactions.closed())]


def reached(chunk: Chunk) -> list[LogPoint]:
    """Where the stream stands behind each transaction that ends in the chunk, and at its end."""
    points = passed(chunk.transactions)
    return points if chunk.idle is None else [*points, chunk.idle]


@contextmanager
def streaming(
    source: Source,
    tables: Sequence[SourceTable],
    since: LogPoint,
    *,
    metadata: bool = False,
    secret: str = "",
) -> Iterator[Reader]:
    """The stream of the source. A place that is still held by the stream before is waited for."""

    def opened(point: LogPoint) -> ChangeStream | None:
        try:
            return source.stream(tables, point, metadata=metadata, secret=secret)
        except SourceUnavailable:
            return None

    reader = Reader(since, lambda point: until(partial(opened, point)))
    try:
        yield reader
    finally:
        reader.close()


def changes_now(source: Source, tables: Sequence[SourceTable], since: LogPoint) -> list[Event]:
    """What happened after a point and was not acknowledged, up to now, in order."""
    target = source.current()
    with streaming(source, tables, since) as reader:
        return events(reader.read_to(target))


def events(chunks: Sequence[Chunk]) -> list[Event]:
    """The changes of consecutive chunks in the order of the stream.

    Those of a transaction that has not ended are left out.
    """
    done: list[Event] = []
    open_: list[Event] = []
    for chunk in chunks:
        assert chunk.opens or not open_, "a transaction was not continued"
        mine = sorted(_rows(chunk), key=lambda event: event[1].ordinal)
        transactions = chunk.transactions
        for number, end in enumerate(transactions.end):
            open_ += [event for of, event in mine if of == number]
            if number < transactions.closed():
                through = transactions.through(number)
                done += [replace(event, end=end, through=through) for event in open_]
                open_ = []
    return done


def faults(chunks: Sequence[Chunk]) -> list[TableLost]:
    return [part for chunk in chunks for part in chunk.parts if isinstance(part, TableLost)]


def differing(chunks: Sequence[Chunk]) -> list[TableDiffers]:
    return [part for chunk in chunks for part in chunk.parts if isinstance(part, TableDiffers)]


def _rows(chunk: Chunk) -> Iterator[tuple[int, Event]]:
    """The changes of a chunk, each with the number of its transaction."""
    times, ids = chunk.transactions.time, chunk.transactions.id
    for part in chunk.parts:
        match part:
            case Truncation(table, number, ordinal):
                name, of = table.table.name, (times[number], ids[number])
                yield number, Event(name, TRUNCATE, {}, ordinal, *of)
            case Changes():
                numbers = part.transaction.tolist()
                rows = zip(_values(part), part.marker, part.ordinal.tolist(), numbers, strict=True)
                for row, marker, ordinal, number in rows:
                    name, of = part.table.table.name, (times[number], ids[number])
                    yield number, Event(name, Marker(marker), row, ordinal, *of)


def _values(part: Changes) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = part.rows.to_pylist()
    if part.unchanged is not None:
        names = part.rows.schema.names
        for row, column in np.argwhere(part.unchanged).tolist():
            rows[row][names[column]] = UNCHANGED
    return rows


def loaded(snapshot: Snapshot, table: SourceTable) -> list[dict[str, Any]]:
    """The rows of a table in a snapshot, in no order."""
    return read_whole(snapshot, table)[0]


def read_whole(
    snapshot: Snapshot, table: SourceTable
) -> tuple[list[dict[str, Any]], list[LogPoint]]:
    """The rows of a table in a snapshot, and the point at which each of its parts was read."""
    parts = snapshot.parts(table)
    rows = [row for part in parts for batch in snapshot.read(part) for row in batch.to_pylist()]
    return rows, [snapshot.upto(part) for part in parts]


def keys_of(ids: Sequence[int]) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int32())})


def prepared(
    scene: Scene, *tables: str, keyed: bool = True, chunk_rows: int | None = None
) -> tuple[Source, list[SourceTable], LogPoint]:
    """A source of these tables, the tables, and the point at which their stream begins."""
    scene.create(*tables, keyed=keyed)
    source = scene.source(chunk_rows=chunk_rows)
    return source, *established(source)


def established(source: Source) -> tuple[list[SourceTable], LogPoint]:
    """A new place in the log for everything that there is; its snapshot is not wanted.

    The tables are as a load finds them, which is after the place was made.
    """
    snapshot = begun(source, source.discover())
    snapshot.close()
    return source.discover(), snapshot.point


def begun(source: Source, tables: Sequence[SourceTable]) -> Snapshot:
    """The snapshot at which a new stream of these tables begins."""
    return source.objects.establish(tables).snapshot if source.objects else source.snapshot()


def resumed(source: Source, since: LogPoint) -> None:
    """Be sure that the log of this source has what ends after a point."""
    source.resume(since, source.identity())


def included(source: Source, tables: Sequence[SourceTable]) -> None:
    """Let the stream of the source carry these tables too."""
    if source.objects:
        source.objects.include(tables)


def objects_of(source: Source) -> ManagedObjects:
    """What is made for the source in its server."""
    assert source.objects is not None
    return source.objects


def named(tables: Sequence[SourceTable], name: str) -> SourceTable:
    return next(table for table in tables if table.table.name == name)


def told(found: Sequence[Event]) -> list[tuple[Any, ...]]:
    """The changes in short: kind and values; of a deletion only the key, as only that counts."""
    return [
        (event.kind, event.row["id"])
        if event.kind is Marker.DELETE
        else (event.kind, *event.row.values())
        for event in found
    ]
