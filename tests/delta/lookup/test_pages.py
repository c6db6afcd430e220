"""A few rows of a Parquet file are those that reading it whole gives."""

from __future__ import annotations

import contextlib
import tempfile
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlake.delta.lookup import pages
from mirrorlake.storage import thrift
from mirrorlake.storage.thrift import I32, BrokenThrift, ThriftReader

COUNT = 400
CONTENT = pa.table(
    {
        "number": pa.array([None if n % 7 == 0 else n * 31 for n in range(COUNT)], pa.int64()),
        "small": pa.array([n % 3 for n in range(COUNT)], pa.int8()),
        "a.b": pa.array([f"text {n}" * (n % 5) for n in range(COUNT)]),
        "few": pa.array([None if n % 3 else f"v{n % 4}" for n in range(COUNT)]),
        "money": pa.array([Decimal(n) / 100 for n in range(COUNT)], pa.decimal128(12, 2)),
        "at": pa.array(
            [datetime(2026, 1, 1, 0, 0, 0, n, UTC) for n in range(COUNT)], pa.timestamp("us", "UTC")
        ),
        "yes": pa.array([n % 2 == 0 for n in range(COUNT)]),
        "raw": pa.array([bytes([n % 256]) for n in range(COUNT)]),
        "none": pa.nulls(COUNT, pa.float64()),
        "struct": pa.array(
            [
                None
                if n % 11 == 0
                else {
                    "id": None if n % 4 == 0 else f"{n:08}",
                    "ms": n,
                    "in": None if n % 3 else {"a": n * 1.5, "id": str(n % 2)},
                }
                for n in range(COUNT)
            ],
            pa.struct(
                [
                    ("id", pa.string()),
                    ("ms", pa.int64()),
                    ("in", pa.struct([("a", pa.float64()), ("id", pa.string())])),
                ]
            ),
        ),
    }
)
WRITERS: dict[str, dict[str, Any]] = {
    "many pages": {"max_rows_per_page": 16, "write_batch_size": 16},
    "one page": {},
    "row groups": {"row_group_size": 150, "max_rows_per_page": 32, "write_batch_size": 32},
    "pages of the second version": {"data_page_version": "2.0", "max_rows_per_page": 32},
    "no dictionaries": {"use_dictionary": False, "max_rows_per_page": 32},
    "dictionaries that were given up": {"dictionary_pagesize_limit": 64, "max_rows_per_page": 16},
    "pages by size": {"data_page_size": 100, "write_batch_size": 8},
    "another compression": {"compression": "zstd", "max_rows_per_page": 32},
    "nanoseconds of old": {"use_deprecated_int96_timestamps": True, "max_rows_per_page": 32},
    "sums of pages": {"write_page_checksum": True, "max_rows_per_page": 32},
}


def written(path: Path, table: pa.Table = CONTENT, **said: Any) -> Path:
    pq.write_table(table, path, write_page_index=True, **said)
    return path


@pytest.mark.parametrize("writer", WRITERS)
@settings(max_examples=settings.default.max_examples // 10)
@given(rows=st.sets(st.integers(0, COUNT - 1), min_size=1, max_size=40))
def test_rows_are_those_of_the_whole_file(writer: str, rows: set[int]) -> None:
    wanted = np.array(sorted(rows))
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder, "f"), **WRITERS[writer])
        layout = pages.layout(path)
        found = pages.read(path, layout, wanted, CONTENT.column_names)
    assert layout.rows == COUNT
    assert found.cast(CONTENT.schema).equals(CONTENT.take(pa.array(wanted)))


def test_only_the_pages_of_the_rows_are_read(tmp_path: Path) -> None:
    path = written(tmp_path / "f", use_dictionary=False, max_rows_per_page=16, write_batch_size=16)
    layout = pages.layout(path)
    content = bytearray(path.read_bytes())
    chunk = layout.groups[0][layout.columns["number"][0].index]
    content[chunk.at[9] : chunk.at[9] + chunk.size[9]] = bytes(int(chunk.size[9]))
    path.write_bytes(content)
    near = np.array([8 * 16, 10 * 16])
    found = pages.read(path, layout, near, ["number"])
    assert found["number"].to_pylist() == CONTENT["number"].take(pa.array(near)).to_pylist()
    with pytest.raises((OSError, pa.ArrowException)):
        pages.read(path, layout, np.array([9 * 16]), ["number"])


def test_the_share_of_the_pages_that_rows_are_in_is_known(tmp_path: Path) -> None:
    where = pages.layout(written(tmp_path / "f", **WRITERS["row groups"]))
    per_group = [len(group[0].rows) - 1 for group in where.groups]
    assert per_group == [5, 5, 4]  # 150, 150 and 100 rows, in pages of 32
    assert where.share(np.array([0, 1, 31]), "number") == 1 / 14
    assert where.share(np.array([31, 32, 149, 150, 399]), "number") == 5 / 14
    assert where.share(np.arange(COUNT), "number") == 1


