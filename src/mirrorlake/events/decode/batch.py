"""Events of a file as columns, for every format and version of the layout (ST-014, ST-368)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.events import envelope
from mirrorlake.events.decode.fitting import Convert, fitted
from mirrorlake.events.decode.iso import milliseconds
from mirrorlake.events.metadata import ALIASES, FIELDS_OF, MetadataType
from mirrorlake.events.types import EventColumn

_TEXTS = (
    envelope.UUID,
    envelope.OBJECT,
    envelope.READ_METHOD,
    envelope.STREAM_NAME,
    envelope.SCHEMA_KEY,
)
_TIMES = (envelope.READ_TIMESTAMP, envelope.SOURCE_TIMESTAMP)

METADATA: Mapping[str, MetadataType] = {
    one.name: one.type for fields in FIELDS_OF.values() for one in fields
}
"""The fields of `source_metadata` of all sources."""

_ARROW = {
    MetadataType.STRING: pa.string(),
    MetadataType.LONG: pa.int64(),
    MetadataType.BOOLEAN: pa.bool_(),
    MetadataType.STRINGS: pa.list_(pa.string()),
    MetadataType.INTEGERS: pa.list_(pa.int64()),
}

HEAD = pa.schema(
    [
        *((name, pa.string()) for name in _TEXTS),
        *((name, pa.int64()) for name in _TIMES),
        (envelope.SORT_KEYS, pa.list_(pa.string())),
        *((name, _ARROW[kind]) for name, kind in METADATA.items()),
    ]
)
"""The generic fields and the metadata of all sources, NULL where an event does not have them: times
in milliseconds, sort keys as text."""

_NONE: Mapping[int, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Consecutive events of one file, or those of one object among them.

    first: the number of the first of these events in the file.
    at: int64, the numbers of all of them, if they are not consecutive.
    head: HEAD.
    payload: a column for each of `columns`, of its `payload_type`. Values that do not fit are NULL.
    empty: bool per event, whether it has no payload (ST-111).
    rejected: maps the number of an event in the batch to the reason why it cannot be used.
    unfit: the events that are rejected for nothing but values in `payload` that do not fit, by the
        columns of these: int64, their numbers in the batch.
    """

    first: int
    head: pa.Table
    columns: Sequence[EventColumn]
    payload: pa.Table
    empty: np.ndarray
    rejected: Mapping[int, str] = field(default_factory=dict)
    unfit: Mapping[str, np.ndarray] = field(default_factory=dict)
    at: np.ndarray | None = None

    def __len__(self) -> int:
        return int(self.head.num_rows)

    @property
    def row(self) -> np.ndarray:
        """int64, the numbers of the events in the file."""
        return np.arange(self.first, self.first + len(self)) if self.at is None else self.at


class Unfit:
    """The events of a batch with values in `payload` that do not fit."""

    def __init__(self) -> None:
        self._rows: dict[str, np.ndarray] = {}
        self._reasons: dict[int, str] = {}

    def add(
        self, rows: Sequence[int], column: EventColumn, flaws: Mapping[int, str] = _NONE
    ) -> None:
        """flaws: what is wrong with the values of some of the events, "" for what is obvious."""
        if rows:
            self._rows[column.name] = np.array(rows, np.int64)
            reason = f"the value of column {column.name} is no {column.type}"
            for row in rows:
                flaw = flaws.get(row)
                self._reasons[row] = f"{reason}: {flaw}" if flaw else reason

    def batch(
        self,
        at: np.ndarray,
        head: pa.Table,
        columns: Sequence[EventColumn],
        payload: pa.Table,
        empty: np.ndarray,
        rejected: Mapping[int, str],
    ) -> EventBatch:
        """The batch. at: the numbers of the events in the file; rejected: the events that are for
        another reason."""
        others = np.fromiter(rejected, np.int64, len(rejected))
        alone = {name: rows[~np.isin(rows, others)] for name, rows in self._rows.items()}
        both = {**self._reasons, **rejected}
        return EventBatch(int(at[0]), head, columns, payload, empty, both, alone, at)


def head_of(
    count: int, generic: Mapping[str, pa.Array], metadata: Mapping[str, pa.Array]
) -> tuple[pa.Table, dict[int, str]]:
    """HEAD from the fields of a file, of any type, and the events that do not fit, with the reason.

    Unknown fields are ignored; known aliases are renamed (ST-094, ST-107).
    """
    found = {ALIASES.get(name, name): values for name, values in metadata.items()}
    found |= {name: generic[name] for name in generic if name in envelope.FIELDS}
    columns, rejected = [], dict[int, str]()
    for one in HEAD:
        values = found.get(one.name)
        if values is None:
            columns.append(pa.nulls(count, one.type))
            continue
        fit, bad = fitted(values, one.type, _convert_of(one))
        columns.append(fit)
        rejected |= dict.fromkeys(bad, f"the value of {one.name} does not fit its type")
    return pa.table(columns, schema=HEAD), rejected


def is_list(name: str) -> bool:
    """Whether a field of the envelope or of the metadata is a list; of an unknown one, true."""
    at = HEAD.get_field_index(ALIASES.get(name, name))
    return at < 0 or bool(pa.types.is_list(HEAD.field(at).type))


def is_text(name: str) -> bool:
    at = HEAD.get_field_index(ALIASES.get(name, name))
    return at >= 0 and bool(pa.types.is_string(HEAD.field(at).type))


def _convert_of(one: pa.Field) -> Convert:
    if one.name in _TIMES:
        return _times
    if pa.types.is_string(one.type):
        return _text
    if pa.types.is_list(one.type):
        return lambda values: _list(values, one.type)
    return lambda values: values.cast(one.type)


def _times(values: pa.Array) -> pa.Array:
    if pa.types.is_integer(values.type):
        return values
    texts = values.cast(pa.string())
    found = milliseconds(texts)
    if found.null_count != texts.null_count:
        raise ValueError("no time")
    return found


def _text(values: pa.Array) -> pa.Array:
    """SQL Server's schema is written as a list of one (ST-075)."""
    if not pa.types.is_list(values.type):
        return values.cast(pa.string())
    if pc.any(pc.not_equal(pc.list_value_length(values), 1)).as_py():
        raise ValueError("a list where a text is expected")
    plain = values.flatten().cast(pa.string())
    places = np.cumsum(values.is_valid().to_numpy(zero_copy_only=False)) - 1
    mask = values.is_null().to_numpy(zero_copy_only=False)
    return plain.take(pa.array(places, pa.int64(), mask=mask))


def _list(values: pa.Array, target: pa.ListType) -> pa.Array:
    """A single string is read as a list of one (ST-107)."""
    if pa.types.is_list(values.type):
        # Casting a slice converts the elements of the other rows too.
        return pa.concat_arrays([values]).cast(target)
    plain = values.cast(target.value_type)
    there = values.is_valid().to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate(([0], np.cumsum(there))), pa.int32())
    found = pa.ListArray.from_arrays(offsets, plain.drop_null())
    return pc.if_else(pa.array(there), found, pa.scalar(None, target))
