"""Columns of a table of the modelled lake that come, go and are altered, by the obvious model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from mirrorlake.mirror.steps import AlterColumns
from mirrorlake.model.arrow import arrow_type
from mirrorlake.model.change import METADATA_COLUMNS, ROW_DELETED
from mirrorlake.model.table import Column, Schema
from mirrorlake.model.types import DataType, is_wider
from tests.reference import Row, Table, plain

Feed = Counter[tuple[str, Row]]


@dataclass(frozen=True)
class Layout:
    """The columns of a table at a version. numbers: of the columns, each given once."""

    schema: Schema
    numbers: tuple[int, ...]

    @classmethod
    def first(cls, schema: Schema) -> Layout:
        return cls(schema, tuple(range(len(schema))))

    def with_new(self, columns: Sequence[Column], last: int) -> Layout:
        """With more columns behind. last: the highest number that was given."""
        numbers = tuple(range(last + 1, last + 1 + len(columns)))
        return Layout(Schema.of([*self.schema, *columns]), (*self.numbers, *numbers))

    def altered(self, types: Mapping[str, DataType], dropped: Sequence[str]) -> Layout:
        kept = [
            (replace(column, type=types.get(column.name, column.type)), number)
            for column, number in zip(self.schema, self.numbers, strict=True)
            if column.name not in dropped
        ]
        return Layout(Schema.of([column for column, _ in kept]), tuple(n for _, n in kept))

    def renamed(self, names: Mapping[str, str]) -> Layout:
        columns = [replace(one, name=names.get(one.name, one.name)) for one in self.schema]
        return Layout(Schema.of(columns), self.numbers)

    def moved(self, row: Row, former: Layout) -> Row:
        """A row of a former version, as a reader has it now: NULL in new columns, and in those
        whose type is another one, and no wider one."""
        had = dict(zip(former.numbers, zip(former.schema, row, strict=True), strict=True))
        return tuple(
            _kept(*had[number], column.type) if number in had else None
            for column, number in zip(self.schema, self.numbers, strict=True)
        )


@dataclass
class Columns:
    """The columns of a table of the lake. last: the highest number that was given; at: by how many
    feeds came before the one with which the table got other columns."""

    now: Layout
    last: int
    at: dict[int, Layout] = field(default_factory=dict)

    @classmethod
    def first(cls, schema: Schema) -> Columns:
        now = Layout.first(schema)
        return cls(now, len(schema), {0: now})

    def become(self, layout: Layout, at: int) -> None:
        self.now = self.at[at] = layout
        self.last = max(self.last, *layout.numbers)


def relaid(table: Table, layout: Layout, key: Sequence[str], rows: list[Row]) -> Table:
    """The table with other columns. key: by name."""
    names = layout.schema.names
    return replace(
        table,
        key=tuple(names.index(name) for name in key),
        rows=rows,
        metadata=tuple(n for n, name in enumerate(names) if name in METADATA_COLUMNS),
        soft=None if table.soft is None else names.index(ROW_DELETED),
    )


def altered(
    rows: Sequence[Row], before: Layout, after: Layout, step: AlterColumns
) -> tuple[list[Row], Feed]:
    """All rows with their altered columns, and the updates of those that have other values then."""
    filled = {} if step.filled is None else step.filled.to_pylist()[0]
    assigned = {*step.copied, *filled, *step.converted}
    found, feed = list[Row](), Feed()
    for row in rows:
        old = dict(zip(before.schema.names, row, strict=True))
        new = tuple(
            filled[column.name]
            if column.name in filled
            else _cast(
                old[step.copied.get(column.name, column.name)],
                before.schema[step.copied.get(column.name, column.name)].type,
                column.type,
                is_converted=column.name in step.converted,
            )
            for column in after.schema
        )
        image = after.moved(row, before)
        names = after.schema.names
        if any(
            was != now for name, was, now in zip(names, image, new, strict=True) if name in assigned
        ):
            feed["update_preimage", plain(image)] += 1
            feed["update_postimage", plain(new)] += 1
        found.append(new)
    return found, feed


def replayed(feeds: Sequence[Feed], columns: Columns) -> Counter[Row]:
    """The rows to which the feeds of all versions lead, whatever the columns were meanwhile."""
    rows: Counter[Row] = Counter()
    layout = columns.at[0]
    for number, feed in enumerate(feeds):
        now = columns.at.get(number, layout)
        if now != layout:
            moved = Counter[Row]()
            for row, count in rows.items():
                moved[now.moved(row, layout)] += count
            rows, layout = moved, now
        for (kind, row), count in feed.items():
            sign = 1 if kind in {"insert", "update_postimage"} else -1
            rows[row] += sign * count
    return +rows if min(rows.values(), default=0) >= 0 else rows


def _kept(column: Column, value: Any, kind: DataType) -> Any:
    return value if column.type == kind or is_wider(kind, column.type) else None


def _cast(value: Any, former: DataType, kind: DataType, *, is_converted: bool) -> Any:
    """A value as one of another type. Raises ArrowInvalid where it does not fit and is not to be
    converted; then it is NULL."""
    if former == kind:
        return value
    try:
        return pa.scalar(value, arrow_type(former)).cast(arrow_type(kind)).as_py()
    except pa.ArrowInvalid:
        if not is_converted:
            raise
        return None
