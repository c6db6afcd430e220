"""The landed files that a table has applied, read again.

They are in the landing zone, or in its cleanup folder, where they stay for
`landing.retention_days`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mirrorlake.app.stores import store_of
from mirrorlake.apply.task.landed_rows import LandedRows, landed_paths
from mirrorlake.config import Project
from mirrorlake.delta.schema import TableSchema
from mirrorlake.errors import TableError
from mirrorlake.landing.metadata import NAMED
from mirrorlake.landing.parquet.reader import Rows
from mirrorlake.landing.scan import Landed, Scanner, TableScan
from mirrorlake.mirror.row_checks import RowChecks
from mirrorlake.model.change import Marker
from mirrorlake.model.landed import FileKind
from mirrorlake.model.table import TableId


class NotLanded(LookupError):
    """A file that was applied is no longer there, or the files have no numbers."""


def scanner_of(project: Project) -> Scanner:
    """Scans the landing zone of a project."""
    settings = project.mirror
    return Scanner(
        store_of(project), strict_text=settings.strict_text, partitions=settings.partitions
    )


@dataclass(frozen=True, slots=True)
class LandedFile:
    """A landed file. kind: None if another program published it; position: in the source, up to
    which it reaches, if known; rows: None for a truncation."""

    number: int
    kind: FileKind | None
    position: str | None
    rows: Rows | None


class LandedFiles:
    """The landed files of one table, those in its cleanup folder included."""

    def __init__(self, project: Project, table: TableId, scan: TableScan | None = None) -> None:
        """scan: of its folder, if that is known."""
        self.table, self._store, self._settings = table, store_of(project), project.mirror
        self._scanner = scanner_of(project)
        self._scan = scan
        self._files: dict[int, Landed] = {}

    @property
    def suppresses_unchanged(self) -> bool:
        """Whether the feed leaves out updates that change no value."""
        return self._settings.options_of(self.table).suppress_unchanged

    @property
    def numbers(self) -> set[int]:
        """Of the files that were there at the last look."""
        return set(self._files)

    def look(self) -> set[int]:
        """Look at the folder again. Returns the numbers of the files. Raises NotLanded."""
        if self._scan is None:
            found = [scan for scan in self._scanner.scan() if scan.table == self.table]
            self._scan = found[0] if found else None
        else:
            self._scan = self._scanner.scan_table(self._scan.folder)
        if self._scan is None:
            raise NotLanded("its folder is no longer in the landing zone")
        if self._scan.detection in NAMED:
            raise NotLanded("the files of the table have no single sequence of numbers")
        self._files = {one.number: one for one in (*self._scan.files, *self._scan.moved())}
        return self.numbers

    def read(self, number: int, schema: TableSchema, key: Sequence[str]) -> LandedFile:
        """A file that was there at the last look, with the columns of the table. Raises NotLanded,
        or the error of the table."""
        try:
            return self._read(number, schema, key)
        except (TableError, FileNotFoundError):
            self.look()  # it may have been moved to the cleanup folder, or deleted, meanwhile
            return self._read(number, schema, key)

    def _read(self, number: int, schema: TableSchema, key: Sequence[str]) -> LandedFile:
        if number not in self._files:
            raise NotLanded(f"landed file {number} is no longer there")
        landed = self._files[number]
        facts = self._scanner.inspect(self.table, landed)
        kind = facts.footer.kind if facts.footer else None
        position = facts.footer.last if facts.footer else None
        if kind is FileKind.TRUNCATE:
            return LandedFile(number, kind, position, None)
        metadata = self._scan.metadata if self._scan else None
        is_upsert = metadata is not None and metadata.upsert_default
        reader = LandedRows(
            str(self.table),
            schema,
            tuple(key),
            Marker.UPSERT if is_upsert else Marker.INSERT,
            row_checks=RowChecks(file_bytes=self._settings.row_checks.file_bytes),
            whole_rows=metadata is not None and metadata.whole_rows,
        )
        (path,) = landed_paths(self._store, [landed])
        return LandedFile(number, kind, position, reader.read(path))
