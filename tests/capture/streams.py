"""A stream of one table made by hand, and what should be landed of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from mirrorlake.model.arrow import arrow_schema
from mirrorlake.model.position import Lsn
from mirrorlake.model.table import Column, Schema, TableId
from mirrorlake.model.types import LONG, STRING
from mirrorlake.sources.chunk import Changes, Chunk, Transactions, Truncation
from mirrorlake.sources.table import SourceTable

ID = TableId("shop", "orders")
START = datetime(2026, 1, 1, tzinfo=UTC)


def source_table(*more: str) -> SourceTable:
    schema = Schema.of([Column("id", LONG), *(Column(name, STRING) for name in more)])
    return SourceTable(ID, schema, ("id",), "identity")


NARROW, WIDE = source_table("note"), source_table("note", "more")


@dataclass(frozen=True)
class Event:
    """One change. marker: None for a truncation. table: with the columns that it came with."""

    ordinal: int
    marker: int | None
    value: int = 0
    table: SourceTable = NARROW


@dataclass(frozen=True)
class Transaction:
    after: Lsn
    end: Lsn
    events: tuple[Event, ...]
    seconds: int | None = None  # by the clock of the source, which may be set back

    @property
    def time(self) -> datetime:
        seconds = self.end.value if self.seconds is None else self.seconds
        return START + timedelta(seconds=seconds)


def inserts(after: int, end: int, *values: int, table: SourceTable = NARROW) -> Transaction:
    """A transaction that inserts rows with these values."""
    events = [Event(n, 0, value, table) for n, value in enumerate(values, start=1)]
    return Transaction(Lsn(after), Lsn(end), tuple(events))


@dataclass
class _Open:
    """A chunk under construction."""

    opens: bool
    transactions: list[Transaction] = field(default_factory=list)
    events: list[tuple[int, Event]] = field(default_factory=list)

    def chunk(self, *, is_open: bool) -> Chunk:
        ends: list[Lsn | None] = [t.end for t in self.transactions]
        times: list[datetime | None] = [t.time for t in self.transactions]
        if is_open:
            ends[-1] = times[-1] = None
        ids = [str(t.end.value) for t in self.transactions]
        told = Transactions([t.after for t in self.transactions], ends, times, ids, is_open)
        return Chunk(told, list(_parts(self.events)), self.opens, None, 0)


def chunks(stream: Sequence[Transaction], stops: set[int] = frozenset()) -> Iterator[Chunk]:
    """The stream in chunks. stops: after which steps a chunk ends; a step is an event or a commit.

    A change of the key, two rows of one ordinal, is never torn apart.
    """
    step, building = 0, _Open(opens=False)
    for transaction in stream:
        building.transactions.append(transaction)
        for location, event in enumerate(transaction.events):
            building.events.append((len(building.transactions) - 1, event))
            step += 1
            following = transaction.events[location + 1 : location + 2]
            if step in stops and not any(e.ordinal == event.ordinal for e in following):
                yield building.chunk(is_open=True)
                building = _Open(opens=True, transactions=[transaction])
        step += 1
        if step in stops:
            yield building.chunk(is_open=False)
            building = _Open(opens=False)
    if building.transactions:
        yield building.chunk(is_open=False)


def _parts(events: Sequence[tuple[int, Event]]) -> Iterator[Changes | Truncation]:
    """Neighbours with the same columns are one part; a truncation is one by itself."""
    run: list[tuple[int, Event]] = []
    for index, event in events:
        if run and (event.marker is None or event.table is not run[-1][1].table):
            yield changes(run)
            run = []
        if event.marker is None:
            yield Truncation(event.table, index, event.ordinal, places([event.value]))
        else:
            run.append((index, event))
    if run:
        yield changes(run)


def changes(run: Sequence[tuple[int, Event]]) -> Changes:
    """Rows of one set of columns. The note of an update was not sent."""
    table = run[0][1].table
    values = [event.value for _index, event in run]
    columns = [pa.array(values, pa.int64())]
    columns += [pa.array([str(v) for v in values])] * (len(table.schema) - 1)
    unchanged = np.zeros((len(run), len(table.schema)), bool)
    unchanged[:, 1] = [event.marker == 1 for _index, event in run]
    return Changes(
        table=table,
        metadata=places(values),
        rows=pa.RecordBatch.from_arrays(columns, schema=arrow_schema(table.schema)),
        marker=np.array([event.marker for _index, event in run], np.int8),
        unchanged=unchanged if unchanged.any() else None,
        transaction=np.array([index for index, _event in run], np.int32),
        ordinal=np.array([event.ordinal for _index, event in run], np.int64),
    )


def places(values: Sequence[int]) -> pa.RecordBatch:
    """Where each change stands in the log."""
    return pa.RecordBatch.from_pydict({"lsn": pa.array(values, pa.uint64())})


@st.composite
def streams(draw: st.DrawFn) -> list[Transaction]:
    """Random transactions: other tables take ordinals too, and log points in between."""
    stream, end, value = [], 10, 0
    for _ in range(draw(st.integers(1, 6))):
        after = end + draw(st.integers(0, 3))
        end = after + draw(st.integers(1, 4))
        events: list[Event] = []
        ordinal = 0
        table = draw(st.sampled_from([NARROW, NARROW, WIDE]))
        for kind in draw(st.lists(st.sampled_from("IIIUDKTW"), max_size=6)):
            ordinal += draw(st.integers(1, 2))
            value += 1
            match kind:
                case "T":
                    events.append(Event(ordinal, None, value, table))
                case "K":
                    events.append(Event(ordinal, 2, value, table))
                    events.append(Event(ordinal, 0, value, table))
                case "W":
                    table = WIDE
                    events.append(Event(ordinal, 0, value, table))
                case _:
                    events.append(Event(ordinal, "IUD".index(kind), value, table))
        stream.append(Transaction(Lsn(after), Lsn(end), tuple(events)))
    return stream
