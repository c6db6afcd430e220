"""Small hostile Parquet files: planned and linted in a process that may take 1 GiB."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirrorlake.app.mirror import Mirror
from mirrorlake.config import Project
from mirrorlake.landing.parquet import bounded, footers
from mirrorlake.lint import lint, of_path
from mirrorlake.storage.thrift import I32, Raw, ThriftReader, encode
from tests.fuzz.apart import Apart
from tests.landing.files import encoded
from tests.lint.zones import Zone
from tests.profiles import some

MIB = 1 << 20
MANY = 1_600 * MIB
"""Bytes of rows: more than the process may take, and less than a landed file may (4 GiB)."""


def column_chunks() -> bytes:
    """Three million column chunks of three bytes each."""
    columns, groups = 1_000, 3_000
    schema = [{4: b"schema", 5: I32(columns)}]
    schema += [{1: I32(2), 3: I32(1), 4: b"c%d" % n} for n in range(columns)]
    group = Raw(encode({1: [{2: 0}] * columns, 2: 0, 3: 0}))
    footer = encode({1: I32(1), 2: schema, 3: 0, 4: [group] * groups})
    return b"PAR1" + footer + struct.pack("<I", len(footer)) + b"PAR1"


def claimed_chunks() -> bytes:
    """A row group that claims a million column chunks and has none."""
    footer = encode({1: I32(1), 2: [{4: b"s", 5: I32(1)}, {1: I32(2), 4: b"id"}], 3: 0})[:-1]
    footer += b"\x19\x1c" + b"\x19\xfc\xc0\x84\x3d"
    return b"PAR1" + footer + struct.pack("<I", len(footer)) + b"PAR1"


def wide_nulls() -> bytes:
    """Nothing but NULL in very many columns."""
    rows, columns = bounded.BLOCK_ROWS, 2_500
    nulls = {f"c{n}": pa.nulls(rows, pa.int64()) for n in range(columns)}
    return encoded({"id": np.arange(rows), **nulls}, compression="zstd")


def large_pages() -> bytes:
    """A row with a large value in each of many columns: more than a landed file may take."""
    values = {f"c{n}": [bytes(60 * MIB)] for n in range(72)}
    return encoded(
        {"id": [1], **values}, compression="zstd", use_dictionary=False, write_statistics=False
    )


def long_values() -> bytes:
    """Many long values, each in a page of its own."""
    rows = MANY // (12 * MIB)
    values = pa.array([bytes(12 * MIB)] * rows, pa.large_binary())
    return encoded(
        {"id": np.arange(rows), "v": values},
        compression="zstd",
        use_dictionary=False,
        write_statistics=False,
        write_batch_size=1,
        data_page_size=1_000,
    )


def repeated_value() -> bytes:
    """The same long text in each row."""
    rows = bounded.BLOCK_ROWS
    text = "x" * (MANY // rows)
    values = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), pa.array([text]))
    return encoded(pa.table({"id": np.arange(rows), "v": values}), compression="zstd")


def repeated_prefix() -> bytes:
    """The same by prefixes: each value repeats the one before it."""
    rows = bounded.BLOCK_ROWS
    values = pa.array(["x" * (MANY // rows)] * rows, pa.large_string())
    return encoded(
        pa.table({"id": np.arange(rows), "v": values}),
        compression="zstd",
        use_dictionary=False,
        column_encoding={"v": "DELTA_BYTE_ARRAY"},
        write_statistics=False,
    )


def understated() -> bytes:
    """A repeated value in columns that take no byte in memory, as the footer says."""
    content = repeated_value()
    size = int.from_bytes(content[-8:-4], "little")
    body, footer = content[: -8 - size], ThriftReader(content[-8 - size : -8])
    found = footer.structure(raw=frozenset({2}))
    groups = [
        {
            1: [{2: column[2], 3: _chunk(column[3], size=0)} for column in group[1]],
            2: 0,
            3: group[3],
        }
        for group in found[4]
    ]
    said = encode({1: I32(found[1]), 2: found[2], 3: found[3], 4: groups})
    return body + said + struct.pack("<I", len(said)) + b"PAR1"


def _chunk(known: dict[int, Any], size: int) -> dict[int, Any]:
    """The metadata of a column chunk with another uncompressed size (parquet.thrift)."""
    numbers = {number: known[number] for number in (3, 5, 7, 9, 11) if number in known}
    kinds = {1: I32(known[1]), 2: [I32(one) for one in known[2]], 4: I32(known[4])}
    return {**numbers, **kinds, 6: size}


HOSTILE = [
    column_chunks,
    claimed_chunks,
    wide_nulls,
    large_pages,
    long_values,
    repeated_value,
    repeated_prefix,
    understated,
]


@pytest.fixture
def apart() -> Iterator[Apart]:
    process = Apart()
    yield process
    process.close()


def planned(root: Path) -> list[str]:
    """The errors of its tables."""
    tables = Mirror(Project.of_root(root)).plan()
    return [table.error.what for table in tables if table.error]


def linted(root: Path) -> list[str]:
    """The rules that it breaks."""
    return [finding.rule.key for finding in lint(of_path(root)).findings]


@pytest.mark.full
@pytest.mark.parametrize("content", some(HOSTILE))
def test_a_small_hostile_file_takes_bounded_memory(
    tmp_path: Path, apart: Apart, content: Callable[[], bytes]
) -> None:
    zone = Zone(tmp_path)
    zone.describe("t", keyColumns=["id"])
    zone.put(f"t/{1:020d}.parquet", content())
    for command in (planned, linted):
        apart.run(command, tmp_path)  # which refuses more than 1 GiB


def test_a_footer_that_takes_too_much_is_an_error_of_the_table(tmp_path: Path) -> None:
    zone = Zone(tmp_path)
    zone.describe("t", keyColumns=["id"])
    zone.put(f"t/{1:020d}.parquet", column_chunks())
    assert planned(tmp_path) == ["its footer describes too many row groups and columns"]
    assert "LZ-267/refused" in linted(tmp_path)


def test_a_large_footer_that_is_as_it_should_be_is_read() -> None:
    columns = {f"column_{n}": np.arange(200) for n in range(300)}
    content = encoded(columns, row_group_size=5)
    size = len(content)
    assert int.from_bytes(content[-8:-4], "little") > footers._UNCHECKED
    assert bounded.opened(io.BytesIO(content), size).metadata.num_row_groups == 40
    assert pq.read_metadata(io.BytesIO(content)).num_columns == 300
