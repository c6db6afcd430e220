"""Columns: their types in the table, their names, and those that come and go."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.mirror.engine import Applied
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from mirrorlake.model.table import Column, Schema
from tests.conformance.mirrored import Mirrored, content, marked, shape_of
from tests.histories import VALUES, Shape, counted, rows_of

Make = Callable[..., Mirrored]

KEPT = [
    types.BOOLEAN,
    types.BYTE,
    types.SHORT,
    types.INTEGER,
    types.LONG,
    types.FLOAT,
    types.DOUBLE,
    types.decimal(12, 2),
    types.STRING,
    types.BINARY,
    types.DATE,
    types.TIMESTAMP,
]
MOMENTS = [(1, 1, 1), (1883, 11, 18, 12, 3, 58, 1), (2026, 3, 29, 2, 30, 0, 123456)]
NAMES = [
    *("a b", "a,b", "a;b", "{a}", "(a)", "a\nb", "a\tb", "a=b", " ", "a.b", 'quo"te', "it's"),
    *("back`tick", "per%20cent", "Größe", "_a", "filename", "file_row_number", "select", "x" * 200),
]
PATHS = [
    *("with space", "dot.ted", "quo'te\"d", "back`tick", "per%41cent", "Größe", "_leading"),
    *("a=b", "[x]", "st*r?", "{a,b}", "sch ema.x/and table"),
]


def mapping_of(table: Mirrored) -> str:
    """How Delta finds the columns of a table in its files, as the log says."""
    properties = TableLog(table.store.location(table.path)).snapshot().properties
    return properties.get("delta.columnMapping.mode", "none")


class ColumnContract:
    """Types are those of the specification, names may be any, columns only ever come."""

    @pytest.mark.clause("LZ-151")
    def test_every_simple_type_keeps_its_type_and_its_values(self, make: Make) -> None:
        columns = [Column(f"c{n}", kind) for n, kind in enumerate(KEPT)]
        shape = Shape(Schema.of([Column("id", types.LONG), *columns]), ("id",))
        most = max(map(len, VALUES.values()))
        rows = [
            (n, *(VALUES[kind.name][n % len(VALUES[kind.name])] for kind in KEPT))
            for n in range(most)
        ]
        file = marked(shape.arrow(rows))
        table = make(shape_of(file, ["id"]))
        table.apply(file)
        assert [column.type for column in table.engine.progress(table.path).schema][1:] == KEPT
        assert counted(table.rows()) == counted(rows)

    @pytest.mark.clause("LZ-152")
    @pytest.mark.parametrize("as_int96", [False, True], ids=["without zone", "INT96"])
    def test_a_moment_without_a_zone_is_utc(self, make: Make, as_int96: bool) -> None:
        options: dict[str, Any] = {"use_deprecated_int96_timestamps": as_int96}
        moments = [datetime(*moment, tzinfo=UTC) for moment in MOMENTS]
        at = pa.array(moments, pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))
        file = marked(pa.table({"id": [0, 1, 2], "at": at}))
        shape = shape_of(file, ["id"], **options)
        table = make(shape)
        table.apply(content(file, **options))
        assert shape.schema["at"].type == types.TIMESTAMP
        assert table.engine.progress(table.path).schema["at"].type == types.TIMESTAMP
        assert sorted(row[1] for row in table.rows()) == moments

    @pytest.mark.clause("LZ-153")
    @pytest.mark.parametrize("kind", [pa.time32("ms"), pa.time64("us")], ids=str)
    def test_a_time_is_text(self, make: Make, kind: pa.DataType) -> None:
        file = marked(pa.table({"id": [1], "at": pa.array([time(1, 2, 3, 4000)], kind)}))
        table = make(shape_of(file, ["id"]))
        table.apply(file)
        ((_id, text),) = table.rows()
        assert time.fromisoformat(text) == time(1, 2, 3, 4000)

    @pytest.mark.clause("LZ-154")
    def test_an_unsigned_number_is_the_next_wider_signed_one(self, make: Make) -> None:
        kinds = {8: types.SHORT, 16: types.INTEGER, 32: types.LONG, 64: types.decimal(20, 0)}
        most = {f"u{n}": pa.array([2**n - 1], getattr(pa, f"uint{n}")()) for n in kinds}
        file = marked(pa.table({"id": [1], **most}))
        table = make(shape_of(file, ["id"]))
        table.apply(file)
        found = table.engine.progress(table.path).schema
        assert [found[f"u{n}"].type for n in kinds] == list(kinds.values())
        assert table.rows() == [(1, 255, 65_535, 2**32 - 1, Decimal(2**64 - 1))]

    def test_a_table_may_have_many_columns(self, make: Make) -> None:
        columns = [Column(f"c{n}", KEPT[n % len(KEPT)]) for n in range(150)]
        shape = Shape(Schema.of([*columns, Column("id", types.LONG)]), ("id",))
        rows = [
            (*(VALUES[c.type.name][n % len(VALUES[c.type.name])] for c in columns), n)
            for n in range(3)
        ]
        table = make(shape)
        table.apply([(Marker.INSERT, row) for row in rows])
        table.apply([(Marker.UPDATE, (*rows[2][:-1], 0))])
        assert counted(table.rows()) == counted([(*rows[2][:-1], 0), *rows[1:]])

    # -- names --------------------------------------------------------------------------------

    @pytest.mark.clause("LZ-157")
    def test_columns_may_have_any_name(self, make: Make) -> None:
        columns = [Column(name, types.STRING) for name in NAMES]
        shape = Shape(Schema.of([*columns, Column("id", types.LONG)]), ("a b", "id"))
        row = tuple(f"v{n}" for n in range(len(NAMES)))
        table = make(shape)
        table.apply([(Marker.INSERT, (*row, 1)), (Marker.INSERT, (*row, 2))])
        table.apply([(Marker.UPDATE, (row[0], *["new"] * (len(row) - 1), 1))])
        assert counted(table.rows()) == counted([(row[0], *["new"] * (len(row) - 1), 1), (*row, 2)])
        assert mapping_of(table) == "name"

    @pytest.mark.clause("LZ-157")
    def test_a_column_that_needs_mapping_may_come_later(self, orders: Mirrored) -> None:
        orders.apply([(Marker.INSERT, (1, "a", "x"))])
        assert mapping_of(orders) == "none"
        orders.add_columns(Column("a b,;{}()\n\t=", types.STRING))
        orders.apply([(Marker.INSERT, (2, "b", "y", "z"))])
        assert mapping_of(orders) == "name"
        assert counted(orders.rows()) == counted([(1, "a", "x", None), (2, "b", "y", "z")])

    @pytest.mark.parametrize("name", ["file_row_number", "filename", "rowid", "a.b", "q\"`'%"])
    def test_a_key_may_have_any_name(self, make: Make, name: str) -> None:
        shape = Shape(Schema.of([Column("v", types.LONG), Column(name, types.STRING)]), (name,))
        table = make(shape)
        table.apply([(Marker.INSERT, (1, "a")), (Marker.INSERT, (2, "b"))])
        table.apply([(Marker.UPDATE, (3, "a"))])
        assert counted(table.rows()) == counted([(3, "a"), (2, "b")])

    def test_tables_may_have_any_name(self, make: Make) -> None:
        shape = Shape.of(["id"], id=types.LONG, v=types.STRING)
        tables = [make(shape, f"Tables/{path}") for path in PATHS]
        for rows in ([(Marker.INSERT, (1, "a"))], [(Marker.UPDATE, (1, "b"))]):
            steps = [table.step(rows) for table in tables]
            for table, outcome in zip(
                tables, tables[0].engine.apply(steps, lambda: None), strict=True
            ):
                assert isinstance(outcome, Applied), (table.path, outcome)
                table.recorded += 1
        assert [table.rows() for table in tables] == [[(1, "b")]] * len(tables)

    @pytest.mark.parametrize("path", ["back`tick", "per%41cent's"])
    def test_columns_can_be_added_to_tables_of_any_name(self, make: Make, path: str) -> None:
        table = make(Shape.of(["id"], id=types.LONG), f"Tables/{path}")
        table.add_columns(Column("more", types.LONG))
        table.apply([(Marker.INSERT, (1, 2))])
        assert table.rows() == [(1, 2)]

    # -- columns that come and go -------------------------------------------------------------

    @pytest.mark.clause("LZ-213")
    def test_rows_from_before_a_column_have_null_in_it(self, orders: Mirrored) -> None:
        orders.apply([(Marker.INSERT, (1, "a", "x")), (Marker.INSERT, (2, "b", "y"))])
        orders.add_columns(Column("more", types.TIMESTAMP), Column("and more", types.BYTE))
        orders.apply([(Marker.UPDATE, (1, "c", "z", None, 5))])
        assert counted(orders.rows()) == counted(
            [(1, "c", "z", None, 5), (2, "b", "y", None, None)]
        )

    @pytest.mark.clause("LZ-214")
    def test_rows_of_a_file_without_a_column_have_null_in_it(self, orders: Mirrored) -> None:
        orders.apply([(Marker.INSERT, (1, "a", "x"))])
        orders.apply(marked(pa.table({"id": [2], "name": ["b"]})))
        assert counted(orders.rows()) == counted([(1, "a", "x"), (2, "b", None)])

    def test_the_images_of_a_row_from_before_a_column_have_null_in_it(
        self, orders: Mirrored
    ) -> None:
        orders.apply([(Marker.INSERT, (1, "a", "x"))])
        orders.add_columns(Column("more", types.LONG))
        applied = orders.apply([(Marker.UPDATE, (1, "b", "y", 7))])
        assert orders.feed(applied.version) == {
            ("update_preimage", (1, "a", "x", None)): 1,
            ("update_postimage", (1, "b", "y", 7)): 1,
        }

    def test_a_column_of_every_type_can_be_added(self, orders: Mirrored) -> None:
        orders.apply([(Marker.INSERT, (1, "a", "x"))])
        orders.add_columns(*(Column(f"c{n}", kind) for n, kind in enumerate(KEPT)))
        values = tuple(VALUES[kind.name][-1] for kind in KEPT)
        orders.apply([(Marker.INSERT, (2, "b", "y", *values))])
        nothing = (None,) * len(KEPT)
        assert counted(orders.rows()) == counted([(1, "a", "x", *nothing), (2, "b", "y", *values)])

    def test_columns_that_are_there_are_not_added_again(self, orders: Mirrored) -> None:
        before = orders.shape
        orders.add_columns(Column("more", types.LONG))
        version = orders.engine.progress(orders.path).version
        orders.shape = before
        orders.add_columns(Column("more", types.LONG))
        assert orders.engine.progress(orders.path).version == version

    def test_the_columns_of_a_file_may_stand_in_another_order(self, orders: Mirrored) -> None:
        file = pa.table({"note": ["x"], "id": [1], "name": ["a"]})
        orders.apply(marked(file))
        assert orders.rows() == rows_of(file.select(["id", "name", "note"]))
