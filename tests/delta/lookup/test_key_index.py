"""An index of keys changes how rows are found, and never which."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlake.delta.lookup import key_hash, key_index, key_join, key_lookup
from mirrorlake.delta.statistics import SortedKeys, candidates
from mirrorlake.delta.write import compression
from mirrorlake.model import types
from mirrorlake.model.types import DataType
from tests.delta.handmade import HandmadeTable
from tests.delta.lookup.test_key_lookup import PLAIN, expected, filled, found, keys_of, probes
from tests.delta.lookup_ways import Way, forced
from tests.histories import VALUES, Shape, counted, rows_of

ROWS = [(n * 7 % 20, f"n{n}") for n in range(20)]
NUMBERS = st.none() | st.integers(-(2**31), 2**31 - 1) | st.sampled_from([0, 1, -1])
SOUGHT = keys_of(PLAIN, [(3, None), (14, None), (99, None)])


@pytest.fixture(autouse=True)
def indexed() -> Iterator[None]:
    with forced(Way.INDEX_PAGES):
        yield


@pytest.fixture
def table(tmp_path: Path) -> HandmadeTable:
    return filled(HandmadeTable(tmp_path / "t", PLAIN.schema), PLAIN, [(ROWS, [5])])


def index_of(table: HandmadeTable, number: int = 0) -> Path:
    index = key_index.index_path(table.path, table.files[number])
    assert index is not None
    return index


def opened(table: HandmadeTable) -> key_index.KeyIndex | None:
    return key_index.open_index(table.path, table.files[0], table.schema, ["id"])


def assert_found(table: HandmadeTable) -> None:
    assert counted(rows_of(found(table, SOUGHT).rows)) == counted(expected(table, PLAIN, SOUGHT))


@pytest.mark.parametrize("way", Way)
@settings(max_examples=settings.default.max_examples // 4)
@given(drawn=probes())
def test_every_lookup_method_finds_the_rows_of_a_full_scan(drawn, way: Way) -> None:
    shape, files, sought = drawn
    with forced(way), tempfile.TemporaryDirectory() as folder:
        table = filled(HandmadeTable(Path(folder, "t"), shape.schema), shape, files)
        keys = keys_of(shape, sought)
        for _ in range(2):  # an index is made, and then used
            matches = found(table, keys, threads=2)
            assert counted(rows_of(matches.rows)) == counted(expected(table, shape, keys))
            searched = key_lookup.candidates(table.files, table.schema, keys)
            for file, row, values in zip(
                matches.file, matches.row, rows_of(matches.rows), strict=True
            ):
                stored = pq.read_table(table.path / searched[file]["path"])
                assert counted([rows_of(stored)[row]]) == counted([values])


@pytest.mark.parametrize("kind", ["long", "date", "timestamp", "string", "double"])
def test_only_keys_between_the_bounds_of_a_file_are_looked_up_in_it(
    tmp_path: Path, kind: str
) -> None:
    values = sorted(v for v in VALUES[kind] if v is not None and v == v)  # noqa: PLR0124  (NaN)
    shape = Shape.of(["k"], k=types.DataType(kind), v=types.LONG)
    stored = [(value, 1) for value in values[1:-1]]
    table = filled(HandmadeTable(tmp_path / "t", shape.schema), shape, [(stored, [])])
    keys = keys_of(shape, [*reversed([(v, 1) for v in values]), (None, 1)])
    held = SortedKeys(table.schema, keys).candidates(table.files[0])
    if kind in {"string", "double"}:
        assert held is None
        return
    assert held is not None
    found = [row[0] for row in rows_of(keys.take(pa.array(held)))]
    assert {*values[1:-1], None} <= set(found) < {*values, None}


def test_a_bound_whose_offset_lost_its_seconds_hides_no_key() -> None:
    """Java prints 1890-06-01T00:00:00Z in Paris, nine minutes and 21 seconds ahead, like this."""
    shape = Shape.of(["k"], k=types.TIMESTAMP)
    stats = {
        "minValues": {"k": "1890-06-01T00:09:21.000+00:09"},
        "maxValues": {"k": "1950-01-01T00:00:00.000-00:44"},
    }
    file = {"path": "x", "stats": json.dumps(stats)}
    first = datetime(1890, 6, 1, tzinfo=UTC)
    last = datetime(1950, 1, 1, 0, 44, 30, tzinfo=UTC)
    with tempfile.TemporaryDirectory() as folder:
        schema = HandmadeTable(Path(folder, "t"), shape.schema).schema
    for moments in ([first], [last], [first, datetime(1920, 1, 1, tzinfo=UTC), last]):
        keys = shape.arrow([(moment,) for moment in moments])
        assert candidates([file], schema, keys) == [file]
        held = SortedKeys(schema, keys).candidates(file)
        assert held is not None
        assert len(held) == len(moments)


def test_an_index_is_made_by_the_first_search_and_used_by_the_next(
    table: HandmadeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_found(table)
    assert opened(table) is not None
    monkeypatch.setattr(key_index, "build_index", lambda *_: pytest.fail("it is made twice"))
    monkeypatch.setattr(key_join, "matches", lambda *_: pytest.fail("the keys are read"))
    assert_found(table)


def test_a_lookup_builds_a_limited_number_of_indexes(
    table: HandmadeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(table, PLAIN, [(ROWS, []), (ROWS, [])])
    monkeypatch.setattr(key_lookup, "MAX_INDEXED_ROWS", len(ROWS))
    for made in (1, 2, 3, 3):
        assert_found(table)
        assert sum(index_of(table, n).exists() for n in range(3)) == made


@pytest.mark.parametrize("offset", [0, 8, 12, 17, 40, -1, -8, -100])
def test_a_damaged_index_is_ignored_and_rebuilt(table: HandmadeTable, offset: int) -> None:
    assert_found(table)
    index = index_of(table)
    content = bytearray(index.read_bytes())
    content[offset] ^= 0x10
    index.unlink()
    index.write_bytes(content)
    assert opened(table) is None
    assert_found(table)
    assert opened(table) is not None


@pytest.mark.parametrize("kept", [0, 7, 20, 100, -1, -8])
def test_a_truncated_index_is_ignored(table: HandmadeTable, kept: int) -> None:
    assert_found(table)
    index = index_of(table)
    content = index.read_bytes()
    index.unlink()
    index.write_bytes(content[:kept])
    assert opened(table) is None
    assert_found(table)


def test_the_index_of_another_file_is_ignored(table: HandmadeTable) -> None:
    filled(table, PLAIN, [([(n + 1, text) for n, text in ROWS], [])])
    assert_found(table)
    shutil.copy(index_of(table, 1), index_of(table, 0))
    assert opened(table) is None
    assert_found(table)


def test_the_index_of_a_replaced_file_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compression, "CODEC", "none")  # other rows take as many bytes
    table = filled(HandmadeTable(tmp_path / "t", PLAIN.schema), PLAIN, [(ROWS, [5])])
    assert_found(table)
    data = table.path / table.files[0]["path"]
    size = data.stat().st_size
    other = HandmadeTable(table.path.parent / "other", PLAIN.schema)
    filled(other, PLAIN, [([(n + 80, text) for n, text in ROWS], [])])
    shutil.copy(other.path / other.files[0]["path"], data)
    assert data.stat().st_size == size
    assert opened(table) is None


def test_the_index_of_other_columns_is_ignored(table: HandmadeTable) -> None:
    assert_found(table)
    assert key_index.open_index(table.path, table.files[0], table.schema, ["name"]) is None
    assert key_index.open_index(table.path, table.files[0], table.schema, ["id", "name"]) is None


def test_an_index_with_another_hash_function_is_ignored(
    table: HandmadeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_found(table)
    monkeypatch.setattr(key_hash, "name", lambda *_: "another")
    assert opened(table) is None


def test_indexes_may_be_deleted(table: HandmadeTable) -> None:
    assert_found(table)
    shutil.rmtree(table.path / "_mirrorlake")
    assert_found(table)
    assert opened(table) is not None


def test_a_read_only_table_is_searched_without_an_index(table: HandmadeTable) -> None:
    (table.path / "_mirrorlake").write_text("no folder")
    assert_found(table)


@pytest.mark.parametrize("kind", [types.LONG, types.STRING], ids=str)
def test_rows_with_equal_hashes_but_other_keys_are_excluded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: DataType
) -> None:
    monkeypatch.setattr(key_hash, "_mix", lambda numbers: numbers * 0 + np.uint64(7 << 32))
    monkeypatch.setattr(key_hash, "_hash", lambda *_: "(7::ubigint << 32)")
    shape = Shape.of(["id"], id=kind, name=types.STRING)
    rows = [(id_ if kind == types.LONG else str(id_), name) for id_, name in ROWS]
    table = filled(HandmadeTable(tmp_path / "same", shape.schema), shape, [(rows, [5])])
    sought = keys_of(shape, rows[3:9])
    assert counted(rows_of(found(table, sought).rows)) == counted(expected(table, shape, sought))
    index = opened(table)
    assert index is not None
    assert len(index.find(key_index.LookupKeys.of(sought, table.schema))[0]) == 6 * len(rows)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=30))
def test_integer_keys_have_equal_hashes_only_if_they_are_equal(drawn) -> None:
    shape = Shape.of(["a", "b"], a=types.LONG, b=types.INTEGER)
    with tempfile.TemporaryDirectory() as folder:
        schema = HandmadeTable(Path(folder, "t"), shape.schema).schema
        hashes = key_hash.hash_keys(shape.arrow(drawn), schema)
    assert len(set(hashes.tolist())) == len(set(drawn))


def test_files_of_others_have_no_index(table: HandmadeTable) -> None:
    for path in ("file:/elsewhere/x.parquet", "../x.parquet", "/x.parquet", "s3://b/x.parquet"):
        assert key_index.index_path(table.path, {"path": path}) is None


def test_a_sweep_removes_the_indexes_of_deleted_files(table: HandmadeTable) -> None:
    filled(table, PLAIN, [(ROWS, [])])
    assert_found(table)
    first, second = index_of(table, 0), index_of(table, 1)
    (table.path / table.files[0]["path"]).unlink()
    left_behind = second.with_name(f"{second.name}.0123")
    left_behind.write_bytes(b"half")
    assert key_index.sweep(table.path) == 2
    assert (first.exists(), second.exists(), left_behind.exists()) == (False, True, False)


def test_a_table_without_indexes_is_swept(tmp_path: Path) -> None:
    assert key_index.sweep(tmp_path) == 0


def test_equal_keys_of_any_width_have_the_same_hash() -> None:
    """A file may hold a narrower number than the table: an older version of it was narrower."""
    narrow = Shape.of(["id"], id=types.INTEGER)
    wide = Shape.of(["id"], id=types.LONG)
    with tempfile.TemporaryDirectory() as folder:
        table = filled(HandmadeTable(Path(folder, "t"), narrow.schema), narrow, [([(7,)], [])])
        keys = pa.table({"id": pa.array([7], pa.int64())})
        path = str(table.path / table.files[0]["path"])
        schema = HandmadeTable(Path(folder, "w"), wide.schema).schema
        stored = key_hash.hash_file(path, schema, ["id"])
        assert stored is not None
        assert np.array_equal(stored, key_hash.hash_keys(keys, schema))
