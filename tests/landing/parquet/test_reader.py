"""Landed Parquet files as a whole: what the footer tells, columns by name, damage."""

from __future__ import annotations

import io
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.errors import BadFile, BadValue, FileTooLarge, UnsupportedColumn
from mirrorlake.landing.parquet import unchanged as masks
from mirrorlake.landing.parquet.reader import Rows, match_columns, read_blocks
from mirrorlake.model import types
from mirrorlake.model.change import MARKER_COLUMN, UNCHANGED_COLUMN, Marker
from mirrorlake.model.landed import FileKind, Footer
from mirrorlake.model.table import Column, Schema
from tests.landing.files import FILE, TABLE, encoded, inspected, read

FOOTER = Footer("stream", FileKind.CHANGES, "0/1:1", "0/2:3", complete=False, rows={"0": 2})
GOOD = encoded({"id": [1, 2, 3], "note": ["a", "b", "c"]}, compression="none")


class TestInspection:
    def test_it_counts_the_rows(self) -> None:
        assert inspected(GOOD).rows == 3

    def test_it_counts_the_rows_of_all_row_groups(self) -> None:
        assert inspected(encoded({"id": range(10)}, row_group_size=3)).rows == 10

    @pytest.mark.clause("LZ-143", "LZ-146")
    def test_columns_and_types_are_read_from_the_file(self) -> None:
        found = inspected(GOOD).schema
        assert found == Schema.of([Column("id", types.LONG), Column("note", types.STRING)])

    @pytest.mark.clause("LZ-219")
    def test_columns_are_nullable_where_the_file_says_so(self) -> None:
        fields = [pa.field("id", pa.int64(), nullable=False), pa.field("note", pa.string())]
        content = encoded(pa.table({"id": [1], "note": ["a"]}, schema=pa.schema(fields)))
        assert [column.nullable for column in inspected(content).schema] == [False, True]

    def test_the_size_is_that_in_memory_if_values_are_encoded(self) -> None:
        assert inspected(encoded({"id": [7] * 100_000})).size >= 800_000

    def test_the_size_is_that_before_compression(self) -> None:
        content = encoded({"note": ["x" * 100] * 1_000}, compression="zstd", use_dictionary=False)
        assert inspected(content).size > 100_000 > len(content)

    def test_our_footer_is_read(self) -> None:
        assert inspected(encoded({"id": [1]}, FOOTER)).footer == FOOTER

    def test_a_file_of_another_publisher_has_no_footer(self) -> None:
        assert inspected(GOOD).footer is None

    def test_a_footer_of_a_later_format_is_refused_by_its_name(self) -> None:
        facts = FOOTER.encode() | {"mirrorlake.format": "2"}
        with pytest.raises(BadFile, match="format 2;"):
            inspected(encoded(pa.table({"id": [1]}).replace_schema_metadata(facts)))

    def test_a_damaged_footer_is_refused(self) -> None:
        facts = FOOTER.encode() | {"mirrorlake.rows": "[]"}
        with pytest.raises(BadFile):
            inspected(encoded(pa.table({"id": [1]}).replace_schema_metadata(facts)))

    def test_reserved_columns_are_reported_and_are_not_data(self) -> None:
        found = inspected(encoded({"id": [1], UNCHANGED_COLUMN: [b"\1"], MARKER_COLUMN: [1]}))
        assert (found.schema.names, found.has_unchanged, found.has_marker) == (["id"], True, True)


