"""Reads whole data files of a table, with all of its columns."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlake.delta.schema import TableSchema
from mirrorlake.model.arrow import arrow_schema
from mirrorlake.storage.small_files import content_of

_OPTIONS: dict[str, Any] = {
    # Spark writes timestamps as INT96. As nanoseconds, Arrow's default, they would end in 2262.
    "coerce_int96_timestamp_unit": "us",
    "pre_buffer": False,
    "page_checksum_verification": True,
    "arrow_extensions_enabled": True,  # as `pq.ParquetFile` does
}


MOST_ALIKE, LARGEST_ALIKE = 16, 1 << 10
"""Number of columns that are remembered because other files may have the same, and the maximum
bytes of each of them in its file."""

_StoredColumn = tuple[bytes, str, str, int]
"""The pages of a column with their headers and checksums, its path, the codec, and the number of
rows: with the same Parquet schema, the same values."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What is known of files with this schema. decoded: last columns of some of them."""

    schema: pq.ParquetSchema
    decoded: dict[_StoredColumn, pa.ChunkedArray] = field(default_factory=dict)


@contextmanager
def opened(path: str) -> Iterator[pq.ParquetFile]:
    """A data file, whose pages are checked when they are read."""
    # For a path, Arrow looks for a file system first, which takes a tenth of reading a small file.
    with pa.OSFile(path) as source:
        yield pq.ParquetFile(source, **_OPTIONS)


class WholeFileReader:
    """Reads files with the columns of `schema`. Small files take a third of a millisecond each, so
    what follows from the schema is derived once.

    columns: a text that is the same for the same schema, whose hash is computed once.
    alike: the name of the last column, if its values are often the same in several small files:
        its stored bytes are compared then, and decoded once.
    """

    def __init__(self, schema: TableSchema, alike: str | None = None) -> None:
        self.schema, self._target = schema, arrow_schema(schema.schema)
        self.columns = repr(schema)
        self._names = schema.file_schema().names
        self._stored = frozenset(self._names)
        self._is_named_alike = list(schema.physical) == schema.schema.names
        self._alike = alike
        self._seen: _Seen | None = None

    def read(
        self, path: str, *, is_small: bool, size: int | None = None
    ) -> Generator[None, None, pa.Table]:
        """All rows of a file, deleted ones included, with all columns of the table; see
        `TableSchema.missing_column` for columns that the file does not contain. The caller may do
        the same for other files between the steps: read, open, decode, and put together.

        is_small: read the bytes of the file at once, and decode them in this thread; size: its
        number of bytes, if known.
        """
        # Without `pq.ParquetFile`, whose list of columns takes as long as reading one of them.
        reader = pq.ParquetReader()
        if is_small:
            content = content_of(path, size)
            yield
            reader.open(pa.BufferReader(content), **_OPTIONS)
            yield
            found = self._decode(reader, content)
        else:
            yield
            with pa.OSFile(path) as source:
                reader.open(source, **_OPTIONS)
                _seen, wanted = self._compared(reader)
                found = reader.read_all(column_indices=wanted, use_threads=True)
        yield
        if self._is_named_alike and found.schema.equals(self._target):
            return found
        rows = reader.metadata.num_rows
        there = dict(zip(found.column_names, found.columns, strict=True))
        columns = []
        for name, target in zip(self.schema.physical, self._target, strict=True):
            column = there.get(name)
            if column is None:
                column = self.schema.missing_column(target.name, rows)
            columns.append(column if column.type == target.type else column.cast(target.type))
        return pa.Table.from_arrays(columns, schema=self._target)

    def _decode(self, reader: pq.ParquetReader, content: bytes) -> pa.Table:
        """The columns of the table that a small file contains."""
        seen, wanted = self._compared(reader)
        last = _last_column(reader, content) if seen and self._alike else None
        if seen is None or last is None:
            return reader.read_all(column_indices=wanted, use_threads=False)
        if (column := seen.decoded.get(last)) is not None:
            others = list(range(reader.metadata.num_columns - 1))
            found = reader.read_all(column_indices=others, use_threads=False)
            return found.append_column(self._alike, column)
        found = reader.read_all(use_threads=False)
        if found.column_names[-1] == self._alike and len(seen.decoded) < MOST_ALIKE:
            seen.decoded[last] = found.column(-1)
        return found

    def _compared(self, reader: pq.ParquetReader) -> tuple[_Seen | None, list[int] | None]:
        """What is known of files with the same columns, if they are those of the table; otherwise
        the numbers of the columns of the table in a file, of each member of a struct."""
        seen, schema = self._seen, reader.metadata.schema
        if seen is not None and schema.equals(seen.schema):
            return seen, None
        if reader.schema_arrow.names == self._names:
            # Compared with the next one: the schema of Arrow takes longer.
            seen = self._seen = _Seen(schema)
            return seen, None
        paths = enumerate(reader.column_paths)
        return None, [number for number, path in paths if path[0] in self._stored]


def _last_column(reader: pq.ParquetReader, content: bytes) -> _StoredColumn | None:
    """The last column of a file as it is stored; None if it is large, in several parts, or the only
    one."""
    metadata = reader.metadata
    if metadata.num_row_groups != 1 or metadata.num_columns < 2:
        return None
    chunk = metadata.row_group(0).column(metadata.num_columns - 1)
    size = chunk.total_compressed_size
    if size > LARGEST_ALIKE:
        return None
    start = min(chunk.dictionary_page_offset or chunk.data_page_offset, chunk.data_page_offset)
    stored = content[start : start + size]
    return stored, chunk.path_in_schema, chunk.compression, metadata.num_rows
