"""Columns that do not become smaller are not compressed, and every reader reads the others too."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlake.delta.lookup import pages
from mirrorlake.delta.write import compression
from mirrorlake.delta.write.data_files import write_changes, write_data
from mirrorlake.model import types
from tests.delta.handmade import HandmadeTable
from tests.delta.readers import rows_by_delta_rs, rows_by_duckdb
from tests.histories import Shape
from tests.profiles import tries

ENOUGH = compression.MIN_ROWS
SEEDED = random.Random(5)
RANDOM = [SEEDED.randbytes(16).hex() for _ in range(ENOUGH)]
EQUAL = ["paid by transfer"] * ENOUGH


def codecs_of(path: Path) -> dict[str, str]:
    group = pq.ParquetFile(path).metadata.row_group(0)
    columns = [group.column(index) for index in range(group.num_columns)]
    return {column.path_in_schema: column.compression for column in columns}


def test_random_values_are_not_compressed(tmp_path: Path) -> None:
    rows = pa.table({"a.b": RANDOM, "é": EQUAL, "none": pa.nulls(ENOUGH, pa.int64())})
    data = codecs_of(tmp_path / write_data(tmp_path, rows, [])["path"])
    assert data == {"a.b": "UNCOMPRESSED", "é": "SNAPPY", "none": "SNAPPY"}
    assert codecs_of(tmp_path / write_changes(tmp_path, rows)["path"]) == data


def test_a_file_with_few_rows_is_always_compressed(tmp_path: Path) -> None:
    rows = pa.table({"text": RANDOM[: ENOUGH - 1]})
    assert codecs_of(tmp_path / write_data(tmp_path, rows, [])["path"]) == {"text": "SNAPPY"}


def test_samples_cover_the_whole_file() -> None:
    late = EQUAL[: ENOUGH // 8] + RANDOM[ENOUGH // 8 :]
    assert compression.codecs(pa.table({"late": late})) == {"late": compression.PLAIN}


LONG = ['{"paid": "by transfer", "to": "an account of ours"}' * 4]


@pytest.mark.parametrize(
    "values",
    [
        [None] * (ENOUGH * 9 // 10) + LONG * (ENOUGH // 10),  # a column that came late
        [None] * 1_000 + LONG * 900 + [None] * ENOUGH,  # between two places
        RANDOM[:1_100] + [LONG[0] * 20] * 900 + RANDOM,
    ],
    ids=["late", "between", "among random ones"],
)
def test_compressible_values_are_detected_wherever_they_are(values) -> None:
    assert compression.codecs(pa.table({"text": values})) == {"text": compression.CODEC}


def test_values_that_hardly_become_smaller_are_not_compressed() -> None:
    """Hexadecimal digits: snappy finds a tenth to save in them."""
    left = compression._ratios(pa.table({"text": RANDOM}))["text"]
    assert compression.MAX_RATIO < left < 0.95


@pytest.mark.parametrize("read", [rows_by_delta_rs, rows_by_duckdb])
def test_other_readers_see_the_rows(tmp_path: Path, read) -> None:
    shape = Shape.of(["id"], id=types.LONG, text=types.STRING, same=types.STRING)
    table = HandmadeTable(tmp_path / "t", shape.schema)
    rows = shape.arrow(zip(range(ENOUGH), RANDOM, EQUAL, strict=True))
    add = write_data(table.path, rows, ["id"])
    table.commit([{"add": add}])
    assert set(codecs_of(table.path / add["path"]).values()) == {"UNCOMPRESSED", "SNAPPY"}
    assert sorted(read(table.path)) == list(zip(range(ENOUGH), RANDOM, EQUAL, strict=True))


@settings(max_examples=tries(30))
@given(st.sets(st.integers(0, ENOUGH - 1), min_size=1, max_size=20))
def test_pages_of_both_kinds_are_read_alone(
    tmp_path_factory: pytest.TempPathFactory, wanted: set[int]
) -> None:
    folder = tmp_path_factory.mktemp("pages")
    rows = pa.table({"id": range(ENOUGH), "text": RANDOM, "same": EQUAL})
    path = folder / write_data(folder, rows, [])["path"]
    indexes = pa.array(sorted(wanted))
    found = pages.read(path, pages.layout(path), indexes.to_numpy(), rows.column_names)
    assert found.to_pydict() == rows.take(indexes).to_pydict()
