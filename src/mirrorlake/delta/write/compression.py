"""Selects the columns of a file to compress, and those of a change file to write with a dictionary.

Snappy hardly reduces values that look random (hashes, UUIDs, amounts), but takes time whenever a
page is written or read. So a column is compressed only if a sample of its rows becomes smaller.
Parquet files have a codec per column, so every reader supports this.

A dictionary of values that hardly repeat takes more space than the values, and more time to write
and read. In a large file it soon reaches its maximum size, and values follow in plain encoding. A
file with few rows ends before that, so a sample tells whether the values repeat.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

CODEC = "snappy"
"""Delta's default, which every Parquet reader supports. Files with zstd are half as large, but
their small pages take twice as long to write and read, which is most of the work of a batch."""

PLAIN = "none"

MAX_RATIO = 0.66
"""Maximum ratio of compressed to uncompressed size of a column that is compressed. With this value
files are 10 % larger, and are read and written in two thirds of the time."""

MIN_ROWS = 16_384
"""Minimum number of rows of a file that is sampled: a sample takes two milliseconds, with long
texts at most an eighth of the time of the compression."""

SAMPLES, SAMPLE_ROWS = 16, 128
"""Number of evenly distributed samples, and rows per sample."""

DICTIONARY_ROWS = range(64, MIN_ROWS)
"""Number of rows of files whose columns with a dictionary are selected: in smaller ones it does not
matter, and in larger ones a dictionary ends early enough."""

FIRST_ROWS = 512
"""Number of rows of the sample for dictionaries. Most values of a key occur once there, because the
images before all updates are in front of those after them."""

MAX_SAMPLE_BYTES = 1 << 20
"""Maximum bytes of a sample, of which each different value is copied. A dictionary of such values
ends early."""

MAX_DISTINCT = 0.5
"""Maximum part of different values in a sample of a column with a dictionary."""


def codecs(rows: pa.Table) -> dict[str, str]:
    """The codec of each column of a file with these rows."""
    leaves = dict.fromkeys(_nested_leaves(rows.schema), CODEC)
    rows = rows.drop_columns([f.name for f in rows.schema if pa.types.is_nested(f.type)])
    if rows.num_rows < MIN_ROWS or not rows.num_columns:
        return dict.fromkeys(rows.column_names, CODEC) | leaves
    last = rows.num_rows - SAMPLE_ROWS
    indexes = [index * last // (SAMPLES - 1) for index in range(SAMPLES)]
    sample = pa.concat_tables([rows.slice(index, SAMPLE_ROWS) for index in indexes])
    left = _ratios(sample)
    found = {
        name: PLAIN
        if left[name] > MAX_RATIO and _is_representative(column, sample[name])
        else CODEC
        for name, column in zip(rows.column_names, rows.columns, strict=True)
    }
    return found | leaves


def with_dictionary(rows: pa.Table, columns: Iterable[str]) -> list[str] | bool:
    """The columns to write with a dictionary; True for all. columns: the Parquet paths of all
    columns."""
    if rows.num_rows not in DICTIONARY_ROWS:
        return True
    sample = rows.slice(0, FIRST_ROWS)
    plain = {name for name in rows.column_names if not _repeats(sample[name])}
    return [column for column in columns if column not in plain]


def _nested_leaves(schema: pa.Schema) -> list[str]:
    """The Parquet paths of the leaves of nested columns."""
    nested = [field for field in schema if pa.types.is_nested(field.type)]
    if not nested:
        return []
    written: list[pq.FileMetaData] = []
    none = pa.schema(nested).empty_table()
    pq.write_table(none, pa.MockOutputStream(), metadata_collector=written)
    return [column.path for column in written[0].schema]


def _is_representative(column: pa.ChunkedArray, sample: pa.ChunkedArray) -> bool:
    """Whether a sample represents its column. It does not if it has only NULLs, or if the values of
    the column are much longer, as those of a column with few long texts."""
    if sample.null_count == len(sample):
        return False
    return bool(column.nbytes / len(column) < 2 * sample.nbytes / len(sample))


def _ratios(sample: pa.Table) -> dict[str, float]:
    """The ratio of compressed to uncompressed size of each column."""
    written: list[pq.FileMetaData] = []
    # Without dictionaries, which the few rows would get, but the whole column might not.
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


def _repeats(values: pa.ChunkedArray) -> bool:
    """Whether values occur several times; True where that is not known."""
    if values.nbytes > MAX_SAMPLE_BYTES:
        return True
    try:
        distinct = pc.count_distinct(values, mode="all").as_py()
    except pa.ArrowException:  # of structs, for example
        return True
    return bool(distinct <= MAX_DISTINCT * len(values))
