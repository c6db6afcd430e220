"""A database under capture, for tests that speak its SQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from mirrorlake.model.position import Lsn
from mirrorlake.sources.chunk import Chunk
from mirrorlake.sources.postgresql.settings import PostgresSettings
from mirrorlake.sources.postgresql.source import PostgresSource
from mirrorlake.sources.selection import Selection
from mirrorlake.sources.table import SourceTable
from tests.conformance.scene import Event, Reader, changes_now, loaded, named, streaming
from tests.conftest import Database

BEGINNING = Lsn(0)
"""The slot remembers by itself what was acknowledged."""


@dataclass
class Captured:
    """Sources on one database. `begin` makes the place in the log, `run` changes what there is."""

    database: Database
    settings: PostgresSettings
    tables: Sequence[SourceTable] = ()
    _sources: list[PostgresSource] = field(default_factory=list)

    def source(self, **changes: Any) -> PostgresSource:
        """The source anew, with other settings if wanted."""
        source = PostgresSource(replace(self.settings, **changes))
        self._sources.append(source)
        return source

    def run(self, *statements: str) -> None:
        self.database.execute(*statements)

    def begin(self, *statements: str) -> Sequence[str]:
        """Run the statements, then make a place in the log. Returns what was made."""
        self.run(*statements)
        source = self.source()
        self.tables = source.discover()
        established = source.objects.establish(self.tables)
        established.snapshot.close()
        self.tables = source.discover()  # as they are published
        return established.made

    def changes(self, *statements: str) -> list[Event]:
        """Run the statements. Returns all changes since the beginning."""
        self.run(*statements)
        return changes_now(self.source(), self.tables, BEGINNING)

    def chunks(self, *statements: str) -> list[Chunk]:
        """As `changes`, not taken apart."""
        self.run(*statements)
        source = self.source()
        target = source.current()
        with streaming(source, self.tables, BEGINNING) as reader:
            return reader.read_to(target)

    @contextmanager
    def streaming(self) -> Iterator[tuple[PostgresSource, Reader]]:
        """One source and its stream, while statements are run."""
        source = self.source()
        with streaming(source, self.tables, BEGINNING) as reader:
            yield source, reader

    def snapshot(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table as a load reads them now."""
        source = self.source()
        described = named(source.discover(), table)
        snapshot = source.snapshot()
        try:
            return loaded(snapshot, described)
        finally:
            snapshot.close()

    def discovered(self, table: str) -> SourceTable:
        return named(self.source().discover(), table)

    def select(self, *tables: str, **more: Any) -> None:
        """Capture these tables only."""
        self.settings = replace(self.settings, selection=Selection(tables=tables, **more))

    def close(self) -> None:
        for source in self._sources:
            source.close()