class TestColumns:
    TARGET = Schema.of([Column("id", types.LONG), Column("note", types.STRING)])

    @pytest.mark.clause("LZ-156")
    def test_an_exact_name_comes_first(self) -> None:
        assert match_columns(["id", "ID"], ["ID", "id"]) == {"id": "id", "ID": "ID"}

    @pytest.mark.clause("LZ-156")
    def test_a_unique_name_except_for_case_comes_second(self) -> None:
        assert match_columns(["id"], ["Id", "note"]) == {"id": "Id"}

    @pytest.mark.clause("LZ-156")
    def test_two_names_that_differ_in_case_match_nothing(self) -> None:
        assert match_columns(["id"], ["ID", "Id"]) == {}

    def test_a_column_is_matched_once(self) -> None:
        assert match_columns(["id", "ID"], ["id"]) == {"id": "id"}

    @pytest.mark.clause("LZ-156")
    @pytest.mark.parametrize("names", [["id", "ID"], ["a", "a"], ["ab", "ab"], ["x", "b", "B"]])
    def test_columns_that_differ_only_in_case_are_an_error(self, names: list[str]) -> None:
        table = pa.Table.from_arrays([pa.array([1])] * len(names), names=names)
        with pytest.raises(UnsupportedColumn):
            inspected(encoded(table))

    def test_rows_have_the_columns_of_the_table_in_its_order(self) -> None:
        found = read(encoded({"NOTE": ["a"], "id": [1]}), self.TARGET)
        assert found.data.to_pylist() == [{"id": 1, "note": "a"}]

    @pytest.mark.clause("LZ-214")
    def test_a_column_that_the_file_lacks_is_null(self) -> None:
        found = read(encoded({"id": [1, 2]}), self.TARGET)
        assert found.data["note"].to_pylist() == [None, None]

    def test_columns_that_the_table_lacks_are_left_out(self) -> None:
        found = read(encoded({"id": [1], "note": ["a"], "more": [1]}), self.TARGET)
        assert found.data.column_names == ["id", "note"]

    def test_a_value_that_does_not_fit_the_table_is_refused(self) -> None:
        with pytest.raises(BadValue) as caught:
            read(encoded({"id": ["x"]}), self.TARGET)
        assert caught.value.column == "id"

    def test_names_may_contain_characters_that_need_mapping(self) -> None:
        names = ["a b", "c,d;e", "{f}", "(g)", "h\ti\nj=k"]
        assert inspected(encoded({name: [1] for name in names})).schema.names == names

    def test_masks_are_over_the_columns_of_the_file(self) -> None:
        mask = masks.packed(np.array([[False, True]]))
        found = read(encoded({"note": ["a"], "id": [1], UNCHANGED_COLUMN: mask}), self.TARGET)
        assert found.names == ("note", "id")
        assert found.unchanged.to_pylist() == [b"\2"]


