"""How large events will be in files, before they are made: it says when a file is closed.

What an event has besides its values, as its metadata and in JSON the names of its columns, is about
the same for all events of a table, so it is measured at one of them (ST-171).
"""

from __future__ import annotations

import numpy as np

from mirrorlake.capture.events import build
from mirrorlake.capture.events.build import TakenRows
from mirrorlake.capture.events.settings import EventsSettings
from mirrorlake.errors import TableError
from mirrorlake.events.encode.avro import avro_rows
from mirrorlake.events.encode.fragments import offsets_of
from mirrorlake.events.encode.json_lines import json_rows
from mirrorlake.events.envelope import MOST_EVENT
from mirrorlake.events.paths import EventExtension
from mirrorlake.events.rows import EventObject, EventRows
from mirrorlake.model.table import TableId
from mirrorlake.sources.table import SourceTable


def besides_values(settings: EventsSettings, event_object: EventObject, one: EventRows) -> int:
    """Bytes that an event has in a file, before compression, besides those of its values in
    memory."""
    if one.text_sizes[0] > MOST_EVENT:
        return 0  # it is not written
    is_avro = settings.extension is EventExtension.AVRO
    encoded = (avro_rows if is_avro else json_rows)(event_object, one)
    return max(int(np.diff(offsets_of(encoded))[0]) - one.size, 0)


class EventSizes:
    """The sizes of the changes of tables as events."""

    def __init__(self, settings: EventsSettings) -> None:
        self._settings = settings
        self._besides = dict[TableId, tuple[SourceTable, int]]()

    def of(self, rows: TakenRows) -> np.ndarray:
        """Bytes of each in a file, about, before compression; float64."""
        return rows.sizes + self._besides_values(rows)

    def _besides_values(self, rows: TakenRows) -> int:
        known = self._besides.get(rows.table.table)
        if known is not None and known[0].schema == rows.table.schema:
            return known[1]
        there = np.flatnonzero(~rows.gone)
        if not len(there):
            return 0
        first = int(there[0])
        event_object = build.described(rows.table, self._settings)
        try:
            one = build.changes(event_object, rows.slice(first, first + 1), "0" * 16, 0, 0)
            found = besides_values(self._settings, event_object, one)
        except TableError:
            return 0  # the table stops when it is written
        self._besides[rows.table.table] = rows.table, found
        return found
