"""Tables: made, made anew, several in one call, and loaded from files without markers."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from mirrorlake.errors import (
    BadFile,
    BadValue,
    KeyedChangeWithoutKey,
    TableError,
    UnknownMarker,
)
from mirrorlake.mirror.engine import AlreadyApplied, Applied, Counts, Failed
from mirrorlake.model import types
from mirrorlake.model.change import MARKER_COLUMN, Marker
from mirrorlake.model.table import Schema
from tests.conformance.mirrored import GENERATION, File, Mirrored, marked
from tests.histories import KEYLESS, Shape, counted

INSERT, UPDATE, DELETE, UPSERT = Marker.INSERT, Marker.UPDATE, Marker.DELETE, Marker.UPSERT
Make = Callable[..., Mirrored]

OTHER_GENERATION = "0b7e9c1e-1111-4222-8333-944445555666"

TROUBLE = {
    "marker": (["a"], pa.table({"a": [1, 2], MARKER_COLUMN: [0, 3]}), UnknownMarker, 2),
    "no key": ([], pa.table({"a": [1, 2], MARKER_COLUMN: [0, 2]}), KeyedChangeWithoutKey, 2),
    "value": (["a"], pa.table({"a": pa.array([2**63], pa.uint64())}), BadValue, None),
    "bad file": (["a"], b"PAR1 and then nothing", BadFile, None),
    "empty file": (["a"], b"", BadFile, None),
}
"""By name: the key of a table, a file that it cannot take, the error and the row that it names."""


class TableContract:
    """A table is made once, and its trouble is no other table's."""

    @pytest.mark.clause("CF-142")
    def test_the_feed_is_on_from_version_0(self, orders: Mirrored) -> None:
        orders.apply([(INSERT, (1, "a", "x"))])
        feed = orders.reader.feed(orders.path)
        assert list(feed) == [1]

    def test_a_table_that_is_there_is_not_made_again(self, orders: Mirrored) -> None:
        orders.apply([(INSERT, (1, "a", "x"))])
        orders.create(generation=OTHER_GENERATION)
        assert orders.engine.progress(orders.path).generation == GENERATION
        assert orders.rows() == [(1, "a", "x")]

    @pytest.mark.parametrize(
        "shape",
        [
            Shape.of(["id"], id=types.LONG, name=types.STRING, note=types.STRING),
            Shape.of(["id"], id=types.STRING, other=types.DATE),
            Shape.of(["a b"], **{"a b": types.LONG, "note": types.BINARY}),
        ],
        ids=["same columns", "other columns", "column mapping"],
    )
    def test_a_table_made_anew_begins_with_file_1(self, orders: Mirrored, shape: Shape) -> None:
        orders.apply([(INSERT, (1, "a", "x"))])
        orders.apply([(INSERT, (2, "b", "y"))])
        orders.shape, orders.recorded = shape, 0
        orders.create(replace=True, generation=OTHER_GENERATION)
        progress = orders.engine.progress(orders.path)
        assert (progress.generation, progress.recorded) == (OTHER_GENERATION, 0)
        assert progress.schema == Schema.of(list(shape.schema))
        row = tuple(None for _ in shape.schema)
        orders.apply([(INSERT, row)])
        assert orders.rows() == [row]

    def test_a_table_with_column_mapping_can_be_made_anew(self, make: Make) -> None:
        table = make(Shape.of(["a b"], **{"a b": types.LONG, "note": types.BINARY}))
        table.apply([(INSERT, (1, b"a"))])
        table.shape, table.recorded = Shape.of(["a b"], **{"a b": types.STRING}), 0
        table.create(replace=True, generation=OTHER_GENERATION)
        table.apply([(INSERT, ("x",))])
        assert table.rows() == [("x",)]

    # -- several tables -----------------------------------------------------------------------

    def test_outcomes_stand_in_the_order_of_the_steps(self, make: Make) -> None:
        shape = Shape.of(["id"], id=types.LONG, n=types.LONG)
        tables = [make(shape, f"Tables/t{n}") for n in range(4)]
        tables[1].apply([(INSERT, (0, 0))])
        steps = [t.step([(INSERT, (n, n)) for n in range(k)]) for k, t in enumerate(tables, 1)]
        steps[2] = tables[2].step(b"no Parquet")
        tables[1].recorded = 0
        steps[1] = tables[1].step([(INSERT, (0, 0))])
        outcomes = tables[0].engine.apply(steps, lambda: None)
        kinds = [type(outcome) for outcome in outcomes]
        assert kinds == [Applied, AlreadyApplied, Failed, Applied]
        assert [o.counts.insert for o in outcomes if isinstance(o, Applied)] == [1, 4]

    @pytest.mark.clause("LZ-259", "LZ-267")
    @pytest.mark.parametrize(("key", "file", "error", "row"), TROUBLE.values(), ids=TROUBLE)
    def test_a_table_that_fails_leaves_the_others_applied_and_names_the_place(
        self, make: Make, key: list[str], file: File, error: type[TableError], row: int | None
    ) -> None:
        good = make(KEYLESS, "Tables/good")
        bad = make(Shape(KEYLESS.schema, tuple(key)), "Tables/bad")
        steps = [bad.step([(INSERT, (1, "a"))], file), good.step([(INSERT, (1, "a"))])]
        failed, applied = good.engine.apply(steps, lambda: None)
        assert isinstance(applied, Applied)
        assert isinstance(failed, Failed)
        assert type(failed.error) is error
        assert (failed.error.table, failed.error.row) == ("bad", row)
        assert failed.error.file == "00000000000000000002.parquet"
        assert (good.rows(), bad.rows()) == ([(1, "a")], [])

    # -- files without markers ----------------------------------------------------------------

    @pytest.mark.clause("LZ-091")
    def test_a_file_without_markers_is_inserted(self, orders: Mirrored) -> None:
        file = orders.shape.arrow([(1, "a", "x")])
        orders.apply(file)
        orders.apply(file)
        assert orders.rows() == [(1, "a", "x")] * 2

    @pytest.mark.clause("LZ-094", "LZ-105")
    def test_a_file_without_markers_is_upserted_where_that_is_the_default(
        self, orders: Mirrored
    ) -> None:
        orders.apply(orders.shape.arrow([(1, "a", "x")]), default=UPSERT)
        orders.apply(orders.shape.arrow([(1, "b", "y")]), default=UPSERT)
        assert orders.rows() == [(1, "b", "y")]

    def test_the_files_of_a_load_are_one_commit(self, orders: Mirrored) -> None:
        files = [orders.shape.arrow([(n, "a", "x"), (n + 10, "b", "y")]) for n in range(5)]
        applied = orders.apply(*files, is_load=True)
        assert applied.counts == Counts(insert=10)
        assert sorted(row[0] for row in orders.rows()) == [*range(5), *range(10, 15)]

    @pytest.mark.clause("LZ-260")
    def test_rows_of_a_load_are_found_by_later_changes(self, orders: Mirrored) -> None:
        orders.apply(orders.shape.arrow([(n, "a", "x") for n in range(6)]), is_load=True)
        orders.apply(marked(pa.table({"id": [0, 1, 2]}), DELETE))
        orders.apply([(UPDATE, (3, "b", "y")), (UPSERT, (4, "c", "z"))])
        assert counted(orders.rows()) == counted([(3, "b", "y"), (4, "c", "z"), (5, "a", "x")])
