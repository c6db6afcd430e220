"""A file of a load, written as a data file of the table would be.

So it can become one without being decoded: with pages, row groups, statistics and compression for
readers of the table, and a checksum of all pages in its footer.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlake.capture.staged.staged_file import Staged
from mirrorlake.delta.write import data_files
from mirrorlake.model.landed import Checksum, Footer
from mirrorlake.storage.store import Store

GROUP_BYTES = 32 << 20
"""Bytes in memory of the rows of a row group, which are held until it is written."""

_BUFFER = 1 << 20


class StagedDataFile(Staged):
    """As a `StagedFile`. Rows with huge texts (`has_huge`) must not follow others."""

    def __init__(self, store: Store, path: str, schema: pa.Schema) -> None:
        super().__init__(store, path)
        self._schema, self._summed = schema, _Summed(self._file)
        self._stream = pa.BufferedOutputStream(pa.PythonFile(self._summed, "w"), _BUFFER)
        self._held: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        with self._or_give_up():
            # A long text is in a row group, and so in a page, of its own: a page has a limit.
            if self._held and self._bytes + rows.nbytes > GROUP_BYTES:
                self._write_group()
            self._held += rows.to_batches() if isinstance(rows, pa.Table) else [rows]
            self._rows += rows.num_rows
            self._bytes += rows.nbytes
            if self._rows >= data_files.ROW_GROUP or self._bytes >= GROUP_BYTES:
                self._write_group()

    def finish(self, footer: Footer) -> None:
        """Close the file."""
        with self._or_give_up():
            writer = self._write_group()
            self._stream.flush()
            summed = self._summed
            if summed.size > _MAGIC:
                footer = replace(footer, data_file=Checksum(summed.size, summed.crc32))
            writer.add_key_value_metadata(footer.encode() | data_files.WRITER)
            writer.close()
            self._stream.flush()
        self._make_durable()

    def _write_group(self) -> pq.ParquetWriter:
        """Write the rows that are held."""
        rows = pa.Table.from_batches(self._held, self._schema)
        self._held, self._rows, self._bytes = [], 0, 0
        if self._writer is None:
            self._writer = data_files.writer_of(self._stream, rows, _bounded(rows))
        if rows.num_rows:
            self._writer.write_table(rows, data_files.ROW_GROUP)
        return self._writer

    def _give_up(self, error: BaseException) -> None:
        self._summed.is_dropped = True
        super()._give_up(error)


_MAGIC = len("PAR1")


def _bounded(rows: pa.Table) -> list[str]:
    """The columns with statistics in a file that begins with these rows. Later ones may have a NaN,
    which no statistics may leave out."""
    has_huge = any(map(data_files.has_huge, rows.columns))
    return [
        field.name
        for field in rows.schema
        if not pa.types.is_floating(field.type)
        and not (has_huge and data_files.is_text(field.type))
    ]


class _Summed:
    """A file to write to, with the size and the checksum of what was written."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size = self.crc32 = 0
        self.is_dropped = False
        self.closed = False

    def write(self, content: bytes) -> int:
        if self.is_dropped:
            return len(content)
        self.crc32 = zlib.crc32(content, self.crc32)
        self.size += len(content)
        self._file.write(content)
        return len(content)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        """Left to the store."""

    def close(self) -> None:
        """Left to the store."""
