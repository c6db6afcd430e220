"""The rows in a range of keys are those of a plain scan, of whichever row groups they are."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.delta.lookup import key_range, row_cache
from mirrorlake.delta.lookup.key_range import overlapping, rows_between
from mirrorlake.delta.write import data_files
from mirrorlake.model import types
from mirrorlake.model.keys import KeyRange, bound_of, is_ordered
from tests.delta.handmade import HandmadeTable
from tests.delta.lookup.test_key_lookup import files_of, filled, row_of
from tests.histories import SHAPES, Shape, counted, rows_of
from tests.reference import Row

MANY = 1_000
ORDERED = [
    shape
    for shape in SHAPES.values()
    if all(is_ordered(shape.arrow([]).schema.field(name).type) for name in shape.key)
]


@pytest.fixture(scope="module", autouse=True)
def files_with_many_row_groups():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_files, "ROW_GROUP", 2)
        patch.setattr(key_range, "SMALL", 0)
        yield


def between(table: HandmadeTable, shape: Shape, keys: KeyRange, most: int = MANY) -> list[Row]:
    found = rows_between(table.path, table.files, table.schema, shape.key, keys, most)
    assert found is not None
    return rows_of(pa.concat_tables(found))


@st.composite
def ranges(draw: st.DrawFn) -> tuple[Shape, list[tuple[Sequence[Row], Sequence[int]]], KeyRange]:
    shape = draw(st.sampled_from(ORDERED))
    files = draw(files_of(shape))
    whole = row_of(shape).filter(lambda one: all(one[index] is not None for index in shape.indexes))
    ends = []
    for end in draw(st.lists(st.none() | whole, min_size=2, max_size=2)):
        columns = shape.key[: draw(st.integers(1, len(shape.key)))]
        ends.append(None if end is None else bound_of(shape.arrow([end]), columns, 0))
    limited = draw(st.sampled_from(shape.key))
    limits = [
        None if end is None else bound_of(shape.arrow([end]), [limited], 0)
        for end in draw(st.lists(st.none() | whole, min_size=2, max_size=2))
    ]
    return shape, files, KeyRange(*ends, draw(st.booleans()), *limits)


@pytest.mark.clause("CF-144")
@pytest.mark.parametrize("mapped", [False, True])
@given(drawn=ranges())
def test_the_rows_of_a_range_are_those_of_a_plain_scan(drawn, mapped: bool) -> None:
    shape, files, keys = drawn
    with tempfile.TemporaryDirectory() as folder:
        table = HandmadeTable(Path(folder, "t"), shape.schema, mapped=mapped)
        filled(table, shape, files)
        rows = table.rows()
        inside = keys.contains(shape.arrow(rows))
        wanted = [row for row, is_inside in zip(rows, inside, strict=True) if is_inside]
        assert counted(between(table, shape, keys)) == counted(wanted)
        searched = overlapping(table.files, table.schema, shape.key, keys)
        found = rows_between(table.path, searched, table.schema, shape.key, keys, MANY)
        assert found is not None
        assert counted(rows_of(pa.concat_tables(found))) == counted(wanted)


NUMBERS = Shape.of(["id"], id=types.LONG, name=types.STRING)


def of_numbers(low: int | None, high: int | None) -> KeyRange:
    ends = [None if n is None else pa.table({"id": pa.array([n], pa.int64())}) for n in (low, high)]
    return KeyRange(*ends)


def test_only_the_row_groups_of_the_range_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = HandmadeTable(tmp_path / "t", NUMBERS.schema)
    filled(table, NUMBERS, [([(n, "a") for n in range(10)], [4])])
    read = []

    def blocks_of_groups(
        file: pq.ParquetFile, groups: Sequence[int], schema: object
    ) -> Iterator[pa.Table]:
        read.extend(groups)
        return row_cache.blocks_of_groups(file, groups, schema)  # type: ignore[arg-type]

    monkeypatch.setattr(key_range, "blocks_of_groups", blocks_of_groups)
    assert between(table, NUMBERS, of_numbers(2, 5)) == [(3, "a"), (5, "a")]
    assert read == [1, 2]


def test_more_rows_than_asked_for_are_not_read(tmp_path: Path) -> None:
    table = HandmadeTable(tmp_path / "t", NUMBERS.schema)
    filled(table, NUMBERS, [([(n, "a") for n in range(10)], [])])
    where = table.path, table.files, table.schema, NUMBERS.key
    assert rows_between(*where, of_numbers(2, 5), 3) is None
    assert rows_between(*where, of_numbers(2, 5), 4) is not None


@pytest.mark.parametrize("kind", [types.TIMESTAMP, types.DATE])
def test_bounds_that_python_has_no_value_for_exclude_nothing(
    tmp_path: Path, kind: types.DataType
) -> None:
    shape = Shape.of(["at"], at=kind)
    table = HandmadeTable(tmp_path / "t", shape.schema)
    stored = shape.arrow([]).schema.field("at").type
    width = pa.int64() if pa.types.is_timestamp(stored) else pa.int32()
    far = pa.array([2**62 if width == pa.int64() else 2**30], width).view(stored)
    table.commit([{"add": data_files.write_data(table.path, pa.table({"at": far}), ["at"])}])
    low = date(2020, 1, 1) if kind is types.DATE else datetime(2020, 1, 1, tzinfo=UTC)
    keys = KeyRange(pa.table({"at": pa.array([low]).cast(stored)}))
    found = rows_between(table.path, table.files, table.schema, shape.key, keys, MANY)
    assert found is not None
    assert pa.concat_tables(found).num_rows == 1
