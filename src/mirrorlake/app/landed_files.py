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
from mirrorlake.landing.metadata import NAMED
from mirrorlake.landing.parquet.reader import Rows
from mirrorlake.landing.scan import Landed, Scanner, TableScan
from mirrorlake.mirror.faults import UnreadableFile
from mirrorlake.model.change import Marker
from mirrorlake.model.landed import FileKind
from mirrorlake.model.table import TableId


class NotLanded(LookupError):
    """A file that was applied is no longer there, or the files have no numbers."""


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

    def __init__(self, project: Project, table: TableId) -> None:
        self.table, self._store, self._settings = table, store_of(project), project.mirror
        settings = project.mirror
        self._scanner = Scanner(
            self._store, strict_text=settings.strict_text, partitions=settings.partitions
        )
        self._scan: TableScan | None = None
        self._files: dict[int, Landed] = {}

    def look(self) -> set[int]:
        """Look at the folder again. Returns the numbers of the files. Raises NotLanded."""
        found = [scan for scan in self._scanner.scan() if scan.table == self.table]
        if not found:
            raise NotLanded("its folder is no longer in the landing zone")
        self._scan = found[0]
        if self._scan.detection in NAMED:
            raise NotLanded("the files of the table have no single sequence of numbers")
        self._files = {one.number: one for one in (*self._scan.moved(), *self._scan.files)}
        return set(self._files)

    def read(self, number: int, schema: TableSchema, key: Sequence[str]) -> LandedFile:
        """A file, with the columns of the table. Raises NotLanded, or the error of the table."""
        try:
            return self._read(number, schema, key)
        except (UnreadableFile, FileNotFoundError):
            self.look()  # it may have been moved to the cleanup folder meanwhile
            return self._read(number, schema, key)

    def _read(self, number: int, schema: TableSchema, key: Sequence[str]) -> LandedFile:
        if number not in self._files and number not in self.look():
            raise NotLanded(f"landed file {number} is no longer there")
        landed = self._files.pop(number)  # it may be moved before it is read again
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
            row_checks=self._settings.row_checks,
            whole_rows=metadata is not None and metadata.whole_rows,
        )
        (path,) = landed_paths(self._store, [landed])
        return LandedFile(number, kind, position, reader.read(path))
