"""Types and columns by their Delta names."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.model.arrow import arrow_schema, arrow_type, contiguous, nullable_schema
from mirrorlake.model.table import Column, Schema, TableId
from mirrorlake.model.types import INTEGER, STRING, DataType, decimal

decimals = st.integers(1, 38).flatmap(
    lambda precision: st.builds(decimal, st.just(precision), st.integers(0, precision))
)
data_types = st.sampled_from(sorted(DataType.SIMPLE)).map(DataType) | decimals


class TestDataType:
    @given(data_types)
    def test_a_type_is_read_as_printed(self, data_type: DataType) -> None:
        assert DataType.parse(str(data_type)) == data_type

    def test_a_decimal_prints_precision_and_scale(self) -> None:
        assert str(decimal(20, 0)) == "decimal(20,0)"

    @pytest.mark.parametrize(
        "text", ["", "text", "STRING", "decimal", "decimal(1)", "timestamp_ntz"]
    )
    def test_other_names_are_not_types(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"unknown type|invalid decimal"):
            DataType.parse(text)

    @pytest.mark.parametrize(("precision", "scale"), [(0, 0), (39, 0), (3, 4), (3, -1)])
    def test_a_decimal_that_delta_cannot_hold_is_refused(self, precision: int, scale: int) -> None:
        with pytest.raises(ValueError, match="invalid decimal"):
            decimal(precision, scale)

    def test_a_timestamp_is_an_instant_in_microseconds(self) -> None:
        assert arrow_type(DataType("timestamp")) == pa.timestamp("us", "UTC")

    @given(data_types, data_types)
    def test_different_types_have_different_arrow_types(
        self, one: DataType, other: DataType
    ) -> None:
        assert (arrow_type(one) == arrow_type(other)) == (one == other)


class TestSchema:
    SCHEMA = Schema.of([Column("id", INTEGER, nullable=False), Column("Id", STRING)])

    def test_columns_are_found_by_their_exact_name(self) -> None:
        assert self.SCHEMA["Id"].type == STRING

    def test_a_name_that_is_not_there_is_a_key_error(self) -> None:
        assert "ID" not in self.SCHEMA
        with pytest.raises(KeyError):
            self.SCHEMA["ID"]

    def test_a_name_occurs_once(self) -> None:
        with pytest.raises(ValueError, match="occurs twice"):
            Schema.of([Column("id", INTEGER), Column("id", STRING)])

    def test_the_arrow_schema_keeps_order_and_nullability(self) -> None:
        expected = pa.schema([pa.field("id", pa.int32(), nullable=False), pa.field("Id", "string")])
        assert arrow_schema(self.SCHEMA) == expected

    def test_in_rows_of_deletes_every_column_may_be_null(self) -> None:
        assert all(field.nullable for field in nullable_schema(self.SCHEMA))


class TestTableId:
    @pytest.mark.parametrize("text", ["orders", "sales.orders", '"a.b".orders'])
    def test_a_name_prints_as_it_was_read(self, text: str) -> None:
        assert str(TableId.parse(text)) == text

    def test_the_last_point_ends_the_schema(self) -> None:
        assert TableId.parse("a.b.orders") == TableId("a.b", "orders")

    def test_tables_sort_by_schema_and_name(self) -> None:
        found = [TableId("b", "a"), TableId("", "z"), TableId("a", "b"), TableId("a", "a")]
        assert [str(table) for table in sorted(found)] == ["z", "a.a", "a.b", "b.a"]


class TestContiguous:
    @pytest.mark.parametrize("chunks", [[], [[1, 2]], [[1], [], [2]]])
    def test_chunks_become_one_array(self, chunks: list[list[int]]) -> None:
        array = contiguous(pa.chunked_array(chunks, pa.int32()))
        assert isinstance(array, pa.Int32Array)
        assert array.to_pylist() == [value for chunk in chunks for value in chunk]
