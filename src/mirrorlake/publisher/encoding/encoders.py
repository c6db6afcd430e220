"""Encodes rows as Parquet or delimited text."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import BinaryIO, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlake.errors import BadFile
from mirrorlake.landing.parquet import reader as parquet
from mirrorlake.landing.text.format import TextFormat
from mirrorlake.publisher.encoding.text import TextEncoder, header_of
from mirrorlake.publisher.state import DataFile

GROUP_BYTES = 32 << 20
"""Size in memory of the rows of a row group."""


class Codec(StrEnum):
    """Compression of files (LZ-145, LZ-173). Text does not support Snappy here, and is
    uncompressed by default."""

    NONE = "none"
    SNAPPY = "snappy"
    GZIP = "gzip"
    ZSTD = "zstd"


class Encoder(Protocol):
    """Writes the rows of one file, in order. All of them have the same columns."""

    def write(self, rows: pa.Table) -> None: ...

    def close(self) -> None:
        """Finish the file; the underlying handle stays open."""
        ...


@dataclass
class ParquetEncoder:
    """A Parquet file with row groups of about `group_bytes` of rows in memory."""

    sink: BinaryIO
    schema: pa.Schema
    codec: Codec
    group_bytes: int = GROUP_BYTES

    def __post_init__(self) -> None:
        self._writer = pq.ParquetWriter(
            self.sink,
            self.schema,
            compression=str(self.codec),
            # Without Arrow's own schema every reader sees only the Parquet types.
            store_schema=False,
            write_page_checksum=True,
        )
        self._held: list[pa.Table] = []
        self._bytes = 0

    def write(self, rows: pa.Table) -> None:
        self._held.append(rows)
        self._bytes += rows.nbytes
        if self._bytes >= self.group_bytes:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._held:
            self._writer.write_table(pa.concat_tables(self._held).combine_chunks())
        self._held, self._bytes = [], 0


def encoder_of(
    sink: BinaryIO,
    schema: pa.Schema,
    text: TextFormat | None,
    codec: Codec,
    file_bytes: int,
    *,
    table: str,
) -> Encoder:
    """The encoder for files of a table with these columns, including the marker."""
    if text is None:
        return ParquetEncoder(sink, schema, codec, min(GROUP_BYTES, file_bytes))
    return TextEncoder(sink, schema.names, text, str(codec), table=table)


def check_file(
    handle: BinaryIO,
    file: DataFile,
    text: TextFormat | None,
    codec: Codec,
    names: list[str],
    *,
    table: str,
) -> None:
    """Check that a written file is complete and valid (LZ-133). Raises BadFile."""
    hint = "Nothing was published. Check the storage, and try again."
    bad = partial(BadFile, table=table, file=file.name, hint=hint)
    if text is None:
        rows = sum(file.rows.values())
        found = parquet.inspect(handle, file.size, table=table, file=file.name)
        if found.rows != rows:
            raise bad(f"it contains {found.rows} rows instead of {rows}")
        return
    stream = pa.PythonFile(handle, mode="r")
    if codec in {Codec.GZIP, Codec.ZSTD}:
        stream = pa.CompressedInputStream(stream, str(codec))
    expected = header_of(names, text)
    if stream.read(len(expected)) != expected:
        raise bad("its header is not the one that was written")
