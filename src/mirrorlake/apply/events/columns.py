"""The columns of tables built from events: names, types, values (ST-245, ST-259 to ST-262).

A new column is added, a missing one is NULL in new rows, a renamed one counts as new. A column
whose events have several types gets the least type that has the values of all of them
(`events.wider`). Where there is none, or the rows of the table cannot have it, a value of another
type than its column is rejected, unless the column's type can represent every value of that type.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.errors import EventKeyRefused, EventTableError
from mirrorlake.events.encode.json_lines import json_texts
from mirrorlake.events.rows import payload_type
from mirrorlake.events.types import TIME, UnifiedKind, UnifiedType
from mirrorlake.events.wider import has_every_value, joined
from mirrorlake.model import types
from mirrorlake.model.arrow import arrow_type, contiguous, rows_of_elements
from mirrorlake.model.change import (
    FEED_COLUMNS,
    METADATA_COLUMNS,
    ROW_COMMIT_TIME,
    ROW_POSITION,
)
from mirrorlake.model.table import Column, Schema
from mirrorlake.model.types import DataType

METADATA = "datastream_metadata"
"""The struct column of every table (ST-237 to ST-239)."""

POSITION_AND_TIME = (
    Column(ROW_POSITION, types.STRING),
    Column(ROW_COMMIT_TIME, types.TIMESTAMP),
)
"""The additional columns of a table when the project requests metadata columns."""

_DAY = 86_400_000_000
"""Microseconds. A time may be 24:00:00."""
_TAKEN = {METADATA, *METADATA_COLUMNS, *FEED_COLUMNS}
_SIMPLE: Mapping[UnifiedKind, DataType] = {
    UnifiedKind.BOOLEAN: types.BOOLEAN,
    UnifiedKind.BYTES: types.BINARY,
    UnifiedKind.DATE: types.DATE,
    UnifiedKind.DATETIME: types.TIMESTAMP,
    UnifiedKind.DOUBLE: types.DOUBLE,
    UnifiedKind.FLOAT: types.FLOAT,
    UnifiedKind.INTEGER: types.INTEGER,
    UnifiedKind.LONG: types.LONG,
    UnifiedKind.TIME_INTERVAL: types.LONG,
    UnifiedKind.TIMESTAMP: types.TIMESTAMP,
    UnifiedKind.TIMESTAMP_WITH_TIME_ZONE: types.TIMESTAMP,
}
_SAME_CONTENT = ({"integer", "long"}, {"float", "double"})
"""Delta types whose equal values have equal hashes (`model.row_hashes`)."""
_KEYS = frozenset(
    ["boolean", "byte", "short", "integer", "long", "decimal", "string", "date", "timestamp"]
)
"""Delta types that a key may have (ST-243)."""


@dataclass(frozen=True, slots=True)
class EventTableColumn:
    """A column: its name in the events, its name in the table, and its unified type."""

    source: str
    name: str
    unified: UnifiedType

    @property
    def type(self) -> DataType:
        return _of_table(self.unified)


@dataclass(frozen=True, slots=True)
class EventTableColumns:
    """All columns of a table except METADATA, in order."""

    columns: tuple[EventTableColumn, ...] = ()

    @classmethod
    def parse(cls, record: Sequence[Mapping[str, str]]) -> Self:
        """Raises ValueError, KeyError."""
        return cls(
            tuple(
                EventTableColumn(
                    member["source"], member["name"], UnifiedType.parse(member["type"])
                )
                for member in record
            )
        )

    def as_record(self) -> list[dict[str, str]]:
        return [
            {"source": column.source, "name": column.name, "type": str(column.unified)}
            for column in self.columns
        ]

    def __iter__(self) -> Iterator[EventTableColumn]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def known(self) -> dict[str, UnifiedType]:
        """The types by name in the events."""
        return {column.source: column.unified for column in self.columns}

    def name_of(self, source: str) -> str | None:
        """The name in the table; None for an unknown column."""
        return next((column.name for column in self.columns if column.source == source), None)

    def widened(
        self,
        table: str,
        found: Mapping[str, UnifiedType],
        wanted: Mapping[str, UnifiedType] = MappingProxyType({}),
        *,
        key: Collection[str] = (),
        by_value: bool = True,
    ) -> EventTableColumns:
        """With the new columns of some events (ST-259), and the types that the known ones get
        (`wider_type`). wanted: types of columns that are not to have that of the events. key: the
        names of key columns. Raises EventTableError when two columns would have the same name."""
        names = {one.name.casefold(): one.source for one in self.columns}
        names |= dict.fromkeys(_TAKEN, "a column of the table's own")
        columns = {column.source: column for column in self.columns}
        for source, given in found.items():
            if delta_type(given) is None:
                continue
            kind, known = wanted.get(source, given), columns.get(source)
            if known is not None:
                wider = wider_type(known.unified, kind, is_key=source in key, by_value=by_value)
                columns[source] = replace(known, unified=wider)
                continue
            name = column_name(source)
            if (other := names.get(name.casefold())) is not None:
                raise EventTableError(
                    f"its columns {source!r} and {other!r} would have one name, {name}",
                    table=table,
                    column=source,
                    hint="Leave one of them out of the stream, and use `mirrorlake reset`.",
                )
            names[name.casefold()] = source
            columns[source] = EventTableColumn(source, name, kind)
        return EventTableColumns(tuple(columns.values()))

    def schema(self, metadata: DataType, *, with_metadata: bool) -> Schema:
        """The schema of the table. with_metadata: with position and time."""
        plain = [Column(column.name, column.type) for column in self.columns]
        more = POSITION_AND_TIME if with_metadata else ()
        return Schema.of([*plain, Column(METADATA, metadata), *more])

    def rows(
        self,
        payload: pa.Table,
        kinds: Mapping[str, UnifiedType],
        key: Sequence[str],
        spared: np.ndarray,
    ) -> tuple[list[pa.Array], dict[int, str]]:
        """The values of each column, and the events with a value that does not fit, with the
        reason.

        payload: by name in the events, of `payload_type`.
        spared: bool, events of which only the key columns matter.
        """
        found, rejected = [], dict[int, str]()
        for column in self.columns:
            target = arrow_type(column.type)
            kind = kinds.get(column.source)
            if kind is None:
                found.append(pa.nulls(payload.num_rows, target))
                continue
            values = contiguous(payload.column(column.source))
            if has_every_value(column.unified, kind):
                for wrong, what in (
                    (_timeless(values, kind), "a time that no day has"),
                    (_undated(values, kind), "an array with a date before year 1 or after 9999"),
                    (_misshapen(values, kind), "an array whose elements do not fill it"),
                ):
                    if wrong.any():
                        reason = f"column {column.source} has {what}"
                        rejected |= dict.fromkeys(np.flatnonzero(wrong).tolist(), reason)
                        values = pc.if_else(pa.array(~wrong), values, pa.scalar(None, values.type))
                found.append(delta_values(values, kind, column.unified))
                continue
            # A value of an unknown type is always null (ST-161), so that null says nothing there.
            is_unknown = kind.kind is UnifiedKind.UNSUPPORTED
            wrong = values.is_valid().to_numpy(zero_copy_only=False) | is_unknown
            if column.source not in key:
                wrong &= ~spared
            reason = (
                f"column {column.source} is {column.unified} in the table, and {kind} in the event"
            )
            rejected |= dict.fromkeys(np.flatnonzero(wrong).tolist(), reason)
            found.append(pa.nulls(payload.num_rows, target))
        return found, rejected


def check_key(table: str, columns: EventTableColumns, key: Sequence[str]) -> None:
    """Refuse a key of a type that cannot be a key (ST-243). Raises EventKeyRefused."""
    for one in columns:
        if one.source in key and not has_key_type(one.type):
            raise EventKeyRefused(
                f"its key column {one.source} is {one.unified}, by which no row can be found",
                table=table,
                column=one.source,
                hint="Give it another key in the source, or leave it out of the stream.",
            )


def has_key_type(kind: DataType) -> bool:
    """Whether rows can be found by a value of the type (ST-243)."""
    return kind.name in _KEYS


def column_name(source: str) -> str:
    """The name of a column in the table (ST-245)."""
    name = re.sub(r"\W", "_", source) or "_"
    return f"_{name}" if name[0].isdigit() else name


def delta_type(kind: UnifiedType) -> DataType | None:
    """The Delta type of a unified type; None for UNSUPPORTED. Types without a Delta equivalent
    become text in ISO 8601 or JSON."""
    if kind.kind is UnifiedKind.UNSUPPORTED:
        return None
    if kind.kind is UnifiedKind.DECIMAL and kind.precision <= types.MAX_PRECISION:
        return types.decimal(kind.precision, kind.scale)
    return _SIMPLE.get(kind.kind, types.STRING)


def wider_type(
    column: UnifiedType, given: UnifiedType, *, is_key: bool, by_value: bool
) -> UnifiedType:
    """The type that a column gets when events have another one: the join of both, or its own if
    there is none, or if rows would have to be given other values for it.

    is_key: whether rows are found by the column. by_value: as `EventTableState.content_by_value`.
    """
    wider = joined(column, given)
    if wider is None or wider == column:
        return column
    if is_key:
        # Numbers of any length have one text for each value in a key, other texts have not.
        is_of_number = UnifiedKind.NUMBER in {column.kind, given.kind}
        if is_of_number or not has_key_type(_of_table(wider)):
            return column
    return wider if _may_become(column, wider, by_value=by_value) else column


def _may_become(column: UnifiedType, wider: UnifiedType, *, by_value: bool) -> bool:
    """Whether a column can get a type that has every value of its own one."""
    before, after = _of_table(column), _of_table(wider)
    if before == after:
        return _is_stored_alike(column, wider)
    if not types.is_wider(after, before):
        return False
    if before.name == "decimal":
        return by_value or after.scale == before.scale
    return by_value or any({before.name, after.name} <= alike for alike in _SAME_CONTENT)


def _is_stored_alike(column: UnifiedType, wider: UnifiedType) -> bool:
    """Whether every value of one type is stored in the same form as that of the other one, where
    both have one Delta type."""
    if column.element is not None and wider.element is not None:
        return _is_stored_alike(column.element, wider.element)
    if wider.kind is UnifiedKind.DECIMAL:
        return column.kind is UnifiedKind.DECIMAL and column.scale == wider.scale
    return (column.kind, wider.kind) != (UnifiedKind.INTEGER, UnifiedKind.DOUBLE)


def _of_table(kind: UnifiedType) -> DataType:
    found = delta_type(kind)
    assert found is not None
    return found


def delta_values(
    values: pa.Array, kind: UnifiedType, wanted: UnifiedType | None = None
) -> pa.Array:
    """The values converted to `delta_type`. values: of `payload_type`. wanted: the type of the
    column, which has every value of `kind`, if it is another one."""
    wanted = wanted or kind
    target = _of_table(wanted)
    match kind.kind:
        case UnifiedKind.TIMESTAMP_WITH_TIME_ZONE:
            return pc.struct_field(values, "timestamp").cast(arrow_type(target))
        case UnifiedKind.ARRAY:
            assert kind.element is not None
            return _arrays(values, kind.element, wanted.element or kind.element)
        case UnifiedKind.TIME | UnifiedKind.TIME_WITH_TIME_ZONE | UnifiedKind.INTERVAL:
            return pc.utf8_trim(json_texts(values, kind), '"')
        case UnifiedKind.GEOMETRY:
            return json_texts(values, kind)
        case _:
            if wanted != kind and wanted.kind is UnifiedKind.DECIMAL:
                values = values.cast(payload_type(wanted))  # in its scale, also as a text
            return values.cast(arrow_type(target))


def _timeless(values: pa.Array, kind: UnifiedType) -> np.ndarray:
    """Which rows have a time that ISO 8601 cannot represent; bool."""
    found = np.zeros(len(values), bool)
    match kind.kind:
        case UnifiedKind.TIME:
            found |= _flags(pc.or_(pc.less(values, 0), pc.greater(values, _DAY)))
        case UnifiedKind.TIME_WITH_TIME_ZONE:
            offset = pc.multiply(pc.struct_field(values, "offset").cast(pa.int64()), 1000)
            found |= _flags(pc.greater_equal(pc.abs(offset), _DAY))
            found |= _timeless(pc.struct_field(values, "time"), TIME)
        case UnifiedKind.ARRAY:
            assert kind.element is not None
            lists = pc.struct_field(values, "elements")
            inside = _timeless(contiguous(lists.flatten()), kind.element)
            found[rows_of_elements(lists)[inside]] = True
    return found


def _misshapen(values: pa.Array, kind: UnifiedType) -> np.ndarray:
    """Which rows have an array with other elements than its dimensions say; bool."""
    if kind.element is None:
        return np.zeros(len(values), bool)
    shapes = pc.struct_field(values, "dimensions").to_pylist()
    counts = pc.list_value_length(pc.struct_field(values, "elements")).to_pylist()
    return np.array(
        [
            shape is not None and (math.prod(shape) if shape else 0) != count
            for shape, count in zip(shapes, counts, strict=True)
        ],
        bool,
    )


def _undated(values: pa.Array, kind: UnifiedType) -> np.ndarray:
    """Which rows have an array with a date that ISO 8601 cannot represent; bool."""
    found = np.zeros(len(values), bool)
    if kind.element is None or delta_type(kind.element) not in {types.DATE, types.TIMESTAMP}:
        return found
    lists = pc.struct_field(values, "elements")
    dates = delta_values(contiguous(lists.flatten()), kind.element)
    first, last = (pa.scalar(one, dates.type) for one in _calendar(dates.type))
    inside = _flags(pc.or_(pc.less(dates, first), pc.greater(dates, last)))
    found[rows_of_elements(lists)[inside]] = True
    return found


def _calendar(of: pa.DataType) -> tuple[date, date]:
    """The first and the last date or time of the calendar."""
    if pa.types.is_date(of):
        return date.min, date.max
    return datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def _flags(values: pa.Array) -> np.ndarray:
    return np.asarray(pc.fill_null(values, False).to_numpy(zero_copy_only=False))


def _arrays(values: pa.StructArray, element: UnifiedType, wanted: UnifiedType) -> pa.Array:
    """Arrays as JSON, of numbers, booleans and strings. NaN and infinities are strings, as in
    event files. wanted: the type of the elements in the column."""
    dimensions = pc.struct_field(values, "dimensions").to_pylist()
    lists = pc.struct_field(values, "elements")
    flat = delta_values(contiguous(lists.flatten()), element, wanted)
    elements: Iterator[Any] = iter(flat.to_pylist())
    if pa.types.is_floating(flat.type):
        elements = map(_finite, elements)
    found = [
        None if shape is None else json.dumps(_nested(shape, elements), default=_plain)
        for shape in dimensions
    ]
    return pa.array(found, pa.string())


def _nested(shape: Sequence[int], elements: Iterator[Any]) -> list[Any]:
    if len(shape) <= 1:
        return [next(elements) for _one in range(shape[0] if shape else 0)]
    return [_nested(shape[1:], elements) for _one in range(shape[0])]


def _finite(value: float | None) -> float | str | None:
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _plain(value: object) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
