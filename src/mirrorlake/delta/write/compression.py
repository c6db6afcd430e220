"""Which columns of a file are compressed.

Snappy leaves what looks random (hashes, UUIDs, amounts) nearly as large as it was, and takes its
time for it whenever a page is written or read. So a column is compressed where that pays, which a
few of its rows tell; a Parquet file says of each column how it is packed, and every reader knows.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

CODEC = "snappy"
"""What Delta writes by default, and every reader of Parquet knows. zstd makes files half as large;
but small pages take it twice as long to write and to read, and a batch does little else."""

PLAIN = "none"

PAYS = 0.66
"""What is left of a column that is worth compressing, of its size, at most: files become a tenth
larger by it, and are read and written in two thirds of the time."""

LEAST_ROWS = 16_384
"""Rows of a file for which it is worth asking: that takes two milliseconds, and of long texts at
most an eighth of what compression takes."""

SAMPLES, ROWS = 16, 128
"""Places of a file that are looked at, from its beginning to its end, and rows in each."""


def codecs(rows: pa.Table) -> dict[str, str]:
    """The codec of each column of a file with these rows."""
    leaves = dict.fromkeys(_nested_leaves(rows.schema), CODEC)
    rows = rows.drop_columns([one.name for one in rows.schema if pa.types.is_nested(one.type)])
    if rows.num_rows < LEAST_ROWS or not rows.num_columns:
        return dict.fromkeys(rows.column_names, CODEC) | leaves
    last = rows.num_rows - ROWS
    indexes = [index * last // (SAMPLES - 1) for index in range(SAMPLES)]
    sample = pa.concat_tables([rows.slice(index, ROWS) for index in indexes])
    left = _left(sample)
    found = {
        name: PLAIN if left[name] > PAYS and _is_like(column, sample[name]) else CODEC
        for name, column in zip(rows.column_names, rows.columns, strict=True)
    }
    return found | leaves


def _nested_leaves(schema: pa.Schema) -> list[str]:
    """What a file calls the columns of which nested ones consist."""
    nested = [one for one in schema if pa.types.is_nested(one.type)]
    if not nested:
        return []
    written: list[pq.FileMetaData] = []
    none = pa.schema(nested).empty_table()
    pq.write_table(none, pa.MockOutputStream(), metadata_collector=written)
    return [column.path for column in written[0].schema]


def _is_like(column: pa.ChunkedArray, sample: pa.ChunkedArray) -> bool:
    """Whether a sample tells of its column. One of NULLs does not become smaller, whatever stands
    between them, and where texts are long in few places no place may have been one of these."""
    if sample.null_count == len(sample):
        return False
    return bool(column.nbytes / len(column) < 2 * sample.nbytes / len(sample))


def _left(sample: pa.Table) -> dict[str, float]:
    """What compression leaves of each column: 1 for all of it."""
    written: list[pq.FileMetaData] = []
    # Without dictionaries, which rows so few would have and all of them might not.
    pq.write_table(
        sample,
        pa.MockOutputStream(),
        compression=CODEC,
        use_dictionary=False,
        write_statistics=False,
        coerce_timestamps="us",
        store_schema=False,
        metadata_collector=written,
    )
    group = written[0].row_group(0)
    columns = [group.column(index) for index in range(group.num_columns)]
    return {
        name: column.total_compressed_size / column.total_uncompressed_size
        for name, column in zip(sample.column_names, columns, strict=True)
    }
