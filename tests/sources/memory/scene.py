"""A database in memory as a scene for the contract of sources."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from mirrorlake.model.position import LogPoint
from mirrorlake.model.table import Column, Schema, TableId
from mirrorlake.model.types import INTEGER, STRING
from mirrorlake.sources.memory.database import MemoryTransaction
from mirrorlake.sources.memory.settings import MemorySettings
from mirrorlake.sources.memory.source import MemorySource

COLUMNS = Schema.of([Column("id", INTEGER), Column("note", STRING)])


class MemoryWriter:
    """An open transaction."""

    def __init__(self, transaction: MemoryTransaction) -> None:
        self._transaction = transaction

    def insert(self, table: str, *rows: tuple[int, str | None]) -> None:
        for key, note in rows:
            self._transaction.insert(table, id=key, note=note)

    def update(self, table: str, key: int, note: str) -> None:
        self._transaction.update(table, {"id": key}, note=note)

    def rekey(self, table: str, key: int, new: int) -> None:
        self._transaction.update(table, {"id": key}, id=new)

    def delete(self, table: str, key: int) -> None:
        self._transaction.delete(table, id=key)

    def truncate(self, *tables: str) -> None:
        for table in tables:
            self._transaction.truncate(table)


class MemoryScene:
    """A `Scene` on one database. `settings` say how it is read."""

    admits_tables = True

    def __init__(self, settings: MemorySettings) -> None:
        self.settings, self.database = settings, settings.database

    def source(self, *, chunk_rows: int | None = None) -> MemorySource:
        size = chunk_rows or 1_000
        return MemorySource(replace(self.settings, messages=lambda: size))

    def create(self, *tables: str, keyed: bool = True) -> None:
        for table in tables:
            self.database.create(table, COLUMNS, ["id"] if keyed else [])

    @contextmanager
    def transaction(self, server: str = "a") -> Iterator[MemoryWriter]:
        with self.database.transaction(server) as transaction:
            yield MemoryWriter(transaction)

    @contextmanager
    def busy(self, table: str) -> Iterator[list[int]]:
        committed: list[int] = []
        begun, done = threading.Event(), threading.Event()

        def work() -> None:
            key = 0
            while not (done.is_set() and key > 100):
                with self.transaction("a") as one, self.transaction("b") as other:
                    one.insert(table, (key + 1, "busy"))
                    other.insert(table, (key + 2, "busy"))
                key += 2
                committed.extend((key - 1, key))
                if key == 20:
                    begun.set()

        worker = threading.Thread(target=work)
        worker.start()
        begun.wait()
        try:
            yield committed
        finally:
            done.set()
            worker.join()

    def write_elsewhere(self) -> None:
        with self.database.transaction("elsewhere"):
            pass

    def acknowledged(self) -> LogPoint:
        assert self.settings.slot is not None
        return self.database.slots[self.settings.slot].acknowledged

    def recreate(self, table: str) -> None:
        self.database.drop(table)
        self.create(table)

    def add_column(self, table: str, column: str) -> None:
        self._alter(table, [*self._columns(table), (Column(column, STRING), None)])

    def drop_column(self, table: str, column: str) -> None:
        self._alter(table, [c for c in self._columns(table) if c[1] != column])

    def rename_column(self, table: str, column: str, new: str) -> None:
        known = self._columns(table)
        self._alter(table, [(replace(c, name=new), w) if w == column else (c, w) for c, w in known])

    def lose_place(self) -> None:
        self.database.forget(self.database.current)

    def _columns(self, table: str) -> list[tuple[Column, str | None]]:
        schema = self.database.tables[TableId.parse(table)].described.schema
        return [(column, column.name) for column in schema]

    def _alter(self, table: str, columns: list[tuple[Column, str | None]]) -> None:
        with self.database.transaction() as write:
            write.alter(table, columns)
