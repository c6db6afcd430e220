"""Heads of Parquet pages are found as the footer counts them."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.landing.parquet import page_headers
from tests.landing.files import encoded

COLUMNS = {
    "id": pa.array(range(5_000)),
    "name": pa.array([f"name {n}" for n in range(5_000)]),
    "kind": pa.array(["a", None, "é" * 200] * 1_666 + ["b", "c"]),
    "nothing": pa.nulls(5_000, pa.float64()),
    "day": pa.array(np.arange(5_000, dtype=np.int32)).cast(pa.date32()),
}


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
@pytest.mark.parametrize("more", [{}, {"write_page_index": True}, {"write_page_checksum": True}])
def test_pages_fill_their_columns(version: str, codec: str, more: dict[str, Any]) -> None:
    content = encoded(
        COLUMNS,
        compression=codec,
        data_page_version=version,
        data_page_size=4_096,
        row_group_size=2_000,
        **more,
    )
    metadata = pq.read_metadata(io.BytesIO(content))
    for group in range(metadata.num_row_groups):
        for location in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(location)
            begin = chunk.dictionary_page_offset or chunk.data_page_offset
            end = begin + chunk.total_compressed_size
            found = list(page_headers.pages(io.BytesIO(content), begin, end, chunk.num_values))
            assert sum(page.head + page.packed for page in found) == chunk.total_compressed_size
            assert sum(page.head + page.unpacked for page in found) == chunk.total_uncompressed_size
            is_coded = [page.kind == page_headers.DICTIONARY for page in found]
            assert is_coded.count(True) == int(chunk.has_dictionary_page)
            assert is_coded[0] == chunk.has_dictionary_page


@given(st.binary(max_size=80), st.integers(0, 100))
def test_other_bytes_are_not_a_page(content: bytes, location: int) -> None:
    try:
        page = page_headers.page_at(io.BytesIO(content), location)
    except page_headers.NoPage:
        return
    assert 0 < page.head <= len(content) - location


def test_a_header_without_an_end_is_reported() -> None:
    with pytest.raises(page_headers.NoPage):
        page_headers.page_at(io.BytesIO(b"\x1c" * 3_000_000), 0)