class TestFiles:
    @pytest.mark.clause("LZ-145")
    @pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd"])
    def test_files_may_be_compressed(self, codec: str) -> None:
        found = read(encoded({"id": [1, 2], "note": ["a", None]}, compression=codec))
        assert found.data.to_pylist() == [{"id": 1, "note": "a"}, {"id": 2, "note": None}]

    @given(st.lists(st.integers(0, 100), max_size=30), st.integers(1, 7))
    def test_rows_keep_their_order(self, values: list[int], group: int) -> None:
        content = encoded({"id": pa.array(values, pa.int64())}, row_group_size=group)
        assert read(content).data["id"].to_pylist() == values

    def test_a_file_without_rows_is_valid(self) -> None:
        content = encoded({"id": pa.array([], pa.int32())})
        found = read(content)
        assert (inspected(content).rows, found.data.num_rows, len(found.marker)) == (0, 0, 0)

    @pytest.mark.clause("LZ-276")
    def test_a_file_of_zero_bytes_is_an_error(self) -> None:
        with pytest.raises(BadFile, match="Parquet file size is 0 bytes"):
            inspected(b"")

    @pytest.mark.clause("LZ-276")
    @pytest.mark.parametrize("left", [1, 4, len(GOOD) // 2, len(GOOD) - 1])
    def test_an_incomplete_file_is_an_error_that_names_it(self, left: int) -> None:
        with pytest.raises(BadFile) as caught:
            inspected(GOOD[:left])
        assert (caught.value.table, caught.value.file) == (TABLE, FILE)

    @pytest.mark.parametrize("content", [b"id,note\n1,a\n", b"{}", b"PAR1PAR1", bytes(100)])
    def test_a_file_that_is_not_parquet_is_an_error(self, content: bytes) -> None:
        with pytest.raises(BadFile):
            inspected(content)

    def test_a_file_with_too_many_bytes_is_refused_while_it_is_read(self) -> None:
        content = encoded({"note": ["x" * 1_000] * 200_000})
        assert inspected(content).size < 10_000_000 < len("x" * 1_000) * 200_000
        with pytest.raises(FileTooLarge):
            read(content, most=10_000_000)

    def test_damage_in_the_middle_of_a_file_is_an_error(self) -> None:
        damaged = GOOD[:4] + b"\xff" * 60 + GOOD[64:]
        with pytest.raises(BadFile):
            read(damaged, inspected(GOOD).schema)


NAMES = ["id", "note", "a", "a.b"]


def pieces_of(content: bytes, target: Schema, only: list[str]) -> list[Rows]:
    """The pieces of all columns, or of some."""
    facts = {"table": TABLE, "file": FILE, "only": only}
    return list(read_blocks(io.BytesIO(content), len(content), target, Marker.INSERT, **facts))


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (["id"], ["id"]),
        (["note", "id"], ["note", "id"]),
        (["ID"], ["id"]),
        (["a"], ["a"]),
        (["a.b"], ["a.b"]),
        (["absent", "id"], ["id"]),
    ],
)
def test_only_the_requested_columns_are_read(wanted: list[str], names: list[str]) -> None:
    """With the marker, and the masks of a file that has some; a name with a dot is no path."""
    columns = {name: pa.array([f"{name} {n}" for n in range(5)]) for name in NAMES}
    marker = pa.array([0, 1, 2, 4, 4], pa.int8())
    file = encoded(pa.table({**columns, MARKER_COLUMN: marker}), row_group_size=2)
    target = Schema.of([Column(n, types.STRING) for n in dict.fromkeys([*wanted, *NAMES[1:]])])
    found = pieces_of(file, target, wanted)
    assert pa.chunked_array([rows.marker for rows in found]).to_pylist() == marker.to_pylist()
    assert {rows.names for rows in found} == {tuple(names)}
    data = pa.concat_tables([rows.data for rows in found])
    assert data.column_names == wanted
    whole = read(file, target).data
    assert data.equals(whole.select(wanted))


def test_masks_are_read_with_a_selection_of_columns() -> None:
    masked = pa.table(
        {"id": [1], "note": ["x"], UNCHANGED_COLUMN: masks.packed(np.array([[False, True]]))}
    )
    target = Schema.of([Column("id", types.LONG), Column("note", types.STRING)])
    (rows,) = pieces_of(encoded(masked), target, ["id"])
    assert rows.unchanged is not None


class TestChecksums:
    """GOOD is not compressed: a flipped bit of a value is another value."""

    @pytest.mark.clause("LZ-276")
    @pytest.mark.parametrize("value", [struct.pack("<q", 2), b"b"])
    def test_a_flipped_bit_of_a_value_is_an_error(self, value: bytes) -> None:
        assert GOOD.count(value) >= 1
        content = bytearray(GOOD)
        content[GOOD.index(value)] ^= 4
        with pytest.raises(BadFile, match="CRC checksum verification failed"):
            read(bytes(content))

    @pytest.mark.full
    def test_a_flipped_bit_of_a_long_value_is_an_error(self) -> None:
        """Of texts so long that the longest of the dictionary is looked for first."""
        content = bytearray(encoded({"note": ["x" * 5_000_000] * 200}, compression="none"))
        content[content.index(b"xxx")] ^= 1
        with pytest.raises(BadFile, match="CRC checksum verification failed"):
            read(bytes(content))

    def test_a_file_without_checksums_is_read(self) -> None:
        content = encoded({"id": [1]}, write_page_checksum=False)
        assert read(content).data["id"].to_pylist() == [1]
