"""Reads the rows of landed files, in a task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.delta.schema import TableSchema
from mirrorlake.landing import text as delimited
from mirrorlake.landing.parquet import reader as parquet
from mirrorlake.landing.parquet.bounded import Share
from mirrorlake.landing.scan import Landed
from mirrorlake.landing.text.format import TextFormat
from mirrorlake.landing.text.splits import TextPart
from mirrorlake.mirror.faults import UnreadableFile
from mirrorlake.mirror.row_checks import RowChecks, check_rows
from mirrorlake.model.change import ROW_DELETED, Marker
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.store import StorageFailed, Store
from mirrorlake.storage.urls import open_file


@dataclass(frozen=True, slots=True)
class LandedPath:
    """A landed file, for tasks.

    text: the format of a delimited text, None for Parquet; part: the part of a text to read, None
    for all; options: how to access the location if it is a URL.
    """

    name: str
    location: str
    size: int
    text: TextFormat | None = None
    options: ObjectOptions | None = None
    part: TextPart | None = None


def landed_paths(store: Store, files: Iterable[Landed]) -> list[LandedPath]:
    """The landed files of a batch, for tasks on any machine."""
    return [
        LandedPath(
            str(file.name),
            store.location(file.path),
            file.size,
            file.text,
            store.options(file.path),
        )
        for file in files
    ]


@dataclass(frozen=True, slots=True)
class LandedRows:
    """Reads the landed files of one table.

    default: the operation of rows without a marker; required: columns that a file must contain
    unless it has only deletes; threads: number of threads of the task; whole_rows: all columns are
    the key, so files need not contain all of it; soft: the table has soft deletes, so read rows are
    marked as not deleted.
    """

    table: str
    schema: TableSchema
    key: tuple[str, ...]
    default: Marker
    required: tuple[str, ...] = ()
    row_checks: RowChecks = field(default_factory=RowChecks)
    threads: int = 1
    whole_rows: bool = False
    soft: bool = False

    def read(self, landed: LandedPath) -> parquet.Rows:
        """Read and check all rows of a file. Raises TableError."""
        with self.opened(landed) as handle:
            found = self._read(landed, handle)
        self._check(landed, found)
        return replace(found, data=self._present(found.data))

    def count(self, landed: LandedPath) -> int:
        """The number of rows of a Parquet file, by its footer. Raises TableError."""
        with self.opened(landed) as handle:
            return parquet.inspect(handle, landed.size, table=self.table, file=landed.name).rows

    def read_blocks(
        self, landed: LandedPath, share: Share, only: Sequence[str] | None = None
    ) -> Iterator[parquet.Rows]:
        """The rows of a share of a Parquet file, in blocks of bounded size.

        only: the columns to read; the rows are then not checked. The row number of an error is
        relative to the share. Raises TableError.
        """
        before = 0
        with self.opened(landed) as handle:
            for found in parquet.read_blocks(
                handle,
                landed.size,
                self.schema.schema,
                self.default,
                table=self.table,
                file=landed.name,
                most=self.row_checks.file_bytes,
                share=share,
                only=only,
            ):
                if only is None:
                    self._check(landed, found, before)
                before += found.data.num_rows
                yield replace(found, data=self._present(found.data))

    def read_inserts(self, landed: LandedPath) -> Iterator[pa.Table]:
        """The rows of a delimited text or a part of it, in blocks. Raises NotAppendOnly,
        TableError."""
        assert landed.text is not None
        before = landed.part.row if landed.part else 0
        with self.opened(landed) as handle:
            for rows in delimited.read_blocks(
                handle,
                landed.size,
                self.schema.schema,
                self.default,
                landed.text,
                table=self.table,
                file=landed.name,
                key=self.key,
                part=landed.part,
            ):
                insert = pa.scalar(int(Marker.INSERT), pa.int8())
                if not pc.all(pc.equal(rows.marker, insert)).as_py():
                    raise NotAppendOnly
                self._check(landed, rows, before)
                before += rows.data.num_rows
                yield self._present(rows.data)

    def _present(self, rows: pa.Table) -> pa.Table:
        """With soft deletes, the rows marked as not deleted."""
        if not self.soft or ROW_DELETED not in rows.column_names:
            return rows
        index = rows.column_names.index(ROW_DELETED)
        return rows.set_column(
            index, rows.schema.field(index), pa.repeat(pa.scalar(False), rows.num_rows)
        )

    def _read(self, landed: LandedPath, handle: BinaryIO) -> parquet.Rows:
        schema, most = self.schema.schema, self.row_checks.file_bytes
        if landed.text is not None:
            return delimited.read(
                handle,
                landed.size,
                schema,
                self.default,
                landed.text,
                table=self.table,
                file=landed.name,
                key=self.key,
                threads=self.threads,
                most=most,
            )
        return parquet.read(
            handle,
            landed.size,
            schema,
            self.default,
            table=self.table,
            file=landed.name,
            most=most,
        )

    def _check(self, landed: LandedPath, found: parquet.Rows, before: int = 0) -> None:
        check_rows(
            found,
            key=() if self.whole_rows else self.key,
            required=self.required,
            row_checks=self.row_checks,
            table=self.table,
            file=landed.name,
            before=before,
        )

    @contextmanager
    def opened(self, landed: LandedPath) -> Iterator[BinaryIO]:
        """Open a landed file. A failing storage is an error that is retried, not an error of the
        file."""
        try:
            handle = open_file(landed.location, landed.options)
        except OSError as error:
            raise self._unreadable(landed, "opened", error) from error
        with handle:
            try:
                yield handle
            except StorageFailed as error:
                raise self._unreadable(landed, "read", error) from error

    def _unreadable(self, landed: LandedPath, action: str, error: OSError) -> UnreadableFile:
        return UnreadableFile(
            f"cannot be {action}: {error.strerror or type(error).__name__}",
            table=self.table,
            file=landed.name,
            hint="Restore the file, or let this process read it. It is retried.",
        )


class NotAppendOnly(Exception):
    """A row is not an insert."""
