"""Row markers: of any integer type or text, at any position, and never guessed."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.errors import MisspeltMarker, UnknownMarker, UnsupportedColumn
from mirrorlake.landing.parquet.reader import markers
from mirrorlake.model.change import MARKER_COLUMN, Marker
from tests.landing.files import FILE, TABLE, encoded, inspected, read, with_markers

INTEGERS = [
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.uint8(),
    pa.uint16(),
    pa.uint32(),
    pa.uint64(),
]
TEXTS = [pa.string(), pa.large_string(), pa.string_view()]
KNOWN = [int(marker) for marker in Marker]


def fault(column: pa.Array) -> UnknownMarker:
    with pytest.raises(UnknownMarker) as caught:
        read(encoded(with_markers(column)))
    return caught.value


@pytest.mark.clause("LZ-069", "LZ-075")
def test_the_markers_are_insert_update_delete_and_upsert() -> None:
    assert (MARKER_COLUMN, {m.name: int(m) for m in Marker}) == (
        "__rowMarker__",
        {"INSERT": 0, "UPDATE": 1, "DELETE": 2, "UPSERT": 4},
    )


@pytest.mark.clause("LZ-084", "LZ-337")
@pytest.mark.parametrize("kind", INTEGERS, ids=str)
def test_a_marker_may_have_any_integer_type(kind: pa.DataType) -> None:
    found = read(encoded(with_markers(pa.array(KNOWN, kind))))
    assert found.marker.equals(pa.array(KNOWN, pa.int8()))


@pytest.mark.clause("LZ-084", "LZ-337")
@pytest.mark.parametrize("kind", TEXTS, ids=str)
def test_a_marker_may_be_text(kind: pa.DataType) -> None:
    found = read(encoded(with_markers(pa.array([str(m) for m in KNOWN], kind))))
    assert found.marker.equals(pa.array(KNOWN, pa.int8()))


@pytest.mark.clause("LZ-084")
@pytest.mark.parametrize("kind", [pa.string(), pa.int32()], ids=str)
def test_a_marker_may_be_a_dictionary(kind: pa.DataType) -> None:
    column = pa.array(["0", "2", "0"]).cast(kind).dictionary_encode()
    assert read(encoded(with_markers(column))).marker.to_pylist() == [0, 2, 0]


@pytest.mark.clause("LZ-074", "LZ-338")
@pytest.mark.parametrize("at", [0, 1, 2])
def test_the_marker_is_found_at_any_position(at: int) -> None:
    found = read(encoded(with_markers(pa.array([0, 1], pa.int8()), at)))
    assert found.marker.to_pylist() == [0, 1]
    assert found.data.column_names == ["id", "note"]


@pytest.mark.clause("LZ-087")
def test_the_marker_is_not_a_column_of_the_table() -> None:
    found = inspected(encoded(with_markers(pa.array([0], pa.int8()))))
    assert (found.schema.names, found.has_marker) == (["id", "note"], True)


@pytest.mark.clause("LZ-091")
def test_without_a_marker_every_row_is_an_insert() -> None:
    content = encoded({"id": [1, 2]})
    assert not inspected(content).has_marker
    assert read(content).marker.to_pylist() == [0, 0]


@pytest.mark.clause("LZ-094")
def test_without_a_marker_every_row_is_the_default_operation() -> None:
    found = read(encoded({"id": [1, 2]}), default=Marker.UPSERT)
    assert found.marker.to_pylist() == [4, 4]


def test_a_marker_in_the_file_prevails_over_the_default_operation() -> None:
    content = encoded(with_markers(pa.array([0, 2], pa.int8())))
    assert read(content, default=Marker.UPSERT).marker.to_pylist() == [0, 2]


@pytest.mark.clause("LZ-085", "LZ-347")
@pytest.mark.parametrize("bad", [3, 5, -1, 127])
def test_another_number_is_an_error_that_names_row_and_value(bad: int) -> None:
    error = fault(pa.array([0, 1, bad, bad], pa.int32()))
    assert (error.row, error.value) == (3, str(bad))
    assert (error.table, error.file, error.column) == (TABLE, FILE, MARKER_COLUMN)


@pytest.mark.clause("LZ-085")
@pytest.mark.parametrize("bad", ["3", "", " 1", "1 ", "+1", "01", "1.0", "I", "insert"])
def test_another_text_is_an_error_that_names_row_and_value(bad: str) -> None:
    error = fault(pa.array(["0", bad]))
    assert (error.row, error.value) == (2, bad)


@pytest.mark.clause("LZ-085")
@pytest.mark.parametrize("kind", [pa.int8(), pa.string()], ids=str)
def test_a_null_marker_is_an_error_that_names_the_row(kind: pa.DataType) -> None:
    error = fault(pa.array([None], kind))
    assert (error.row, error.value) == (1, None)
    assert "NULL" in error.what


@pytest.mark.parametrize("number", [2**8, 2**32 + 1, 2**63 - 1])
def test_a_large_number_is_not_truncated_to_a_marker(number: int) -> None:
    assert fault(pa.array([number], pa.int64())).value == str(number)


@pytest.mark.parametrize(
    "column",
    [pa.array([1.0]), pa.array([True]), pa.array([b"1"]), pa.array([None]), pa.array([[1]])],
    ids=lambda column: str(column.type),
)
def test_a_marker_of_another_type_is_refused(column: pa.Array) -> None:
    with pytest.raises(UnknownMarker, match="expected an integer or text"):
        markers(column, table=TABLE, file=FILE)


@pytest.mark.clause("LZ-086")
@pytest.mark.parametrize("name", ["__rowmarker__", "__RowMarker__", "__ROWMARKER__"])
def test_a_misspelt_marker_is_an_error(name: str) -> None:
    with pytest.raises(MisspeltMarker) as caught:
        inspected(encoded({"id": [1], name: pa.array([2], pa.int8())}))
    assert caught.value.column == name


@pytest.mark.clause("LZ-086")
def test_a_misspelt_marker_next_to_the_correct_one_is_an_error() -> None:
    with pytest.raises(MisspeltMarker):
        inspected(encoded({MARKER_COLUMN: [0], "__rowmarker__": [0]}))


def test_two_marker_columns_are_an_error() -> None:
    table = pa.Table.from_arrays([pa.array([0]), pa.array([2])], names=[MARKER_COLUMN] * 2)
    with pytest.raises(UnsupportedColumn):
        inspected(encoded(table))


@given(st.lists(st.sampled_from([*KNOWN, 3, None]), max_size=20), st.sampled_from(INTEGERS))
def test_the_first_bad_row_is_named(found: list[int | None], kind: pa.DataType) -> None:
    bad = [row for row, marker in enumerate(found, start=1) if marker not in KNOWN]
    column = pa.array(found, kind)
    if not bad:
        assert markers(column, table=TABLE, file=FILE).to_pylist() == found
    else:
        with pytest.raises(UnknownMarker) as caught:
            markers(column, table=TABLE, file=FILE)
        assert caught.value.row == bad[0]
