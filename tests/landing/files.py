"""Landed files for tests: columns in, the bytes of a Parquet file out, and back."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlake.landing.parquet import bounded
from mirrorlake.landing.parquet import reader as parquet
from mirrorlake.landing.parquet.reader import Inspected, Rows
from mirrorlake.model.change import MARKER_COLUMN, Marker
from mirrorlake.model.landed import Footer
from mirrorlake.model.table import Schema

TABLE, FILE = "sales.orders", "00000000000000000017.parquet"


def encoded(
    columns: Mapping[str, Any] | pa.Table, footer: Footer | None = None, **options: Any
) -> bytes:
    """The bytes of a Parquet file with these columns."""
    table = columns if isinstance(columns, pa.Table) else pa.table(dict(columns))
    if footer:
        table = table.replace_schema_metadata(footer.encode())
    buffer = io.BytesIO()
    pq.write_table(table, buffer, **{"write_page_checksum": True} | options)
    return buffer.getvalue()


def date_on_int64() -> bytes:
    """A file whose column `day` is a DATE on INT64: its footer is patched."""
    columns = {"id": pa.array([], pa.int64()), "day": pa.array([], pa.date32())}
    content = encoded(columns, store_schema=False)
    # A schema element in compact Thrift: type INT32, optional, name "day".
    int32, int64 = b"\x15\x02\x25\x02\x18\x03day", b"\x15\x04\x25\x02\x18\x03day"
    assert content.count(int32) == 1
    return content.replace(int32, int64)


def inspected(content: bytes) -> Inspected:
    return parquet.inspect(io.BytesIO(content), len(content), table=TABLE, file=FILE)


def read(
    content: bytes,
    target: Schema | None = None,
    default: Marker = Marker.INSERT,
    most: int = bounded.NO_LIMIT,
) -> Rows:
    """The rows of a file, by default in its own columns."""
    schema = inspected(content).schema if target is None else target
    handle = io.BytesIO(content)
    return parquet.read(handle, len(content), schema, default, table=TABLE, file=FILE, most=most)


def with_markers(markers: pa.Array, at: int = 1) -> pa.Table:
    """Two data columns, and the marker column as the `at`-th of three."""
    plain = pa.table({"id": range(len(markers)), "note": ["x"] * len(markers)})
    return plain.add_column(at, MARKER_COLUMN, markers)
