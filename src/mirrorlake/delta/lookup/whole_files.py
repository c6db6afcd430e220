"""Reads whole data files of a table, with all of its columns."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlake.delta.schema import TableSchema
from mirrorlake.model.arrow import arrow_schema


@contextmanager
def opened(path: str) -> Iterator[pq.ParquetFile]:
    """A data file, whose pages are checked when they are read."""
    # For a path, Arrow looks for a file system first, which takes a tenth of reading a small file.
    with pa.OSFile(path) as source:
        yield _parquet(source)


def _parquet(source: pa.NativeFile) -> pq.ParquetFile:
    return pq.ParquetFile(
        source,
        # Spark writes timestamps as INT96. As nanoseconds, Arrow's default, they would end in 2262.
        coerce_int96_timestamp_unit="us",
        pre_buffer=False,
        page_checksum_verification=True,
    )


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
        the same for other files between the steps: open, decode, and put together.

        is_small: read the bytes of the file at once, and decode them in this thread.
        """
        with pa.OSFile(path) as source:
            file = _parquet(pa.BufferReader(source.read_buffer()) if is_small else source)
            names = file.schema_arrow.names
            yield
            # None is all of them, which Arrow then need not look up one by one.
            stored = None if names == self._names else [x for x in names if x in self._stored]
            found = file.read(stored, use_threads=not is_small)
        yield
        if self._is_named_alike and found.schema.equals(self._target):
            return found
        rows = file.metadata.num_rows
        there = dict(zip(found.column_names, found.columns, strict=True))
        columns = []
        for name, field in zip(self.schema.physical, self._target, strict=True):
            column = there.get(name)
            if column is None:
                column = self.schema.missing_column(field.name, rows)
            columns.append(column if column.type == field.type else column.cast(field.type))
        return pa.Table.from_arrays(columns, schema=self._target)
