"""The rows of landed files, read in a task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
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
from mirrorlake.model.change import Marker
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.store import StorageFailed, Store
from mirrorlake.storage.urls import open_file


@dataclass(frozen=True, slots=True)
class LandedPath:
    """A landed file as a task reaches it.

    text: how it is written, None for Parquet; part: the rows of a text to read, None for all;
    options: how its location is reached when that is a URL.
    """

    name: str
    location: str
    size: int
    text: TextFormat | None = None
    options: ObjectOptions | None = None
    part: TextPart | None = None


def landed_paths(store: Store, files: Iterable[Landed]) -> list[LandedPath]:
    """Landed files of a batch as tasks reach them, wherever these run."""
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
    """How the landed files of one table are read.

    default: the marker of a row without one; required: the columns that a file may lack only if all
    it does is delete; threads: how many the task may use; whole_rows: the key is all columns, which
    files need not have.
    """

    table: str
    schema: TableSchema
    key: tuple[str, ...]
    default: Marker
    required: tuple[str, ...] = ()
    row_checks: RowChecks = field(default_factory=RowChecks)
    threads: int = 1
    whole_rows: bool = False

    def read(self, landed: LandedPath) -> parquet.Rows:
        """All rows of a file, checked. Raises TableError."""
        with self._opened(landed) as handle:
            found = self._read(landed, handle)
        self._check(landed, found)
        return found

    def read_blocks(
        self, landed: LandedPath, share: Share, only: Sequence[str] | None = None
    ) -> Iterator[parquet.Rows]:
        """The rows of a share of a Parquet file, in blocks of bounded size.

        They are checked unless `only` some columns are wanted. An error counts the rows of its own
        block: it says that there is one, and not where. Raises TableError.
        """
        with self._opened(landed) as handle:
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
                    self._check(landed, found)
                yield found

    def read_inserts(self, landed: LandedPath) -> Iterator[pa.Table]:
        """The rows of a text, or of a part of one, in blocks. Raises NotAppendOnly, TableError."""
        assert landed.text is not None
        before = landed.part.row if landed.part else 0
        with self._opened(landed) as handle:
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
                yield rows.data

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
    def _opened(self, landed: LandedPath) -> Iterator[BinaryIO]:
        """A landed file to read. A storage that fails meanwhile is no fault of the file either."""
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
