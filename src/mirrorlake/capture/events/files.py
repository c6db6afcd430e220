"""Events into files: which minute and which file they go to, and what each file holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa

from mirrorlake.capture.events.settings import EventsSettings
from mirrorlake.events.encode.container import container
from mirrorlake.events.encode.json_lines import json_lines
from mirrorlake.events.paths import EventExtension, EventFileName, minute_folder, schema_file
from mirrorlake.events.rows import EventObject, EventRows

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE = 60_000


@dataclass(frozen=True, slots=True)
class EventFile:
    """A file as it will be written. path: below the root of the destination."""

    path: str
    content: bytes


@dataclass(slots=True)
class FileMaker:
    """Makes the files of one batch; the same events make the same files."""

    settings: EventsSettings
    batch: int
    worker: int = 0
    sequence: int = 0

    def files(self, event_object: EventObject, rows: EventRows) -> Iterator[EventFile]:
        """The files of some events, minute by minute."""
        for minute, chosen in by_minute(rows):
            moment = _EPOCH + timedelta(minutes=minute)
            folder = "/".join(
                filter(None, [self.settings.path, minute_folder(event_object.name, moment)])
            )
            for run in self._runs(chosen):
                yield self._file(event_object, run, folder)
            if self.settings.schema_file and self.settings.extension is not EventExtension.AVRO:
                schema = json.dumps(event_object.schema, indent=1, ensure_ascii=False)
                yield EventFile(schema_file(event_object.schema_key, folder), schema.encode())

    def _file(self, event_object: EventObject, rows: EventRows, folder: str) -> EventFile:
        extension = self.settings.extension
        name = EventFileName(
            event_object.schema_key,
            str(rows.read_method),
            self.batch,
            self.worker,
            self.sequence,
            extension,
        )
        self.sequence += 1
        if extension is EventExtension.AVRO:
            parts = container(event_object, rows, deflate=self.settings.is_deflated)
        else:
            parts = json_lines(event_object, rows, gzip=extension is EventExtension.JSON_GZIP)
        return EventFile(f"{folder}/{name}", b"".join(parts))

    def _runs(self, rows: EventRows) -> Iterator[EventRows]:
        """Runs that are about as large as a file may be (ST-171)."""
        count = -(-rows.size // self.settings.rotation_bytes)
        step = max(-(-len(rows) // max(count, 1)), 1)
        for start in range(0, len(rows), step):
            yield rows.slice(start, min(step, len(rows) - start))


def by_minute(rows: EventRows) -> Iterator[tuple[int, EventRows]]:
    """The events of each minute since 1970, in order, by when they changed."""
    minute = np.floor_divide(rows.source_timestamp, _MINUTE)
    for value in np.unique(minute).tolist():
        yield value, taken(rows, np.flatnonzero(minute == value))


def taken(rows: EventRows, indexes: np.ndarray) -> EventRows:
    """Some of the events, by their numbers."""
    if len(indexes) == len(rows):
        return rows
    chosen = pa.array(indexes)

    def take(value: object) -> object:
        return value.take(chosen) if isinstance(value, pa.Array) else value

    return EventRows(
        rows.read_method,
        take(rows.uuid),
        rows.read_timestamp,
        rows.source_timestamp[indexes],
        {name: take(value) for name, value in rows.metadata.items()},
        [take(value) for value in rows.sort_keys],
        [take(value) for value in rows.payload],
    )
