"""Reads many lines of JSON at once, by Arrow, as columns.

Only what Arrow reads exactly as `parsed` does: events whose names are known from earlier ones.
Objects and arrays in payloads are decoded one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyarrow import json as arrow_json

from mirrorlake.events.decode.avro_types import MOST_TYPES
from mirrorlake.events.decode.json.lines import MOST_VALUES, RepeatedNames, parsed
from mirrorlake.events.decode.json.marked_texts import MarkedTexts
from mirrorlake.events.decode.json.marking import MARK, marked
from mirrorlake.events.decode.json.parsed_events import RECORDS, is_text
from mirrorlake.events.envelope import FIELDS, PAYLOAD, SOURCE_METADATA
from mirrorlake.events.metadata import ALIASES
from mirrorlake.model.arrow import contiguous

_MOST_VALUES_TOGETHER = 4_000_000
"""With missing ones, which take memory as well."""

_MOST_FAILURES = 3
_LIST = pa.list_(pa.string())

Field: TypeAlias = MarkedTexts | pa.ListArray
"""A list is one of marked texts."""


@dataclass(frozen=True)
class ScannedEvents:
    """Events as columns, by the names of their fields.

    lines: the events as they were read. known: all columns that payloads of the file may have.
    """

    lines: Sequence[bytes]
    generic: Mapping[str, Field]
    metadata: Mapping[str, Field]
    known: Mapping[str, MarkedTexts]

    @property
    def rejected(self) -> dict[int, str]:
        return {}

    @property
    def misnamed(self) -> dict[int, str]:
        return {}

    def take(self, rows: np.ndarray) -> ScannedEvents:
        at = pa.array(rows)

        def taken(fields: Mapping[str, Any]) -> dict[str, Any]:
            return {name: one.take(at) for name, one in fields.items()}

        lines = [self.lines[row] for row in rows.tolist()]
        return ScannedEvents(lines, *map(taken, (self.generic, self.metadata, self.known)))

    @cached_property
    def payload(self) -> dict[str, Sequence[Any]]:
        """In order of first occurrence."""
        first = {
            name: int(np.argmax(values.is_there))
            for name, values in self.known.items()
            if values.is_there.any()
        }
        found: dict[str, Sequence[Any]] = {}
        for row in sorted(set(first.values())):
            event = parsed(self.lines[row], len(self.lines[row])).event
            new = [name for name in event[PAYLOAD] if name not in found]
            found |= {name: self.known[name].by_value for name in new}
        return found

    @property
    def empty(self) -> np.ndarray:
        """bool per event, whether it has no payload."""
        found = np.ones(len(self.lines), bool)
        for values in self.known.values():
            found &= ~values.is_there
        return found


@dataclass(slots=True)
class LineScanner:
    """Scans the lines of one file. It has to learn the names of its events."""

    _fields: dict[str, dict[str, pa.DataType]] = field(
        default_factory=lambda: {name: {} for name in ("", *RECORDS)}
    )
    _is_flat: bool = True
    _failures: int = 0

    def learn(self, events: Iterable[Mapping[str, Any]]) -> None:
        """The names and, of the envelope and the metadata, which values are arrays."""
        for event in events:
            if not self._is_flat:
                return
            self._note("", {name: one for name, one in event.items() if name not in RECORDS})
            for name in RECORDS:
                self._note(name, event.get(name) or {})

    def _note(self, record: str, members: Any) -> None:
        if not isinstance(members, dict):
            self._is_flat = False
            return
        known = self._fields[record]
        for name, value in members.items():
            if isinstance(value, list) and record != PAYLOAD:
                known[name] = _LIST
            elif name not in known:
                known[name] = pa.string()
            self._is_flat &= is_text(name) and MARK not in name
            self._is_flat &= bool(record) or not isinstance(value, dict | RepeatedNames)
        self._is_flat &= len(known) <= MOST_TYPES
        if record == SOURCE_METADATA:
            # Which of two names for the same counts depends on what each event has.
            self._is_flat &= not any(ALIASES.get(name) in known for name in known)
            self._is_flat &= not known.keys() & FIELDS

    def scan(self, lines: Sequence[bytes]) -> ScannedEvents | None:
        """The events; None if they have to be parsed."""
        if not self._is_flat or self._failures == _MOST_FAILURES:
            return None
        found = self._scanned(lines)
        self._failures = self._failures + 1 if found is None else 0
        return found

    def _scanned(self, lines: Sequence[bytes]) -> ScannedEvents | None:
        generic, metadata, payload = (self._fields[name] for name in ("", *RECORDS))
        text = b"".join(lines)
        if not text.endswith(b"\n"):
            text += b"\n"
        if max(map(len, lines)) > MOST_VALUES or not _is_utf8(text):
            return None
        lists = {
            name for known in (generic, metadata) for name, one in known.items() if one == _LIST
        }
        if payload.keys() & {*RECORDS, *lists}:
            return None
        if (len(generic) + len(metadata) + len(payload)) * len(lines) > _MOST_VALUES_TOGETHER:
            return None
        prepared = marked(text, len(lines), [*RECORDS, *lists])
        if prepared is None:
            return None
        records = zip(RECORDS, (metadata, payload), strict=True)
        structs = [(name, pa.struct(list(known.items()))) for name, known in records if known]
        table = _read(prepared, pa.schema([*generic.items(), *structs]))
        if table is None or len(table) != len(lines):
            return None
        fields = {name: _field(contiguous(table.column(name))) for name in generic}
        found = ScannedEvents(lines, fields, *(_members(table, name) for name in RECORDS))
        every = [*found.generic.values(), *found.metadata.values(), *found.known.values()]
        return found if all(map(_is_valid, every)) else None


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _read(text: pa.Buffer, schema: pa.Schema) -> pa.Table | None:
    options = arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1)
    known = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
    try:
        return arrow_json.read_json(pa.BufferReader(text), options, known)
    except pa.ArrowException:
        return None


def _members(table: pa.Table, name: str) -> dict[str, Any]:
    if name not in table.column_names:
        return {}
    record = contiguous(table.column(name))
    members = zip(record.type, record.flatten(), strict=True)
    return {one.name: _field(values) for one, values in members}


def _field(column: pa.Array) -> Field:
    return column if pa.types.is_list(column.type) else MarkedTexts.of(column)


def _is_valid(one: Field) -> bool:
    if isinstance(one, MarkedTexts):
        return one.is_valid
    elements = MarkedTexts.of(one.flatten())
    return elements.is_valid and elements.by_value is elements
