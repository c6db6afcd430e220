"""Small files in memory: the right rows, for as long as the file is this one, and not too many."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mirrorlake.delta.lookup import row_cache
from mirrorlake.delta.lookup.key_lookup import find_rows
from mirrorlake.delta.lookup.whole_files import WholeFileReader
from mirrorlake.delta.schema import TableSchema
from mirrorlake.feed.reading_ahead import FileRead, read_alone
from mirrorlake.model import keys as codes
from mirrorlake.model import types
from mirrorlake.model.table import Column, Schema
from tests.histories import SHAPES, Shape, histories
from tests.profiles import tries
from tests.reference import UNCHANGED

SCHEMA = Schema.of([Column("id", types.LONG), Column("a.b", types.STRING)])
TABLE = TableSchema(SCHEMA, ("id", "a.b"), (None, None))


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> row_cache.BoundedCache:
    kept = row_cache.BoundedCache(row_cache.CACHE_BYTES, row_cache._cost)
    monkeypatch.setattr(row_cache, "_cache", kept)
    return kept


def written(path: Path, **columns: list[object]) -> Path:
    pq.write_table(
        pa.table({name.replace("_", "."): values for name, values in columns.items()}), path
    )
    return path


def test_columns_that_the_file_lacks_are_null_and_others_are_left_out(tmp_path: Path) -> None:
    path = written(tmp_path / "1.parquet", a=["x"], id=[1], c=[0])
    assert row_cache.table_rows(path, TABLE).to_pylist() == [{"id": 1, "a.b": None}]
    assert row_cache.table_rows(written(tmp_path / "2.parquet", c=[0, 1]), TABLE).num_rows == 2


def test_columns_that_got_each_others_names_have_their_own_values(tmp_path: Path) -> None:
    columns = [Column("id", types.LONG), Column("a.b", types.LONG)]
    schema = TableSchema(Schema.of(columns), ("a.b", "id"), (None, None))
    path = written(tmp_path / "1.parquet", id=[1], a_b=[2])
    read = partial(row_cache.read_rows, path, WholeFileReader(schema))
    assert read_alone(FileRead(0, 0, read)).to_pylist() == [{"id": 2, "a.b": 1}]


@pytest.mark.parametrize("is_small", [True, False])
@pytest.mark.parametrize("kind", ["all columns", "one too many", "one too few", "none"])
def test_a_whole_file_has_the_columns_of_the_table(
    tmp_path: Path, kind: str, is_small: bool
) -> None:
    pair = types.struct(x=types.LONG, y=types.STRING)
    columns = [Column("id", types.LONG), Column("a.b", types.STRING), Column("s", pair)]
    schema = TableSchema(Schema.of(columns), ("id", "a.b", "s"), (None,) * 3)
    stored = {"id": [1, 2], "a.b": ["x", None], "s": [{"x": 3, "y": "z"}, None]}
    expected = [dict(zip(stored, row, strict=True)) for row in zip(*stored.values(), strict=True)]
    if kind == "one too many":
        stored = {"a": [{"id": 7}] * 2, **stored}
    elif kind == "one too few":
        del stored["a.b"]
    elif kind == "none":
        stored = {"a": [0, 0]}
    path = tmp_path / "1.parquet"
    types_of = {"s": pa.struct({"x": pa.int64(), "y": pa.string()})}
    pq.write_table(
        pa.table({name: pa.array(values, types_of.get(name)) for name, values in stored.items()}),
        path,
    )
    read = partial(WholeFileReader(schema).read, str(path), is_small=is_small)
    assert read_alone(FileRead(0, 0, read)).to_pylist() == [
        {name: row[name] if name in stored else None for name in row} for row in expected
    ]


def test_a_file_is_read_once(tmp_path: Path) -> None:
    path = written(tmp_path / "1.parquet", id=[1, 2], a_b=["x", None])
    rows = row_cache.table_rows(path, TABLE)
    assert rows.to_pylist() == [{"id": 1, "a.b": "x"}, {"id": 2, "a.b": None}]
    assert row_cache.table_rows(path, TABLE) is rows


def test_a_deleted_file_is_missing_although_its_rows_are_cached(tmp_path: Path) -> None:
    path = written(tmp_path / "1.parquet", id=[1])
    row_cache.table_rows(path, TABLE)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        row_cache.table_rows(path, TABLE)


def test_another_file_of_the_same_name_is_read_again(tmp_path: Path) -> None:
    path = written(tmp_path / "1.parquet", id=[1])
    row_cache.table_rows(path, TABLE)
    written(path, id=[2])
    os.utime(path, ns=(1, 1))
    assert row_cache.table_rows(path, TABLE)["id"].to_pylist() == [2]


def test_a_table_with_other_columns_reads_the_file_again(tmp_path: Path) -> None:
    path = written(tmp_path / "1.parquet", id=[1], a_b=["x"])
    row_cache.table_rows(path, TABLE)
    narrow = TableSchema(Schema.of([Column("id", types.LONG)]), ("id",), (None,))
    assert row_cache.table_rows(path, narrow).column_names == ["id"]


def test_the_least_recently_used_rows_are_evicted_first(tmp_path: Path) -> None:
    paths = [written(tmp_path / f"{n}.parquet", id=list(range(1_000))) for n in range(4)]
    kept = row_cache.BoundedCache(
        3 * row_cache._cost(row_cache.table_rows(paths[0], TABLE)), row_cache._cost
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_cache, "_cache", kept)
        first = [row_cache.table_rows(path, TABLE) for path in paths[:3]]
        assert row_cache.table_rows(paths[0], TABLE) is first[0]
        row_cache.table_rows(paths[3], TABLE)
        assert row_cache.table_rows(paths[0], TABLE) is first[0]
        assert row_cache.table_rows(paths[1], TABLE) is not first[1]
        assert kept.size <= kept.most


@pytest.mark.parametrize("kind", ["columns that came later", "a dictionary"])
def test_rows_are_measured_in_the_types_of_the_cache(tmp_path: Path, kind: str) -> None:
    path, table = tmp_path / "1.parquet", TABLE
    if kind == "a dictionary":
        texts = pa.DictionaryArray.from_arrays(pa.array([0] * 100_000, pa.int32()), ["x" * 4_096])
        pq.write_table(pa.table({"id": range(100_000), "a.b": texts}), path)
    else:
        columns = [Column("id", types.LONG), *(Column(f"c{n}", types.LONG) for n in range(60))]
        names = tuple(column.name for column in columns)
        table = TableSchema(Schema.of(columns), names, (None,) * len(names))
        pq.write_table(pa.table({"id": pa.array([1] * 100_000)}), path)
    assert path.stat().st_size < row_cache.SMALL
    before = pa.total_allocated_bytes()
    assert row_cache.cached_rows(path, table) is None
    assert pa.total_allocated_bytes() - before < row_cache.MAX_FILE_ROWS_BYTES


def test_a_small_file_with_large_rows_is_not_cached(tmp_path: Path) -> None:
    path = written(tmp_path / "1.parquet", id=[1] * 1_000_000, a_b=["x" * 10] * 1_000_000)
    assert path.stat().st_size < row_cache.SMALL
    assert row_cache.cached_rows(path, TABLE) is None
    rows = row_cache.table_rows(path, TABLE)
    assert rows.nbytes > row_cache.MAX_FILE_ROWS_BYTES
    assert row_cache.table_rows(path, TABLE) is not rows


def test_rows_are_found_in_small_files_with_large_rows(tmp_path: Path) -> None:
    """Together they are more than one column of Arrow can hold."""
    long, adds = "x" * 4_096, []
    for number in range(24):
        path = tmp_path / f"{number}.parquet"
        ids = pa.array(range(number * 25_000, (number + 1) * 25_000), pa.int64())
        texts = pa.DictionaryArray.from_arrays(pa.array([0] * 25_000, pa.int32()), [long])
        pq.write_table(pa.table({"id": ids, "a.b": texts}), path)
        adds.append({"path": path.name, "size": path.stat().st_size, "stats": "{}"})
    keys = pa.table({"id": pa.array([3, 555_555], pa.int64())})
    assert max(add["size"] for add in adds) < row_cache.SMALL
    found = find_rows(tmp_path, adds, TABLE, keys, 1)
    assert sorted(zip(found.code, found.file, found.row, strict=True)) == [
        (0, 0, 3),
        (1, 22, 5_555),
    ]
    assert set(found.rows["a.b"].to_pylist()) == {long}


@settings(max_examples=tries(60), suppress_health_check=list(HealthCheck))
@given(shape=st.sampled_from(list(SHAPES.values())), data=st.data())
def test_many_keys_are_found_like_few(
    monkeypatch: pytest.MonkeyPatch, shape: Shape, data: st.DataObject
) -> None:
    """Whatever their types, with NULL and every NaN."""
    _shape, landings = data.draw(histories([shape], batches=3))
    rows = [change.row for landing in landings for change in landing.changes]
    held = shape.arrow([tuple(None if v == UNCHANGED else v for v in row) for row in rows])
    stored, wanted = held.slice(0, len(rows) // 2), held.select(list(shape.key))
    keys = wanted.take(pa.array(codes.encode(wanted).first))  # distinct, those of the rows and more
    found = []
    for many in (-1, len(rows) + 1):
        monkeypatch.setattr(row_cache, "KEYS_PER_ROW", many)
        found.append([some.tolist() for some in row_cache.matches(keys, stored)])
    assert found[0] == found[1]
    assert sorted(found[0][1]) == list(range(stored.num_rows))


def test_many_keys_are_filtered_before_they_are_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    numbered: list[int] = []
    true = codes.encode
    monkeypatch.setattr(codes, "encode", lambda t: numbered.append(t.num_rows) or true(t))
    rows = pa.table({"id": pa.array([7, None, 500], pa.int64()), "a.b": ["x", "y", "z"]})
    keys = pa.table({"id": pa.array([None, *range(400)], pa.int64())})
    code, row = row_cache.matches(keys, rows)
    assert (code.tolist(), row.tolist()) == ([8, 0], [0, 1])
    assert numbered == [5]
