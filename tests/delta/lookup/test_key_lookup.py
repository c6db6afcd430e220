"""The probe finds exactly the rows of the keys that a plain scan finds."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.delta import deletion_vectors
from mirrorlake.delta.lookup import key_join, pages
from mirrorlake.delta.lookup.key_lookup import Matches, candidates, find_rows
from mirrorlake.delta.schema import TableSchema
from mirrorlake.delta.write import data_files
from mirrorlake.model import types
from mirrorlake.model.table import Column, Schema
from tests.delta.handmade import HandmadeTable, metadata
from tests.delta.lookup_ways import Way, forced
from tests.histories import SHAPES, VALUES, Shape, counted, rows_of
from tests.reference import Row, identity

PLAIN = Shape.of(["id"], id=types.LONG, name=types.STRING)


def filled(
    table: HandmadeTable, shape: Shape, files: Iterable[tuple[Sequence[Row], Sequence[int]]]
) -> HandmadeTable:
    """Write files of rows, from each of which some row numbers are deleted."""
    physical = table.schema.physical
    for rows, gone in files:
        named = shape.arrow(rows).rename_columns(list(physical))
        add = data_files.write_data(table.path, named, [physical[index] for index in shape.indexes])
        if gone:
            new = deletion_vectors.VectorFile()
            vector = new.add(np.array(gone, np.int64))
            data_files.write_bytes(table.path / new.name, new.content())
            add = data_files.deleted_from(add, vector, len(rows))
        table.commit([{"add": add}])
    return table


def found(table: HandmadeTable, keys: pa.Table, *, threads: int = 1) -> Matches:
    searched = candidates(table.files, table.schema, keys)
    return find_rows(table.path, searched, table.schema, keys, threads)


def keys_of(shape: Shape, rows: Iterable[Row]) -> pa.Table:
    """The distinct keys of these rows."""
    distinct = {identity(tuple(row[p] for p in shape.indexes)): row for row in rows}
    return shape.arrow(distinct.values()).select(list(shape.key))


def expected(table: HandmadeTable, shape: Shape, keys: pa.Table) -> list[Row]:
    wanted = {identity(key) for key in rows_of(keys)}
    return [r for r in table.rows() if identity(tuple(r[p] for p in shape.indexes)) in wanted]


def row_of(shape: Shape) -> st.SearchStrategy[Row]:
    return st.tuples(*(st.sampled_from(VALUES[column.type.name]) for column in shape.schema))


@st.composite
def files_of(draw: st.DrawFn, shape: Shape) -> list[tuple[list[Row], list[int]]]:
    """The rows of files, and the numbers of those that are deleted from each."""
    files = []
    for rows in draw(st.lists(st.lists(row_of(shape), min_size=1, max_size=6), max_size=4)):
        gone = draw(st.sets(st.integers(0, len(rows) - 1), max_size=len(rows) - 1))
        files.append((rows, sorted(gone)))
    return files


@st.composite
def probes(draw: st.DrawFn):
    """A table, its files with what is deleted from each, and rows whose keys are sought."""
    shape = draw(st.sampled_from(list(SHAPES.values())))
    return shape, draw(files_of(shape)), draw(st.lists(row_of(shape), max_size=4))


@pytest.mark.parametrize("mapped", [False, True])
@given(drawn=probes())
def test_the_rows_of_the_keys_are_those_of_a_plain_scan(drawn, mapped: bool) -> None:
    shape, files, sought = drawn
    with tempfile.TemporaryDirectory() as folder:
        table = HandmadeTable(Path(folder, "t"), shape.schema, mapped=mapped)
        filled(table, shape, files)
        keys = keys_of(shape, sought)
        assert counted(rows_of(found(table, keys).rows)) == counted(expected(table, shape, keys))


@given(drawn=probes())
def test_each_match_names_its_key_its_file_and_its_row_in_it(drawn) -> None:
    shape, files, sought = drawn
    with tempfile.TemporaryDirectory() as folder:
        table = filled(HandmadeTable(Path(folder, "t"), shape.schema), shape, files)
        keys = keys_of(shape, sought)
        matches = found(table, keys)
        searched = candidates(table.files, table.schema, keys)
        stored = [rows_of(pq.read_table(table.path / add["path"])) for add in searched]
        for match, code, file, row in zip(
            rows_of(matches.rows), matches.code, matches.file, matches.row, strict=True
        ):
            assert identity(match) == identity(stored[file][row])
            assert identity(tuple(match[p] for p in shape.indexes)) == identity(rows_of(keys)[code])


@given(drawn=probes())
def test_a_file_that_is_skipped_has_none_of_the_keys(drawn) -> None:
    shape, files, sought = drawn
    with tempfile.TemporaryDirectory() as folder:
        table = filled(HandmadeTable(Path(folder, "t"), shape.schema), shape, files)
        keys = keys_of(shape, sought)
        wanted = {identity(key) for key in rows_of(keys)}
        searched = candidates(table.files, table.schema, keys)
        for add in table.files:
            rows = rows_of(pq.read_table(table.path / add["path"]))
            if any(identity(tuple(row[p] for p in shape.indexes)) in wanted for row in rows):
                assert add in searched


def test_files_outside_the_range_of_the_keys_are_skipped(tmp_path: Path) -> None:
    table = HandmadeTable(tmp_path / "t", PLAIN.schema)
    filled(table, PLAIN, [([(n, "a"), (n + 9, "b")], []) for n in (0, 10, 20)])
    searched = candidates(table.files, table.schema, keys_of(PLAIN, [(12, None), (15, None)]))
    assert len(searched) == 1


def test_a_file_between_two_keys_is_skipped(tmp_path: Path) -> None:
    table = HandmadeTable(tmp_path / "t", PLAIN.schema)
    filled(table, PLAIN, [([(n, "a"), (n + 9, "b")], []) for n in (0, 10, 20)])
    searched = candidates(table.files, table.schema, keys_of(PLAIN, [(5, None), (25, None)]))
    assert len(searched) == 2


def test_no_file_is_a_candidate_for_no_key(tmp_path: Path) -> None:
    table = HandmadeTable(tmp_path / "t", PLAIN.schema)
    filled(table, PLAIN, [([(1, "a")], [])])
    assert candidates(table.files, table.schema, keys_of(PLAIN, [])) == []


@pytest.mark.parametrize("way", Way)
def test_a_key_is_found_whatever_the_sign_of_its_nan(tmp_path: Path, way: Way) -> None:
    shape = Shape.of(["x"], x=types.DOUBLE, text=types.STRING)
    rows = [(1.0, "a"), (math.copysign(math.nan, -1), "b"), (2.0, "c")]
    with forced(way) as patch:
        # As delta-rs writes it: with statistics, which do not show NaN.
        patch.setattr(data_files, "_has_nan", lambda _column: False)
        table = filled(HandmadeTable(tmp_path / "t", shape.schema), shape, [(rows, [])])
        (row,) = rows_of(found(table, keys_of(shape, [(math.nan, None)])).rows)
    assert row[1] == "b"


@pytest.mark.parametrize("way", Way)
@pytest.mark.parametrize("narrow", [types.FLOAT, types.INTEGER])
def test_a_key_is_found_in_files_from_before_it_became_a_double(
    tmp_path: Path, narrow: types.DataType, way: Way
) -> None:
    earlier = Shape.of(["x"], x=narrow, text=types.STRING)
    shape = Shape.of(["x"], x=types.DOUBLE, text=types.STRING)
    value = 7 if narrow is types.INTEGER else float(np.float32(0.1))
    with forced(way):
        table = filled(
            HandmadeTable(tmp_path / "t", earlier.schema), earlier, [([(value, "a")], [])]
        )
        table.commit([{"metaData": metadata(shape.schema)}])
        matches = found(table, keys_of(shape, [(float(value), None)]))
    assert rows_of(matches.rows) == [(value, "a")]


@pytest.mark.parametrize("way", Way)
def test_files_of_a_copy_are_not_searched(tmp_path: Path, way: Way) -> None:
    with forced(way):
        folder = tmp_path / "r[1]" / "t"
        table = filled(HandmadeTable(folder, PLAIN.schema), PLAIN, [([(1, "a")], [])])
        shutil.copytree(tmp_path / "r[1]", tmp_path / "r1")
        matches = found(table, keys_of(PLAIN, [(1, None)]))
    assert (rows_of(matches.rows), matches.file.tolist()) == ([(1, "a")], [0])


def test_whole_files_are_joined_with_the_keys_that_they_can_contain(tmp_path: Path) -> None:
    table = HandmadeTable(tmp_path / "t", PLAIN.schema)
    joined = list[list[Row]]()
    with forced(Way.WHOLE) as patch:
        filled(table, PLAIN, [([(n, "a"), (n + 2, "b")], []) for n in (10, 30)])
        rows = key_join.rows
        patch.setattr(key_join, "rows", lambda *a: joined.append(rows_of(a[2])) or rows(*a))
        keys = keys_of(PLAIN, [(n, None) for n in (5, 32, 20, 11, 40, 10, 33)])
        matches = found(table, keys)
    assert joined == [[(32,), (11,), (10,)]]
    assert counted(rows_of(matches.rows)) == counted([(10, "a"), (32, "b")])
    assert rows_of(keys.take(pa.array(matches.code))) == [row[:1] for row in rows_of(matches.rows)]


@pytest.mark.parametrize("way", Way)
def test_columns_of_one_value_are_not_read(tmp_path: Path, way: Way) -> None:
    table = HandmadeTable(tmp_path / "t", PLAIN.schema)
    files = [[(1, None), (2, None)], [(3, "c"), (4, None)], [(None, None)], [(None, "d"), (5, "e")]]
    files.append([(6, "f"), (6, "g")])
    with forced(way) as patch:
        filled(table, PLAIN, [(rows, []) for rows in files])
        if way in {Way.KEYS_PAGES, Way.INDEX_PAGES}:
            read, columns = pages.read, list[list[str]]()
            patch.setattr(pages, "read", lambda *a: columns.append(a[3]) or read(*a))
        keys = keys_of(PLAIN, [(1, None), (3, None), (4, None), (None, None), (5, None), (6, None)])
        rows = rows_of(found(table, keys).rows)
        if way in {Way.KEYS_PAGES, Way.INDEX_PAGES}:
            both = ["id", "name"]
            assert sorted(columns) == [["id"], ["id"], both, both, ["name"]]
        assert rows_of(found(table, keys_of(PLAIN, [(2, None)])).rows) == [(2, None)]
    assert counted(rows) == counted(
        [(1, None), (3, "c"), (4, None), (None, None), (None, "d"), (5, "e"), (6, "f"), (6, "g")]
    )


def test_columns_that_were_added_later_are_null_in_older_files(tmp_path: Path) -> None:
    table = HandmadeTable(tmp_path / "t", PLAIN.schema)
    filled(table, PLAIN, [([(1, "a")], [])])
    wider = Shape.of(["id"], id=types.LONG, name=types.STRING, more=types.DOUBLE)
    table.commit([{"metaData": metadata(wider.schema)}])
    keys = keys_of(wider, [(1, None, None)])
    assert rows_of(found(table, keys).rows) == [(1, "a", None)]
    filled(table, wider, [([(1, "b", 2.0)], [])])
    assert counted(rows_of(found(table, keys).rows)) == counted([(1, "a", None), (1, "b", 2.0)])


def test_a_key_column_that_was_added_later_is_null_in_older_files(tmp_path: Path) -> None:
    table = HandmadeTable(tmp_path / "t", PLAIN.schema)
    filled(table, PLAIN, [([(1, "a")], [])])
    wider = Shape.of(["more"], id=types.LONG, name=types.STRING, more=types.DOUBLE)
    table.commit([{"metaData": metadata(wider.schema)}])
    keys = keys_of(wider, [(0, "", None), (0, "", 1.0)])
    assert rows_of(found(table, keys).rows) == [(1, "a", None)]
    filled(table, wider, [([(2, "b", 2.0)], [])])
    assert rows_of(found(table, keys).rows) == [(1, "a", None)]


NAMES = [
    "file_row_number",
    "FILE_ROW_NUMBER",
    "filename",
    "FileName",
    "file_index",
    "rowid",
    "k0",
    "wanted",
    "t",
    'quo"te',
    "it's",
    "with space",
    "a.b",
    "back`tick",
    "per%cent",
    "Größe",
    "select",
    "a,b;{}()=\n\t",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mapped", [False, True])
def test_columns_may_have_any_name(tmp_path: Path, name: str, mapped: bool) -> None:
    columns = [Column("id", types.LONG), Column(name, types.STRING)]
    shape = Shape(Schema.of(columns), (name,))
    table = HandmadeTable(tmp_path / "t", shape.schema, mapped=mapped)
    filled(table, shape, [([(1, "a"), (2, "b"), (3, "c")], [0]), ([(4, "a"), (5, "b")], [])])
    matches = found(table, keys_of(shape, [(0, "a"), (0, "b")]), threads=2)
    assert counted(rows_of(matches.rows)) == counted([(2, "b"), (4, "a"), (5, "b")])
    assert sorted(zip(matches.file, matches.row, strict=True)) == [(0, 1), (1, 0), (1, 1)]


@pytest.mark.parametrize("name", [*NAMES[:8], "__code", "__row", "__FILE", "__path"])
@pytest.mark.parametrize("threads", [1, 2])
def test_columns_of_files_that_are_joined_may_have_any_name(
    tmp_path: Path, name: str, threads: int
) -> None:
    columns = [Column("id", types.LONG), Column(name, types.LONG)]
    schema = TableSchema(Schema.of(columns), ("id", name), (None, None))
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"id": [1, 2, 3], name: [70, 80, 90]}), path)
    found = key_join.rows([str(path)], schema, pa.table({"id": pa.array([9, 3])}), threads)
    assert found.select(["id", name, key_join.CODE, key_join.FILE, key_join.ROW]).to_pylist() == [
        {"id": 3, name: 90, key_join.CODE: 1, key_join.FILE: 0, key_join.ROW: 2}
    ]


@pytest.mark.parametrize("name", ["a[b]c", "a*b", "what?", "per%41cent", "{a,b}", "sp ace", "it's"])
def test_tables_may_be_in_folders_of_any_name(tmp_path: Path, name: str) -> None:
    table = HandmadeTable(tmp_path / name, PLAIN.schema)
    filled(table, PLAIN, [([(1, "a")], []), ([(1, "b")], [])])
    matches = found(table, keys_of(PLAIN, [(1, None)]))
    assert counted(rows_of(matches.rows)) == counted([(1, "a"), (1, "b")])


def test_every_nan_is_found(tmp_path: Path) -> None:
    shape = Shape.of(["x"], x=types.DOUBLE, n=types.LONG)
    table = HandmadeTable(tmp_path / "t", shape.schema)
    bits = np.array([0x7FF8 << 48, 0xFFF8 << 48, 0x7FF0 << 48 | 1], np.uint64)
    data = pa.table({"x": bits.view(np.float64), "n": [1, 2, 3]})
    table.commit([{"add": data_files.write_data(table.path, data, ["x"])}])
    for number in range(3):
        keys = pa.table({"x": bits.view(np.float64)[number : number + 1]})
        assert pc.sum(found(table, keys).rows["n"]).as_py() == 6


def test_the_last_timestamp_of_the_calendar_is_found(tmp_path: Path) -> None:
    shape = Shape.of(["at"], at=types.TIMESTAMP)
    table = HandmadeTable(tmp_path / "t", shape.schema)
    last = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    filled(table, shape, [([(last,)], [])])
    assert rows_of(found(table, keys_of(shape, [(last,)])).rows) == [(last,)]


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        (types.DATE, [-800_000, 2_932_897, 5_000_000]),
        (types.TIMESTAMP, [-70_000_000_000_000_000, 253_402_300_800_000_000]),
    ],
)
def test_dates_outside_the_years_1_to_9999_are_found(tmp_path: Path, kind, numbers) -> None:
    shape = Shape.of(["at"], at=kind)
    table = HandmadeTable(tmp_path / "t", shape.schema)
    physical = pa.int32() if kind is types.DATE else pa.int64()
    data = pa.table({"at": pa.array(numbers, physical).cast(shape.arrow([]).schema.types[0])})
    table.commit([{"add": data_files.write_data(table.path, data, ["at"])}])
    assert found(table, data).row.tolist() == list(range(len(numbers)))


def test_a_search_keeps_no_data_of_a_file_in_duckdb(tmp_path: Path) -> None:
    """Or a worker would grow with every file that is written while it lives."""
    table = HandmadeTable(tmp_path, PLAIN.schema)
    filled(table, PLAIN, [([(n, "a") for n in range(5_000)], [])])
    with forced(Way.WHOLE):
        assert found(table, keys_of(PLAIN, [(7, None)])).rows.num_rows == 1
    with key_join.connected(1) as connection:
        kept = "select count(*) from duckdb_external_file_cache()"
        assert connection.execute(kept).fetchone() == (0,)
