"""Parquet files in bounded memory: a small file may hold very much, and its footer may not say so.

A column of one long text, repeated, takes its length once in the file and once per row in memory.
So a file is decoded piece by piece, in pieces no larger than its longest values allow.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

NO_LIMIT = sys.maxsize

PIECE_ROWS = 65_536
"""Rows that are decoded before their size is looked at; more are not faster."""

PIECE_BYTES = 256 << 20
"""What a piece may take when its values are as long as the longest."""


class TooLarge(ValueError):
    """The rows take more memory than they may."""


def size(metadata: pq.FileMetaData, arrow: pa.Schema) -> int:
    """What the footer tells of the memory that the rows take, in bytes.

    The larger of what the columns take in the file before compression and of what their widths
    take: a value that repeats is hardly in the file at all.
    """
    in_file = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    width = sum(_width(field.type) for field in arrow)
    return int(max(in_file, metadata.num_rows * width // 8))


@dataclass(frozen=True, slots=True)
class Share:
    """The part of a file that is read: of `count` equal runs of its row groups the one at `place`.

    All shares of a file in order are the file; one may be empty.
    """

    place: int = 0
    count: int = 1

    def of(self, groups: int) -> range:
        return range(self.place * groups // self.count, (self.place + 1) * groups // self.count)


WHOLE = Share()


def read(parquet: pq.ParquetFile, handle: BinaryIO, most: int, share: Share = WHOLE) -> pa.Table:
    """The rows of an opened file, or of a share of it.

    Raises TooLarge beyond `most` bytes, ValueError when there are not as many rows as the footer
    says, and what Arrow raises.
    """
    pieces, taken = [], 0
    groups = share.of(parquet.metadata.num_row_groups)
    said = sum(parquet.metadata.row_group(group).num_rows for group in groups)
    if share == WHOLE:
        said = parquet.metadata.num_rows
    size = _piece_rows(parquet.metadata, handle, most)
    for piece in parquet.iter_batches(size, row_groups=list(groups)):
        taken += piece.nbytes
        if taken > most:
            raise TooLarge(f"its rows take more than {most:,} bytes in memory")
        pieces.append(piece)
    rows = pa.Table.from_batches(pieces, pieces[0].schema if pieces else parquet.schema_arrow)
    if rows.num_rows != said:
        raise ValueError(f"{rows.num_rows} rows, and its footer says {said}")
    return rows


def _piece_rows(metadata: pq.FileMetaData, handle: BinaryIO, most: int) -> int:
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    if metadata.num_rows * sum(group.total_byte_size for group in groups) <= most:
        return PIECE_ROWS  # no value is longer than all of them
    return max(1, min(PIECE_ROWS, PIECE_BYTES // max(1, _longest(metadata, handle))))


def _longest(metadata: pq.FileMetaData, handle: BinaryIO) -> int:
    """Bytes of a row whose every value is the longest of its dictionary."""
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    names = [
        metadata.schema.column(i).path
        for i in range(metadata.num_columns)
        if metadata.schema.column(i).physical_type == "BYTE_ARRAY"
        and any(group.column(i).has_dictionary_page for group in groups)
    ]
    if not names:
        return 0
    # To read one row is to read the dictionary, and to leave the other pages alone.
    coded = pq.ParquetFile(handle, read_dictionary=names, buffer_size=1 << 16, pre_buffer=False)
    longest = 0
    for group in range(metadata.num_row_groups):
        for row in coded.iter_batches(1, row_groups=[group], columns=names):
            longest = max(longest, sum(map(_longest_value, row.columns)))
            break
    return longest


def _longest_value(column: pa.Array) -> int:
    if not pa.types.is_dictionary(column.type):
        return 0
    return pc.max(pc.binary_length(column.dictionary)).as_py() or 0


def _width(kind: pa.DataType) -> int:
    """Bits of a value in memory at least."""
    try:
        return int(kind.bit_width)
    except ValueError:
        return 32  # text and the like: an offset at least