def test_columns_of_one_value_are_known(tmp_path: Path) -> None:
    one = {
        "null": (None, pa.int64()),
        "long": (-7, pa.int64()),
        "boolean": (False, pa.bool_()),
        # Not these, whose statistics have another form, or may be shortened.
        "small": (7, pa.int32()),
        "text": ("x", pa.string()),
        "float": (0.0, pa.float64()),
        "money": (Decimal("1.00"), pa.decimal128(12, 2)),
        "at": (datetime(2026, 1, 1, tzinfo=UTC), pa.timestamp("us", "UTC")),
        "unsigned": (2**63, pa.uint64()),
        "struct": ({"a": 1}, pa.struct([("a", pa.int64())])),
        "null struct": (None, pa.struct([("a", pa.int64())])),
    }
    columns = {name: pa.array([value] * COUNT, kind) for name, (value, kind) in one.items()}
    others = {
        "last": pa.array([None] * (COUNT - 1) + [1]),
        "first": pa.array([True] + [False] * (COUNT - 1)),
        "or null": pa.array([None] + [1] * (COUNT - 1)),
        "per group": pa.array([n // 150 for n in range(COUNT)], pa.int64()),
    }
    rows = pa.table(columns | others)
    for number, said in enumerate([{}, {"row_group_size": 150}, {"write_statistics": False}]):
        where = pages.layout(written(tmp_path / str(number), rows, **said))
        known = {name: where.only(name) for name in where.columns if where.only(name) is not None}
        expected = {"null": (None,), "long": (-7,), "boolean": (False,)}
        assert known == ({} if "write_statistics" in said else expected)


def test_a_file_without_a_page_index_is_reported(tmp_path: Path) -> None:
    pq.write_table(CONTENT, tmp_path / "f")
    with pytest.raises(pages.NoPageIndex):
        pages.layout(tmp_path / "f")


def test_pages_of_members_of_a_struct_begin_at_different_rows(tmp_path: Path) -> None:
    path = written(tmp_path / "f", use_dictionary=False, data_page_size=100, write_batch_size=1)
    where = pages.layout(path)
    first, second = (where.groups[0][leaf.index] for leaf in where.columns["struct"][:2])
    assert first.rows.tolist() != second.rows.tolist()
    wanted = np.array([0, 10, 11, 12, 33, 399])
    found = pages.read(path, where, wanted, ["struct"])["struct"]
    assert found.to_pylist() == CONTENT["struct"].take(pa.array(wanted)).to_pylist()


def test_a_file_with_repeated_columns_is_reported(tmp_path: Path) -> None:
    lists = pa.array([[1, 2], [3]])
    for name, column in (("f", lists), ("g", pa.StructArray.from_arrays([lists], ["a"]))):
        path = written(tmp_path / name, pa.table({"x": column}))
        with pytest.raises(pages.NoPageIndex):
            pages.layout(path)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1\xff\xff\xff\x7fPAR1", b"x" * 100])
def test_a_file_that_is_not_parquet_is_reported(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "f").write_bytes(content)
    with pytest.raises((pages.NoPageIndex, OSError)):
        pages.layout(tmp_path / "f")


@settings(max_examples=settings.default.max_examples // 2)
@given(
    damage=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=5)
)
def test_a_damaged_footer_is_reported_or_harmless(damage: list[tuple[int, int]]) -> None:
    """Whatever it says now, nothing but the named errors comes of it."""
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder, "f"), CONTENT.slice(0, 50), max_rows_per_page=16)
        content = bytearray(path.read_bytes())
        footer = int.from_bytes(content[-8:-4], "little") + 8
        for index, byte in damage:
            content[len(content) - 1 - index % (footer + 200)] = byte
        path.write_bytes(content)
        with contextlib.suppress(pages.NoPageIndex, OSError):
            pages.layout(path)


VALUES = st.recursive(
    st.one_of(
        st.integers(-(2**31), 2**31 - 1).map(I32),
        st.integers(-(2**63), 2**63 - 1),
        st.binary(max_size=300),
        st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20),
    ),
    lambda inner: st.dictionaries(st.integers(1, 15), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=settings.default.max_examples // 4)
@given(fields=st.dictionaries(st.integers(1, 15), VALUES, max_size=5))
def test_a_structure_is_read_as_it_was_written(fields: dict[int, Any]) -> None:
    encoded = thrift.encode(fields)
    reader = ThriftReader(encoded)
    assert reader.structure() == plain(fields)
    assert reader.position == len(encoded)


@settings(max_examples=settings.default.max_examples // 4)
@given(fields=st.dictionaries(st.integers(1, 15), VALUES, min_size=1), cut=st.integers(1, 1000))
def test_a_truncated_structure_is_reported(fields: dict[int, Any], cut: int) -> None:
    encoded = thrift.encode(fields)
    with pytest.raises(BrokenThrift):
        ThriftReader(encoded[: -min(cut, len(encoded))]).structure()


def plain(value: Any) -> Any:
    match value:
        case I32(number):
            return number
        case dict():
            return {number: plain(member) for number, member in value.items()}
        case _:
            return value
