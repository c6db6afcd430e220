"""The columns of tables that are made of events: names, types, values (ST-245, ST-259 to ST-262).

A new column is added, a missing one is NULL in new rows, a renamed one is a new one. A value of
another type than its column has is no value of it, unless the column has every value of that type.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.errors import EventTableError
from mirrorlake.events.encode.json_lines import json_texts
from mirrorlake.events.types import UnifiedKind, UnifiedType
from mirrorlake.model import types
from mirrorlake.model.arrow import arrow_type, contiguous
from mirrorlake.model.table import Column, Schema
from mirrorlake.model.types import DataType

METADATA = "datastream_metadata"
"""The struct column of every table (ST-237 to ST-239)."""

_TAKEN = {METADATA, "_change_type", "_commit_version", "_commit_timestamp"}
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
_KEYS = frozenset(
    ["boolean", "byte", "short", "integer", "long", "decimal", "string", "date", "timestamp"]
)
"""Types of Delta that a key may have (ST-243)."""


@dataclass(frozen=True, slots=True)
class EventTableColumn:
    """A column: its name in the events, the one in the table, and its type in both."""

    source: str
    name: str
    unified: UnifiedType

    @property
    def type(self) -> DataType:
        found = delta_type(self.unified)
        assert found is not None
        return found


@dataclass(frozen=True, slots=True)
class EventTableColumns:
    """All columns of a table but METADATA, in their order."""

    columns: tuple[EventTableColumn, ...] = ()

    @classmethod
    def parse(cls, record: Sequence[Mapping[str, str]]) -> Self:
        """Raises ValueError, KeyError."""
        return cls(
            tuple(
                EventTableColumn(one["source"], one["name"], UnifiedType.parse(one["type"]))
                for one in record
            )
        )

    def as_record(self) -> list[dict[str, str]]:
        return [
            {"source": one.source, "name": one.name, "type": str(one.unified)}
            for one in self.columns
        ]

    def __iter__(self) -> Iterator[EventTableColumn]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def known(self) -> dict[str, UnifiedType]:
        """The types by the names in the events."""
        return {one.source: one.unified for one in self.columns}

    def name_of(self, source: str) -> str | None:
        """The name in the table; None for a column that it has not."""
        return next((one.name for one in self.columns if one.source == source), None)

    def widened(self, table: str, found: Mapping[str, UnifiedType]) -> EventTableColumns:
        """With the columns of some events that are new (ST-259). Raises EventTableError for two
        columns that would have one name."""
        names = {one.name.casefold(): one.source for one in self.columns}
        names |= dict.fromkeys(_TAKEN, "a column of the table's own")
        added = []
        for source, kind in found.items():
            if delta_type(kind) is None or source in self.known:
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
            added.append(EventTableColumn(source, name, kind))
        return replace(self, columns=(*self.columns, *added)) if added else self

    def schema(self, metadata: DataType) -> Schema:
        """Of the table."""
        plain = [Column(one.name, one.type) for one in self.columns]
        return Schema.of([*plain, Column(METADATA, metadata)])

    def rows(
        self,
        payload: pa.Table,
        kinds: Mapping[str, UnifiedType],
        key: Sequence[str],
        spared: np.ndarray,
    ) -> tuple[list[pa.Array], dict[int, str]]:
        """The values of each column, and which events have one that is none of it, with the reason.

        payload: by the names in the events, of `payload_type`; spared: bool, events of which only
        the columns of the key matter.
        """
        found, rejected = [], dict[int, str]()
        for one in self.columns:
            target = arrow_type(one.type)
            kind = kinds.get(one.source)
            if kind is None or kind.kind is UnifiedKind.UNSUPPORTED:
                found.append(pa.nulls(payload.num_rows, target))
                continue
            values = contiguous(payload.column(one.source))
            given = delta_type(kind)
            if given == one.type:
                found.append(delta_values(values, kind))
                continue
            if given is not None and types.is_wider(one.type, given):
                found.append(delta_values(values, kind).cast(target))
                continue
            wrong = values.is_valid().to_numpy(zero_copy_only=False)
            if one.source not in key:
                wrong &= ~spared
            reason = f"column {one.source} is {one.unified} in the table, and {kind} in the event"
            rejected |= dict.fromkeys(np.flatnonzero(wrong).tolist(), reason)
            found.append(pa.nulls(payload.num_rows, target))
        return found, rejected


def check_key(table: str, columns: EventTableColumns, key: Sequence[str]) -> None:
    """Refuse a key whose type none can be (ST-243). Raises EventTableError."""
    for one in columns:
        if one.source in key and one.type.name not in _KEYS:
            raise EventTableError(
                f"its key column {one.source} is {one.unified}, by which no row can be found",
                table=table,
                column=one.source,
                hint="Name another key in source.keys.",
            )


def column_name(source: str) -> str:
    """The name of a column in the table (ST-245)."""
    name = re.sub(r"\W", "_", source) or "_"
    return f"_{name}" if name[0].isdigit() else name


def delta_type(kind: UnifiedType) -> DataType | None:
    """What a unified type becomes; None for one without values. What Delta has no type for is
    text: as ISO 8601 has it, or JSON."""
    if kind.kind is UnifiedKind.UNSUPPORTED:
        return None
    if kind.kind is UnifiedKind.DECIMAL and kind.precision <= types.MAX_PRECISION:
        return types.decimal(kind.precision, kind.scale)
    return _SIMPLE.get(kind.kind, types.STRING)


def delta_values(values: pa.Array, kind: UnifiedType) -> pa.Array:
    """The values in the type of `delta_type`. values: of `payload_type`."""
    target = delta_type(kind)
    assert target is not None
    match kind.kind:
        case UnifiedKind.TIMESTAMP_WITH_TIME_ZONE:
            return pc.struct_field(values, "timestamp").cast(arrow_type(target))
        case UnifiedKind.ARRAY:
            assert kind.element is not None
            return _arrays(values, kind.element)
        case UnifiedKind.TIME | UnifiedKind.TIME_WITH_TIME_ZONE | UnifiedKind.INTERVAL:
            return pc.utf8_trim(json_texts(values, kind), '"')
        case UnifiedKind.GEOMETRY:
            return json_texts(values, kind)
        case _:
            return values.cast(arrow_type(target))


def _arrays(values: pa.StructArray, element: UnifiedType) -> pa.Array:
    """Arrays as JSON, of numbers, truth values and texts."""
    dimensions = pc.struct_field(values, "dimensions").to_pylist()
    lists = pc.struct_field(values, "elements")
    elements = iter(delta_values(contiguous(lists.flatten()), element).to_pylist())
    found = [
        None if shape is None else json.dumps(_nested(shape, elements), default=_plain)
        for shape in dimensions
    ]
    return pa.array(found, pa.string())


def _nested(shape: Sequence[int], elements: Iterator[Any]) -> list[Any]:
    if len(shape) <= 1:
        return [next(elements) for _one in range(shape[0] if shape else 0)]
    return [_nested(shape[1:], elements) for _one in range(shape[0])]


def _plain(value: object) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
