"""What rows must bring with them: their key, and the columns that were declared non-null."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from mirrorlake.errors import (
    FileTooLarge,
    KeyColumnMissing,
    NullKey,
    SchemaMergeFailure,
    TableError,
)
from mirrorlake.mirror.engine import Failed
from mirrorlake.mirror.row_checks import RowChecks
from mirrorlake.model import types
from mirrorlake.model.change import MARKER_COLUMN, Marker
from mirrorlake.model.table import Column
from tests.conformance.mirrored import File, Mirrored, marked
from tests.histories import Shape, counted

INSERT, UPDATE, DELETE = Marker.INSERT, Marker.UPDATE, Marker.DELETE
Make = Callable[..., Mirrored]

STRICT = RowChecks(strict_keys=True)


def refused(table: Mirrored, file: File, **more: RowChecks) -> TableError:
    """The error of a file, of which nothing must have been applied."""
    before = table.rows()
    outcome = table.run(table.step(file, **more))
    assert isinstance(outcome, Failed), outcome
    assert isinstance(outcome.error, TableError)
    assert table.rows() == before
    assert outcome.error.file == f"{table.recorded + 1:020d}.parquet"
    return outcome.error


class DemandContract:
    """A file that lacks what its rows need is refused whole."""

    @pytest.fixture
    def named(self, make: Make) -> Mirrored:
        """A table whose first file declared the column name as non-null, with one row."""
        shape = Shape.of(["id"], id=types.LONG, name=types.STRING, note=types.STRING)
        table = make(shape, "Tables/named").create(replace=True, required=("name",))
        table.apply([(INSERT, (1, "a", "x"))])
        return table

    @pytest.mark.clause("LZ-219")
    def test_what_was_declared_non_null_is_remembered_and_nullable(
        self, named: Mirrored, new_engine: Callable
    ) -> None:
        progress = new_engine().progress(named.path)
        assert progress.required == ("name",)
        assert [column.nullable for column in progress.schema] == [True] * 3
        named.apply([(INSERT, (2, None, None))])
        assert counted(named.rows()) == counted([(1, "a", "x"), (2, None, None)])

    @pytest.mark.clause("LZ-219")
    def test_it_is_remembered_when_columns_are_added(self, named: Mirrored) -> None:
        named.add_columns(Column("more", types.LONG))
        assert named.engine.progress(named.path).required == ("name",)

    @pytest.mark.clause("LZ-217")
    @pytest.mark.parametrize("marker", [INSERT, UPDATE])
    def test_a_file_without_a_column_that_is_not_nullable_is_refused(
        self, named: Mirrored, marker: Marker
    ) -> None:
        error = refused(named, marked(pa.table({"id": [1], "note": ["y"]}), marker))
        assert type(error) is SchemaMergeFailure
        assert error.column == "name"

    @pytest.mark.clause("LZ-217")
    def test_a_file_without_a_nullable_column_is_applied(self, named: Mirrored) -> None:
        named.apply(marked(pa.table({"id": [1], "name": ["b"]})))
        assert named.rows() == [(1, "b", None)]

    @pytest.mark.clause("LZ-103", "LZ-218")
    def test_a_file_of_deletions_may_lack_every_other_column(self, named: Mirrored) -> None:
        named.apply(marked(pa.table({"id": [1]}), DELETE))
        assert named.rows() == []

    @pytest.mark.clause("LZ-217", "LZ-218")
    def test_a_file_of_more_than_deletions_may_not(self, named: Mirrored) -> None:
        file = pa.table({"id": [1, 2], MARKER_COLUMN: [2, 4]})
        assert type(refused(named, file)) is SchemaMergeFailure

    def test_a_file_without_rows_lacks_nothing(self, named: Mirrored) -> None:
        named.apply(pa.table({"note": pa.array([], pa.string())}))
        assert named.rows() == [(1, "a", "x")]

    # -- keys ---------------------------------------------------------------------------------

    @pytest.mark.clause("LZ-046", "LZ-218")
    @pytest.mark.parametrize("marker", [INSERT, DELETE])
    def test_a_file_without_a_key_column_is_refused(self, orders: Mirrored, marker: Marker) -> None:
        orders.apply([(INSERT, (None, "a", "x"))])
        error = refused(orders, marked(pa.table({"name": ["a"]}), marker))
        assert type(error) is KeyColumnMissing
        assert error.column == "id"

    @pytest.mark.clause("LZ-257")
    @pytest.mark.parametrize("marker", list(Marker))
    def test_a_null_key_is_an_error_where_keys_are_strict(
        self, orders: Mirrored, marker: Marker
    ) -> None:
        rows = [(marker, (1, "a", "x")), (marker, (None, "b", "y"))]
        error = refused(orders, rows, row_checks=STRICT)
        assert type(error) is NullKey
        assert (error.row, error.column) == (2, "id")

    @pytest.mark.clause("LZ-257")
    def test_strict_keys_without_null_are_applied(self, orders: Mirrored) -> None:
        orders.apply([(INSERT, (1, None, None))], row_checks=STRICT)
        assert orders.rows() == [(1, None, None)]

    # -- size ---------------------------------------------------------------------------------

    def test_a_file_that_takes_too_much_memory_is_refused(self, orders: Mirrored) -> None:
        wide = [(INSERT, (1, "a" * 5_000, "x"))]
        error = refused(orders, wide, row_checks=RowChecks(file_bytes=4_000))
        assert type(error) is FileTooLarge
        orders.apply(wide, row_checks=replace(RowChecks(), file_bytes=8_000))
        assert len(orders.rows()) == 1
