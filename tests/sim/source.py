"""The database of a simulation: what it was at each point, and how it is read.

Delivery is as bad as the contract allows: chunks end anywhere, also inside transactions, parts of
tables and their batches have any size, and what was not acknowledged comes again after a reconnect.
What was acknowledged is gone for good, as a server removes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from random import Random
from typing import Any

from mirrorlake.errors import SourceUnavailable
from mirrorlake.model.clock import Clock
from mirrorlake.model.position import LogPoint
from mirrorlake.model.table import Column, Schema, TableId
from mirrorlake.model.types import LONG, STRING
from mirrorlake.sources.memory.database import (
    Logged,
    MemoryDatabase,
    MemoryTransaction,
    Numbers,
    Write,
    WriteKind,
)
from mirrorlake.sources.memory.settings import MemorySettings
from mirrorlake.sources.memory.source import MemorySource
from tests.doubles.gtid import Sets

Row = tuple[int, str | None, str | None]
"""id, note, and a text that updates may leave out."""

COLUMNS = Schema.of([Column("id", LONG), Column("note", STRING), Column("text", STRING)])


class SimulatedDatabase:
    """A database in memory. Its log numbers transactions and has a slot, or is one of sets of
    transactions without a slot, and then another server may take over."""

    recognises = False

    def __init__(
        self, clock: Clock, random: Random, tables: Sequence[TableId], *, sets: bool = False
    ) -> None:
        self.clock, self.random, self.has_sets = clock, random, sets
        self.memory = MemoryDatabase(clock, Sets() if sets else Numbers(self._step))
        self._done: list[Logged] = []  # in the order in which they happened
        for table in tables:
            self._create(table)

    def _create(self, table: TableId) -> None:
        self.memory.create(str(table), COLUMNS, ["id"])

    def _step(self) -> tuple[int, int]:
        """A commit record may begin where the one before ended."""
        return self.random.choice([0, 0, 5]), self.random.randint(1, 9)

    def commit(self, transaction: MemoryTransaction) -> None:
        with self.memory.transaction(self.random.choice("ab")) as open_:
            open_.steps.extend(transaction.steps)
        self._done.append(self.memory.log[-1])

    def write_at(self, position: str) -> tuple[Write, datetime]:
        """The write at a position, as the metadata of a row has it, and when it was committed."""
        end, _, ordinal = position.rpartition(":")
        (logged,) = [one for one in self._done if str(one.end) == end]
        return logged.writes[int(ordinal) - 1], logged.time

    def deleted(self, table: TableId) -> set[Row]:
        """Every row that was deleted, truncated or moved to another key, as it was then."""
        rows: dict[int, Row] = {}
        found: set[Row] = set()
        writes = [write for logged in self._done for write in logged.writes]
        for write in writes:
            if write.table.table != table:
                continue
            gone = list(rows) if write.kind is WriteKind.TRUNCATE else []
            gone += [] if write.old is None else [write.old["id"]]
            found |= {rows.pop(key) for key in gone}
            if write.row is not None:
                row = write.row
                rows[row["id"]] = (row["id"], row["note"], row["text"])
        return found

    def rows(self, table: TableId) -> dict[int, Row]:
        """The rows now, by their key."""
        rows = self.memory.rows(str(table))
        return {row["id"]: (row["id"], row["note"], row["text"]) for row in rows}

    def rows_at(
        self, point: LogPoint, table: TableId, is_of: Callable[[Write], bool] = lambda _: True
    ) -> dict[int, Row]:
        """The rows as they were when everything up to `point` had happened, and nothing else.

        Every server commits the transactions of one row in the same order. is_of: whether a write
        under the name of the table is one of it.
        """
        read = [one for one in self._done if point.covers(one.end)]
        return rows_after(read, lambda write: write.table.table == table and is_of(write))

    def source(self, *, failures: float = 0.0) -> MemorySource:
        """The source as one process sees it. failures: share of reads that are not answered."""
        return MemorySource(self.settings(failures))

    def settings(self, failures: float) -> MemorySettings:
        random = self.random

        def before_read() -> None:
            if random.random() < failures:
                raise SourceUnavailable("the simulated database does not answer")
            self.clock.sleep(random.choice([0.0, 0.01, 0.1, 0.4]))

        return MemorySettings(
            self.memory,
            slot=None if self.has_sets else "mirrorlake",
            recognises=self.recognises,
            messages=lambda: random.randint(1, 12),
            parts=lambda: random.randint(1, 3),
            rows=lambda left: random.randint(1, left),
            before_read=before_read,
        )


def rows_after(transactions: Sequence[Logged], is_of: Callable[[Write], bool]) -> dict[int, Row]:
    """The rows of a table after these transactions. is_of: whether a write is one of it."""
    rows: dict[int, Row] = {}
    for write in (write for transaction in transactions for write in transaction.writes):
        if not is_of(write):
            continue
        if write.kind is WriteKind.TRUNCATE:
            rows.clear()
        if write.old is not None:
            del rows[write.old["id"]]
        if write.row is not None:
            row = write.row
            rows[row["id"]] = (row["id"], row["note"], row["text"])
    return rows


def values(row: Row) -> dict[str, Any]:
    return dict(zip(COLUMNS.names, row, strict=True))
