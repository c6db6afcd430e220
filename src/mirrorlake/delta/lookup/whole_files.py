"""Reads whole data files of a table, with all of its columns."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
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
    """

    def __init__(self, schema: TableSchema) -> None:
        self.schema, self._target = schema, arrow_schema(schema.schema)
        self.columns = repr(schema)
        self._names = schema.file_schema().names
        self._stored = frozenset(self._names)
        self._is_named_alike = list(schema.physical) == schema.schema.names

    def read(self, path: str, *, is_small: bool) -> Generator[None, None, pa.Table]:
        """All rows of a file, deleted ones included, with all columns of the table; see
        `TableSchema.missing_column` for columns that the file does not contain. The caller may do
        the same for other files between the steps: read, open, decode, and put together.

        is_small: read the bytes of the file at once, and decode them in this thread.
        """
        # Without `pq.ParquetFile`, whose list of columns takes as long as reading one of them.
        reader = pq.ParquetReader()
        if is_small:
            content = pa.BufferReader(content_of(path))
            yield
            reader.open(content, **_OPTIONS)
            yield
            found = reader.read_all(column_indices=self._wanted(reader), use_threads=False)
        else:
            yield
            with pa.OSFile(path) as source:
                reader.open(source, **_OPTIONS)
                found = reader.read_all(column_indices=self._wanted(reader), use_threads=True)
        yield
        if self._is_named_alike and found.schema.equals(self._target):
            return found
        rows = reader.metadata.num_rows
        there = dict(zip(found.column_names, found.columns, strict=True))
        columns = []
        for name, field in zip(self.schema.physical, self._target, strict=True):
            column = there.get(name)
            if column is None:
                column = self.schema.missing_column(field.name, rows)
            columns.append(column if column.type == field.type else column.cast(field.type))
        return pa.Table.from_arrays(columns, schema=self._target)

    def _wanted(self, reader: pq.ParquetReader) -> list[int] | None:
        """The numbers of the columns of the table in a file, of each member of a struct; None for
        all columns of the file, if they are those of the table."""
        if reader.schema_arrow.names == self._names:
            return None
        paths = enumerate(reader.column_paths)
        return [number for number, path in paths if path[0] in self._stored]
