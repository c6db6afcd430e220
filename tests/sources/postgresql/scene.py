"""A database of PostgreSQL as a scene for the contract of sources."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import psycopg

from mirrorlake.model.position import Lsn
from mirrorlake.sources.postgresql.publishing.publication import loses_additions
from mirrorlake.sources.postgresql.settings import PostgresSettings
from mirrorlake.sources.postgresql.source import PostgresSource
from tests.conftest import Database


class PostgresWriter:
    """An open transaction."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection

    def insert(self, table: str, *rows: tuple[int, str | None]) -> None:
        values = ", ".join(["(%s, %s)"] * len(rows))
        self._run(f"insert into {table} values {values}", *(v for row in rows for v in row))

    def update(self, table: str, key: int, note: str) -> None:
        self._run(f"update {table} set note = %s where id = %s", note, key)

    def rekey(self, table: str, key: int, new: int) -> None:
        self._run(f"update {table} set id = %s where id = %s", new, key)

    def delete(self, table: str, key: int) -> None:
        self._run(f"delete from {table} where id = %s", key)

    def truncate(self, *tables: str) -> None:
        self._run(f"truncate {', '.join(tables)}")

    def _run(self, statement: str, *values: int | str | None) -> None:
        self._connection.execute(statement, values)


class PostgresScene:
    """A `Scene` in the schema `public` of one database."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._settings: PostgresSettings = database.settings()
        self._sources: list[PostgresSource] = []

    def source(self, *, chunk_rows: int | None = None) -> PostgresSource:
        # A chunk ends with the message that makes it too large, so every message gets its own.
        small = {"chunk_bytes": 1} if chunk_rows else {}
        source = PostgresSource(replace(self._settings, **small))
        self._sources.append(source)
        return source

    def create(self, *tables: str, keyed: bool = True) -> None:
        key = "primary key" if keyed else ""
        for table in tables:
            self._run(f"create table {table} (id int {key}, note text)")

    @property
    def admits_tables(self) -> bool:
        return not loses_additions(self.database.sql.info.server_version)

    @contextmanager
    def transaction(self) -> Iterator[PostgresWriter]:
        with psycopg.connect(self.database.url) as connection:
            yield PostgresWriter(connection)

    @contextmanager
    def busy(self, table: str) -> Iterator[list[int]]:
        committed: list[int] = []
        begun, done = threading.Event(), threading.Event()
        worker = threading.Thread(target=self._write, args=(table, committed, begun, done))
        worker.start()
        begun.wait()
        try:
            yield committed
        finally:
            done.set()
            worker.join()

    def _write(
        self, table: str, committed: list[int], begun: threading.Event, done: threading.Event
    ) -> None:
        """Two transactions take turns: each commits when the other has begun."""
        with psycopg.connect(self.database.url) as one, psycopg.connect(self.database.url) as two:
            key = 1
            PostgresWriter(one).insert(table, (key, "busy"))
            while not (done.is_set() and key > 100):
                PostgresWriter(two).insert(table, (key + 1, "busy"))
                one.commit()
                committed.append(key)
                one, two, key = two, one, key + 1  # noqa: PLW2901
                if key == 20:
                    begun.set()
            one.commit()
            committed.append(key)

    def write_elsewhere(self) -> None:
        with psycopg.connect(self.database.server.url) as other:
            other.execute("select pg_logical_emit_message(true, 'noise', repeat('x', 10000))")

    def acknowledged(self) -> Lsn:
        row = self.database.sql.execute(
            "select confirmed_flush_lsn::text from pg_replication_slots where slot_name = %s",
            [self._settings.slot],
        ).fetchone()
        assert row is not None
        return Lsn.parse(row[0])

    def recreate(self, table: str) -> None:
        self._run(f"drop table {table}")
        self.create(table)
        publication = self._settings.publication
        known = "select 1 from pg_publication where pubname = %s"
        if self.database.sql.execute(known, [publication]).fetchone():
            self._run(f"alter publication {publication} add table {table}")

    def add_column(self, table: str, column: str) -> None:
        self._run(f"alter table {table} add column {column} text")

    def drop_column(self, table: str, column: str) -> None:
        self._run(f"alter table {table} drop column {column}")

    def rename_column(self, table: str, column: str, new: str) -> None:
        self._run(f"alter table {table} rename column {column} to {new}")

    def lose_place(self) -> None:
        self._run(f"select pg_drop_replication_slot('{self._settings.slot}')")

    def close(self) -> None:
        for source in self._sources:
            source.close()

    def _run(self, statement: str) -> None:
        self.database.sql.execute(statement)
