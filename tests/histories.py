"""Random histories of a mirrored table, as publishers land them: batches of files of changes.

A value that the source did not send is landed only where the publisher may do so: on an update of
a key that has one row, and on the insert that directly follows the delete of such a key.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from mirrorlake.landing.parquet import reader as parquet
from mirrorlake.landing.parquet import unchanged as masks
from mirrorlake.model import types
from mirrorlake.model.arrow import arrow_type, nullable_schema
from mirrorlake.model.change import MARKER_COLUMN, UNCHANGED_COLUMN, Marker
from mirrorlake.model.table import Column, Schema
from mirrorlake.model.types import DataType
from tests.reference import UNCHANGED, Change, Row, Table, plain

NAN, INFINITY = float("nan"), float("inf")

VALUES: dict[str, list[Any]] = {
    "boolean": [None, True, False],
    "byte": [None, 0, -128, 127],
    "short": [None, 0, -(2**15), 2**15 - 1],
    "integer": [None, 0, -(2**31), 2**31 - 1],
    "long": [None, 0, -1, 2**63 - 1, -(2**63)],
    "float": [None, 0.0, -0.0, NAN, INFINITY, -INFINITY, 1.5, float(np.float32(0.1))],
    "double": [None, 0.0, -0.0, NAN, INFINITY, -INFINITY, 0.1, 5e-324, 1e300],
    "string": [
        None,
        "",
        " ",
        "a",
        "A",
        "a ",
        "é",
        "e\u0301",
        "'\"`\\%\n",
        "x" * 40,
        "\x85\u2028\U00020000",
    ],
    "binary": [None, b"", b"\0", b"a", b"a\0", b"\xff" * 40],
    "decimal": [None, Decimal("0.00"), Decimal("-1.10"), Decimal("9999999999.99")],
    "date": [None, date(1, 1, 1), date(1582, 10, 10), date(1970, 1, 1), date(9999, 12, 31)],
    "timestamp": [
        None,
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1883, 11, 18, 12, 3, 58, 1, tzinfo=UTC),
        datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC),
        datetime(2026, 3, 29, 1, 30, 0, 123999, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ],
}
"""Values of each type, the awkward ones first of all."""

DECIMAL = types.decimal(12, 2)


@dataclass(frozen=True)
class Shape:
    """A mirrored table: its columns, and the names of those that are its key."""

    schema: Schema
    key: tuple[str, ...]

    @classmethod
    def of(cls, key: Sequence[str], /, **columns: DataType) -> Shape:
        return cls(Schema.of([Column(name, kind) for name, kind in columns.items()]), tuple(key))

    @property
    def indexes(self) -> tuple[int, ...]:
        return tuple(self.schema.names.index(name) for name in self.key)

    def table(self) -> Table:
        """The model of the empty table."""
        return Table(self.indexes)

    def arrow(self, rows: Iterable[Row]) -> pa.Table:
        """Rows in the types of the table; a value that was not sent is NULL."""
        held = [[None if value == UNCHANGED else value for value in row] for row in rows]
        columns = [
            pa.array([row[index] for row in held], arrow_type(column.type))
            for index, column in enumerate(self.schema)
        ]
        return pa.table(columns, schema=nullable_schema(self.schema))

    def __repr__(self) -> str:
        return f"Shape({[f'{c.name} {c.type}' for c in self.schema]}, {self.key})"


def _keyed_by(kind: DataType) -> Shape:
    return Shape.of(["id"], id=kind, name=types.STRING, amount=DECIMAL, at=types.TIMESTAMP)


SHAPES = {
    **{
        kind.name: _keyed_by(kind)
        for kind in (
            types.LONG,
            types.STRING,
            types.BINARY,
            DECIMAL,
            types.DATE,
            types.TIMESTAMP,
            types.FLOAT,
            types.DOUBLE,
            types.BOOLEAN,
            types.BYTE,
        )
    },
    # The key in another order than the columns, and not first among them.
    "composite": Shape.of(["b", "a"], v=types.DOUBLE, a=types.LONG, w=types.BINARY, b=types.STRING),
    "floats": Shape.of(["x", "y"], x=types.DOUBLE, y=types.FLOAT, v=types.STRING, w=types.LONG),
}
KEYLESS = Shape.of([], a=types.LONG, b=types.STRING)


@dataclass(frozen=True)
class Landing:
    """One batch: the files that land after the table was emptied, if it was."""

    files: tuple[tuple[Change, ...], ...]
    truncate: bool = False

    @property
    def changes(self) -> list[Change]:
        return [change for file in self.files for change in file]


@st.composite
def histories(
    draw: st.DrawFn,
    shapes: Iterable[Shape] = (*SHAPES.values(), KEYLESS),
    batches: int = 3,
    files: int = 3,
    rows: int = 6,
    truncations: bool = True,
) -> tuple[Shape, list[Landing]]:
    """A table and what lands for it, at most so many batches of files of rows."""
    shape = draw(st.sampled_from(list(shapes)))
    table = shape.table()
    return shape, [
        _landing(draw, shape, table, files, rows, truncations=truncations)
        for _ in range(draw(st.integers(1, batches)))
    ]


@st.composite
def landings_of(
    draw: st.DrawFn, shape: Shape, table: Table, files: int = 3, rows: int = 6
) -> Landing:
    """What may land next for a table that holds these rows, which stay as they are.

    Every value is sent in half of the batches: others cannot be spread over many tasks.
    """
    held, sent = Table(table.key, list(table.rows)), draw(st.booleans())
    return _landing(draw, shape, held, files, rows, truncations=True, sent=sent)


def _landing(
    draw: st.DrawFn,
    shape: Shape,
    table: Table,
    files: int,
    rows: int,
    *,
    truncations: bool,
    sent: bool = False,
) -> Landing:
    """One batch, applied to the table."""
    truncate = truncations and draw(st.integers(0, 7)) == 0
    if truncate:
        table.truncate()
    landed = []
    for _ in range(draw(st.integers(1, files))):
        file: list[Change] = []
        for _ in range(draw(st.integers(0, rows))):
            step = _step(draw, shape, table, sent=sent)
            table.apply(step)
            file += step
        landed.append(tuple(file))
    return Landing(tuple(landed), truncate)


def _step(draw: st.DrawFn, shape: Shape, table: Table, *, sent: bool) -> list[Change]:
    """One change, or the two of a changed key, that the publisher may land for this table."""
    row = _row(draw, shape)
    if not shape.key:
        return [Change(Marker.INSERT, row)]
    kind = draw(st.sampled_from(["insert", "update", "upsert", "delete", "unchanged", "moved"]))
    if kind in {"unchanged", "moved"}:
        single = [old for old in table.rows if len(table.alike(old)) == 1]
        if not single:
            return [Change(Marker.UPSERT, row)]
        old = draw(st.sampled_from(single))
        keyed = old if kind == "unchanged" else row
        partial = _rekeyed(shape, row, keyed) if sent else _masked(draw, shape, row, keyed)
        if kind == "unchanged":
            return [Change(draw(st.sampled_from([Marker.UPDATE, Marker.UPSERT])), partial)]
        return [_delete(shape, old), Change(Marker.INSERT, partial)]
    if kind == "delete":
        return [draw(st.sampled_from([_delete(shape, row), Change(Marker.DELETE, row)]))]
    marker = {"insert": Marker.INSERT, "update": Marker.UPDATE, "upsert": Marker.UPSERT}[kind]
    return [Change(marker, row)]


def _row(draw: st.DrawFn, shape: Shape) -> Row:
    return tuple(draw(st.sampled_from(VALUES[column.type.name])) for column in shape.schema)


def _rekeyed(shape: Shape, row: Row, keyed: Row) -> Row:
    """The row with the key of `keyed`."""
    return tuple(
        keyed[index] if index in shape.indexes else row[index] for index in range(len(row))
    )


def _masked(draw: st.DrawFn, shape: Shape, row: Row, keyed: Row) -> Row:
    """The row with the key of `keyed` and some of the other values not sent."""
    return tuple(
        keyed[index]
        if index in shape.indexes
        else draw(st.sampled_from([row[index], UNCHANGED, UNCHANGED]))
        for index in range(len(row))
    )


def _delete(shape: Shape, row: Row) -> Change:
    """A deletion that carries the key and nothing else (LZ-103)."""
    return Change(
        Marker.DELETE,
        tuple(value if index in shape.indexes else None for index, value in enumerate(row)),
    )


# -- as files ---------------------------------------------------------------------------------


def as_file(shape: Shape, changes: Sequence[Change]) -> pa.Table:
    """The changes as the columns of a landed file."""
    table = shape.arrow(change.row for change in changes)
    unchanged = np.array(
        [[value == UNCHANGED for value in change.row] for change in changes], bool
    ).reshape(len(changes), len(shape.schema))
    mask = masks.packed(unchanged)
    if mask is not None:
        table = table.append_column(UNCHANGED_COLUMN, mask)
    return table.append_column(
        MARKER_COLUMN, pa.array([int(change.marker) for change in changes], pa.int8())
    )


def read_landed(shape: Shape, changes: Sequence[Change], name: str = "file") -> parquet.Rows:
    """The changes as they come out of a landed Parquet file."""
    target = io.BytesIO()
    pq.write_table(as_file(shape, changes), target)
    target.seek(0)
    size = target.getbuffer().nbytes
    return parquet.read(target, size, shape.schema, Marker.INSERT, table="t", file=name)


def rows_of(table: pa.Table) -> list[Row]:
    """The rows of an Arrow table as the model has them."""
    columns = [[_value(value) for value in column.to_pylist()] for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else []


def counted(rows: Iterable[Row]) -> Counter[Row]:
    """The rows as a multiset."""
    return Counter(plain(row) for row in rows)


def _value(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value
