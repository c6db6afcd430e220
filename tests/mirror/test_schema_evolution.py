"""Columns of files against columns of the table."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.errors import KeyColumnMissing, SchemaMergeFailure, UnsupportedColumn
from mirrorlake.mirror.schema_evolution import alteration, key_columns, merge, needs_mapping
from mirrorlake.mirror.steps import AlterColumns
from mirrorlake.model.change import ROW_POSITION, Alteration
from mirrorlake.model.table import Column, Schema, TableId
from mirrorlake.model.types import LONG, STRING, DataType
from tests.mirror.planning import columns

FILE = "00000000000000000017.parquet"
TYPES = [*sorted(DataType.SIMPLE), "decimal(10,2)"]

names = st.text("abcABC", min_size=1, max_size=3)
schemas = st.lists(names, max_size=5, unique_by=str.casefold).map(
    lambda found: columns(**dict.fromkeys(found, "string"))
)


def merged(known: Schema, found: Schema) -> Schema:
    return merge("sales.orders", known, found, FILE)


class TestMerge:
    @pytest.mark.clause("LZ-219")
    def test_added_columns_are_nullable_whatever_their_file_declares(self) -> None:
        strict = [Column(name, LONG, nullable=False) for name in ("id", "new")]
        united = merged(columns(id="long"), Schema.of(strict))
        assert [column.nullable for column in united] == [True, True]

    @pytest.mark.clause("LZ-211", "LZ-227")
    def test_new_columns_follow_at_the_end(self) -> None:
        known, found = columns(a="long", b="long"), columns(z="string", b="long", c="date")
        assert merged(known, found) == columns(a="long", b="long", z="string", c="date")

    @pytest.mark.clause("LZ-227")
    def test_the_first_file_gives_the_order(self) -> None:
        assert merged(Schema(()), columns(b="long", a="long")).names == ["b", "a"]

    @pytest.mark.clause("LZ-214", "LZ-215")
    def test_a_column_that_a_file_lacks_stays(self) -> None:
        known = columns(a="long", b="long")
        assert merged(known, columns(a="long")) == known

    @pytest.mark.clause("LZ-226")
    def test_a_renamed_column_is_a_new_one(self) -> None:
        assert merged(columns(old="long"), columns(new="long")) == columns(old="long", new="long")

    def test_added_columns_are_nullable(self) -> None:
        found = Schema.of([Column("a", DataType("long"), nullable=False)])
        assert all(column.nullable for column in merged(Schema(()), found))

    def test_metadata_columns_may_be_added_when_others_may_not(self) -> None:
        known, found = columns(a="long"), columns(a="long", **{ROW_POSITION: "string"})
        assert merge("sales.orders", known, found, FILE, grows=False) == found
        more = columns(a="long", **{ROW_POSITION: "string", "b": "long"})
        with pytest.raises(SchemaMergeFailure, match="new column b"):
            merge("sales.orders", known, more, FILE, grows=False)

    @pytest.mark.clause("LZ-156")
    def test_a_column_in_another_case_is_the_same(self) -> None:
        known = columns(Id="long")
        assert merged(known, columns(ID="long")) == known

    @given(st.lists(schemas, max_size=6))
    def test_a_column_occurs_once_at_its_first_position(self, found: list[Schema]) -> None:
        known, expected = Schema(()), []
        for one in found:
            known = merged(known, one)
            expected += [n for n in one.names if n.casefold() not in map(str.casefold, expected)]
        assert known.names == expected


class TestTypes:
    @pytest.mark.clause("LZ-221", "LZ-223")
    @pytest.mark.parametrize("incoming", TYPES)
    @pytest.mark.parametrize("existing", TYPES)
    def test_only_equal_types_can_be_merged(self, existing: str, incoming: str) -> None:
        if existing == incoming:
            assert merged(columns(c=existing), columns(c=incoming)) == columns(c=existing)
        else:
            with pytest.raises(SchemaMergeFailure):
                merged(columns(c=existing), columns(c=incoming))

    @pytest.mark.clause("LZ-221")
    @pytest.mark.parametrize("other", ["decimal(11,2)", "decimal(10,3)"])
    def test_a_decimal_keeps_precision_and_scale(self, other: str) -> None:
        with pytest.raises(SchemaMergeFailure):
            merged(columns(c="decimal(10,2)"), columns(c=other))

    @pytest.mark.clause("LZ-224")
    def test_the_error_names_column_both_types_and_file(self) -> None:
        with pytest.raises(SchemaMergeFailure) as caught:
            merged(columns(location="string"), columns(Location="integer"))
        error = caught.value
        assert error.code == "SchemaMergeFailure"
        assert error.what == (
            "Type mismatch for column 'location'. Incoming type: 'integer', existing type: 'string'"
        )
        assert (error.column, error.file) == ("location", FILE)


class TestNames:
    @pytest.mark.parametrize(
        "name", ["_change_type", "_commit_version", "_commit_timestamp", "_Change_Type"]
    )
    def test_the_columns_of_the_feed_are_reserved(self, name: str) -> None:
        with pytest.raises(UnsupportedColumn) as caught:
            merged(Schema(()), columns(**{name: "string"}))
        assert caught.value.column == name

    @pytest.mark.parametrize("name", ["__x", "__mirrorlake_other__", ""])
    def test_two_underscores_and_no_name_are_refused(self, name: str) -> None:
        with pytest.raises(UnsupportedColumn):
            merged(columns(id="long"), columns(**{name: "string"}))

    @pytest.mark.parametrize("name", ["_x", "x__", "größe", "select", "a.b", "`a`"])
    def test_other_names_are_accepted(self, name: str) -> None:
        assert merged(Schema(()), columns(**{name: "string"})).names == [name]

    @pytest.mark.clause("LZ-157")
    @pytest.mark.parametrize(
        "name", ["a b", "a,b", "a;b", "a{b", "a}", "(a", "a)", "a\nb", "a\tb", "a="]
    )
    def test_some_names_need_mapping(self, name: str) -> None:
        assert needs_mapping(columns(id="long", **{name: "string"}))

    def test_ordinary_names_need_no_mapping(self) -> None:
        assert not needs_mapping(columns(id="long", **{"größe.x-1": "string"}))


class TestKey:
    SCHEMA = columns(Id="long", region="string", note="string")

    def key(self, *wanted: str) -> tuple[str, ...]:
        return key_columns("sales.orders", wanted, self.SCHEMA, FILE)

    @pytest.mark.clause("LZ-032")
    def test_a_key_keeps_its_order(self) -> None:
        assert self.key("region", "Id") == ("region", "Id")

    @pytest.mark.clause("LZ-046", "LZ-156")
    def test_a_key_is_found_in_another_case(self) -> None:
        assert self.key("ID", "Region") == ("Id", "region")

    @pytest.mark.clause("LZ-046")
    def test_a_name_that_matches_no_column_is_an_error_that_names_it(self) -> None:
        with pytest.raises(KeyColumnMissing) as caught:
            self.key("Id", "number")
        assert caught.value.column == "number"

    def test_no_key_is_a_key_of_no_columns(self) -> None:
        assert self.key() == ()


def test_a_column_that_was_filled_and_then_got_another_type_is_null_where_that_does_not_fit() -> (
    None
):
    filled = Alteration(filled=pa.RecordBatch.from_pydict({"a": ["x"]}))
    altered = filled.then(Alteration(saved={"a": "a_before"}))
    known = Schema.of([Column("k", LONG), Column("a", STRING)])
    found = Schema.of([Column("k", LONG), Column("a", LONG)])
    schema = merge("t", known, found, "1.parquet", altered=altered)
    step = AlterColumns(TableId("s", "t"), "Tables/s/t", 1, {}, None, {})
    told = alteration(step, schema, known, altered)
    assert told is not None
    assert told.filled is not None
    assert told.filled.to_pylist() == [{"a": None}]
