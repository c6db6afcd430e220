"""Events that were parsed line by line, as columns of Python values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mirrorlake.events import envelope
from mirrorlake.events.decode.avro_types import MOST_TYPES
from mirrorlake.events.decode.errors import UnreadableEvents
from mirrorlake.events.decode.json.lines import JsonLine

RECORDS = (envelope.SOURCE_METADATA, envelope.PAYLOAD)

MOST_MISSING = 24_000_000
"""Maximum number of values of some events in columns, missing ones included, if nine of ten are: as
many as twenty thousand events have that leave out NULLs, of a table with a thousand columns. If
each event has a column of its own, a small file takes gigabytes."""
_FEW = 10
_GENERIC = [name for name in envelope.FIELDS if name not in RECORDS]


@dataclass(frozen=True)
class ParsedEvents:
    """Events, or errors of their lines."""

    lines: Sequence[JsonLine]

    def take(self, rows: np.ndarray) -> ParsedEvents:
        return ParsedEvents([self.lines[row] for row in rows.tolist()])

    @cached_property
    def rejected(self) -> dict[int, str]:
        """Maps the number of an event that cannot be used to the reason."""
        found = {row: line.error for row, line in enumerate(self.lines) if line.error}
        for name in RECORDS:
            for row, line in enumerate(self.lines):
                if not isinstance(line.event.get(name), dict | None):
                    found.setdefault(row, f"{name} is not an object")
        return found

    @property
    def misnamed(self) -> dict[int, str]:
        """The same, for the names of columns. Raises UnreadableEvents when there are too many."""
        found: dict[int, str] = {}
        for name in _names(self._payloads):
            if not is_text(name):
                for row, one in enumerate(self._payloads):
                    if name in one:
                        reason = f"the name of a column is no text: {name!r:.80}"
                        found.setdefault(row, reason)
        return found

    @property
    def generic(self) -> dict[str, list[Any]]:
        return {name: [line.event.get(name) for line in self.lines] for name in _GENERIC}

    @property
    def metadata(self) -> dict[str, list[Any]]:
        return _columns(self._records(envelope.SOURCE_METADATA))

    @property
    def payload(self) -> dict[str, list[Any]]:
        """In order of first occurrence. Raises UnreadableEvents when there are too many."""
        names = _names(self._payloads)
        count = len(names) * len(self.lines)
        if count > MOST_MISSING and count > _FEW * sum(map(len, self._payloads)):
            raise UnreadableEvents(
                f"{len(self.lines)} of its events have {len(names)} columns, and each has few of "
                "them"
            )
        columns = _columns(self._payloads)
        return {name: values for name, values in columns.items() if is_text(name)}

    @property
    def empty(self) -> np.ndarray:
        """bool per event, whether it has no payload."""
        return np.array([not one for one in self._payloads], bool)

    @cached_property
    def _payloads(self) -> list[Mapping[str, Any]]:
        return self._records(envelope.PAYLOAD)

    def _records(self, name: str) -> list[Mapping[str, Any]]:
        found = (line.event.get(name) for line in self.lines)
        return [one if isinstance(one, dict) else {} for one in found]


def _columns(records: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    return {name: [one.get(name) for one in records] for name in _names(records)}


def _names(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """All names in order of first occurrence. Raises UnreadableEvents when there are too many."""
    found: dict[str, None] = {}
    for one in records:
        if not found.keys() >= one.keys():
            found |= dict.fromkeys(one)
            if len(found) > MOST_TYPES:
                raise UnreadableEvents(f"the events have more than {MOST_TYPES} columns")
    return list(found)


def is_text(name: str) -> bool:
    """Whether the name has no unpaired surrogate, which JSON can escape but UTF-8 cannot encode."""
    return not any("\ud800" <= char <= "\udfff" for char in name)
