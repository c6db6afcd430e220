"""Events into files: which minute and which file they go to, and what each file holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import structlog

from mirrorlake.capture.events.settings import EventsSettings
from mirrorlake.capture.events.sizes import besides_values
from mirrorlake.events.encode.avro import avro_rows
from mirrorlake.events.encode.container import container_of
from mirrorlake.events.encode.fragments import offsets_of
from mirrorlake.events.encode.json_lines import json_rows, lines_of
from mirrorlake.events.envelope import MOST_EVENT
from mirrorlake.events.paths import EventExtension, EventFileName, minute_folder, schema_file
from mirrorlake.events.rows import EventObject, EventRows

log = structlog.get_logger()

EVENTS_FAILED = "events_failed"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE = 60_000


@dataclass(frozen=True, slots=True)
class EventFile:
    """A file as it will be written. path: below the root of the destination."""

    path: str
    content: bytes


@dataclass(slots=True)
class FileMaker:
    """Makes the files of events of one table in one batch; the same events make the same files.

    too_large: how many events were left out, because no consumer reads them (ST-177).
    """

    settings: EventsSettings
    batch: int
    worker: int = 0
    too_large: int = 0

    def files(
        self,
        event_object: EventObject,
        rows: EventRows,
        first: int = 0,
        *,
        gone: np.ndarray | None = None,
        per_file: int | None = None,
    ) -> Iterator[EventFile]:
        """The files of some events, minute by minute. first: the number of the first of them in
        the batch. gone: those that are left out, and counted all the same. per_file: how many a
        file has, None for as many as make it about as large as it may be (ST-171).

        A file is named after the number of its first event, whether that is left out or not: so no
        name depends on other files, or on what is left out.

        The schema file of each comes before it, and has to be written in this order: a consumer
        may list the folder after each of them, and one that finds events without their schema
        guesses types that later events do not fit.
        """
        if not len(rows):
            return
        if per_file is None:
            besides = besides_values(self.settings, event_object, rows.slice(0, 1))
            size = rows.size + len(rows) * besides
            per_file = self.settings.events_per_file(len(rows), size)
        for minute, indexes in by_minute(rows):
            moment = _EPOCH + timedelta(minutes=minute)
            folder = "/".join(
                filter(None, [self.settings.path, minute_folder(event_object.name, moment)])
            )
            for run in np.split(indexes, np.flatnonzero(np.diff(indexes // per_file)) + 1):
                left = run if gone is None else run[~gone[run]]
                events = self._encoded(event_object, taken(rows, left)) if len(left) else left
                if len(events):
                    name = str(self._name(event_object, rows, first + int(run[0])))
                    if self._has_schema_files:
                        yield _schema_of(event_object, schema_file(name, folder))
                    yield EventFile(f"{folder}/{name}", self._content(event_object, events))

    @property
    def _has_schema_files(self) -> bool:
        """Avro files have their schema in themselves."""
        return self.settings.schema_file and self.settings.extension is not EventExtension.AVRO

    def _name(self, event_object: EventObject, rows: EventRows, sequence: int) -> EventFileName:
        return EventFileName(
            event_object.schema_key,
            str(rows.read_method),
            self.batch,
            self.worker,
            sequence,
            self.settings.extension,
        )

    def _encoded(self, event_object: EventObject, rows: EventRows) -> pa.Array:
        """The events as they are written, without those that are too large; binary."""
        # Not encoded at all: more than two gigabytes cannot be.
        fits = rows.text_sizes <= MOST_EVENT
        if not fits.all():
            self._left_out(event_object, rows.text_sizes[~fits])
            if not fits.any():
                return pa.array([], pa.binary())
            rows = taken(rows, np.flatnonzero(fits))
        is_avro = self.settings.extension is EventExtension.AVRO
        encoded = (avro_rows if is_avro else json_rows)(event_object, rows)
        # Without the end of the line.
        sizes = np.diff(offsets_of(encoded)) - (not is_avro)
        fits = sizes <= MOST_EVENT
        if not fits.all():
            self._left_out(event_object, sizes[~fits])
            encoded = encoded.filter(pa.array(fits))
        return encoded

    def _content(self, event_object: EventObject, encoded: pa.Array) -> bytes:
        extension = self.settings.extension
        if extension is EventExtension.AVRO:
            parts = container_of(event_object, encoded, deflate=self.settings.is_deflated)
        else:
            parts = lines_of(encoded, gzip=extension is EventExtension.JSON_GZIP)
        return b"".join(parts)

    def _left_out(self, event_object: EventObject, sizes: np.ndarray) -> None:
        self.too_large += len(sizes)
        log.warning(
            EVENTS_FAILED,
            object=event_object.name,
            events=len(sizes),
            reason=f"the event has {int(sizes.max())} bytes, more than {MOST_EVENT}",
        )


def _schema_of(event_object: EventObject, path: str) -> EventFile:
    """The schema file of an object."""
    schema = json.dumps(event_object.schema, indent=1, ensure_ascii=False)
    return EventFile(path, schema.encode())


def by_minute(rows: EventRows) -> Iterator[tuple[int, np.ndarray]]:
    """The numbers of the events of each minute since 1970, in order, by when they changed."""
    minute = np.floor_divide(rows.source_timestamp, _MINUTE)
    for value in np.unique(minute).tolist():
        yield value, np.flatnonzero(minute == value)


def taken(rows: EventRows, indexes: np.ndarray) -> EventRows:
    """Some of the events, by their numbers, which ascend; at least one."""
    first, count = int(indexes[0]), len(indexes)
    if indexes[-1] - first == count - 1:
        return rows if count == len(rows) else rows.slice(first, count)
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
