"""Independent readers see the rows and the feed that we wrote."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from math import isfinite
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlake.model import types
from tests.delta.handmade import HandmadeTable
from tests.delta.lookup.test_key_lookup import filled
from tests.delta.readers import (
    feed_by_delta_rs,
    rows_by_delta_rs,
    rows_by_duckdb,
    rows_by_view,
)
from tests.delta.write.test_rewrite import net_of
from tests.histories import VALUES, Shape, counted, histories
from tests.profiles import tries
from tests.reference import Row

ORDERED = Shape.of(
    ["long"],
    long=types.LONG,
    byte=types.BYTE,
    double=types.DOUBLE,
    string=types.STRING,
    decimal=types.decimal(12, 2),
    date=types.DATE,
    timestamp=types.TIMESTAMP,
)
# A reader may take 0.0 and -0.0 for one value or for two, and has its own place for NaN.
ORDINARY = {
    column.name: [
        value
        for value in VALUES[column.type.name]
        if not isinstance(value, float) or (value and isfinite(value))
    ]
    for column in ORDERED.schema
}
ROW = st.tuples(*(st.sampled_from(values) for values in ORDINARY.values()))
MOMENT = {
    rows_by_delta_rs: "arrow_cast('{}', 'Timestamp(Microsecond, Some(\"UTC\"))')",
    rows_by_duckdb: "timestamptz '{}'",
    rows_by_view: "timestamptz '{}'",
}


@settings(max_examples=tries(40))
@given(histories())
def test_others_and_views_see_the_rows_of_a_history(history) -> None:
    shape, landings = history
    with tempfile.TemporaryDirectory() as folder:
        table = HandmadeTable(Path(folder, "t"), shape.schema)
        for landing in landings:
            table.apply(net_of(shape, landing))
        assert counted(rows_by_delta_rs(table.path)) == counted(table.rows())
        assert counted(rows_by_duckdb(table.path)) == counted(table.rows())
        assert counted(rows_by_view(table.path)) == counted(table.rows())


@settings(max_examples=tries(40))
@given(histories())
def test_delta_rs_sees_the_feed_of_a_history(history) -> None:
    shape, landings = history
    with tempfile.TemporaryDirectory() as folder:
        table = HandmadeTable(Path(folder, "t"), shape.schema)
        for landing in landings:
            table.apply(net_of(shape, landing))
        versions = range(1, table.log.snapshot().version + 1)
        ours = {version: feed for version in versions if (feed := table.feed(version))}
        assert feed_by_delta_rs(table.path) == ours


@settings(max_examples=tries(20))
@given(histories())
def test_they_see_the_rows_of_a_table_with_column_mapping(history) -> None:
    shape, landings = history
    with tempfile.TemporaryDirectory() as folder:
        table = HandmadeTable(Path(folder, "t"), shape.schema, mapped=True)
        for landing in landings:
            table.apply(net_of(shape, landing))
        assert counted(rows_by_duckdb(table.path)) == counted(table.rows())
        assert counted(rows_by_view(table.path)) == counted(table.rows())
        assert counted(rows_by_delta_rs(table.path)) == counted(table.rows())


@st.composite
def filters(draw: st.DrawFn) -> tuple[str, str, Any]:
    column = draw(st.sampled_from(ORDERED.schema.names))
    value = draw(st.sampled_from([value for value in ORDINARY[column] if value is not None]))
    return column, draw(st.sampled_from(["=", "<", "<=", ">", ">="])), value


def literal(value: Any, moment: str) -> str:
    match value:
        case str():
            return "'" + value.replace("'", "''") + "'"
        case datetime():
            return moment.format(value.astimezone(UTC).isoformat())
        case date():
            return f"date '{value}'"
        case Decimal():
            return f"cast('{value}' as decimal(12, 2))"
        case float():
            return f"cast('{value}' as double)"
        case _:
            return f"cast('{value}' as bigint)"


@pytest.mark.parametrize("read", [rows_by_delta_rs, rows_by_duckdb, rows_by_view])
@settings(max_examples=tries(30))
@given(
    files=st.lists(st.lists(ROW, min_size=1, max_size=3), min_size=2, max_size=5),
    wanted=st.lists(filters(), min_size=1, max_size=5),
)
def test_readers_skip_no_file_that_has_a_wanted_row(
    read: Callable[..., list[Row]], files, wanted
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        told, untold = (HandmadeTable(Path(folder, n), ORDERED.schema) for n in ("a", "b"))
        filled(told, ORDERED, [(rows, [0] if len(rows) > 1 else []) for rows in files])
        filled(untold, ORDERED, [(rows, []) for rows in files])
        gone = [rows[0] for rows in files if len(rows) > 1]
        for add in untold.files:
            untold.commit([{"add": {**add, "stats": None}}])
        for column, operator, value in wanted:
            condition = f'"{column}" {operator} {literal(value, MOMENT[read])}'
            found, every = (
                counted(read(told.path, condition)),
                counted(read(untold.path, condition)),
            )
            assert every - counted(gone) <= found <= every
