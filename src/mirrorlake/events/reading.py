"""Reads anyone's event files: their events in columns, with the errors of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import BinaryIO

from mirrorlake.events.decode.avro_events import avro_events
from mirrorlake.events.decode.avro_file import MAGIC
from mirrorlake.events.decode.batch import EventBatch
from mirrorlake.events.decode.json.events import Known, json_events
from mirrorlake.events.types import EventColumn


def read_events(
    file: BinaryIO,
    *,
    columns: Sequence[EventColumn] | None = None,
    known: Known | None = None,
) -> Iterator[EventBatch]:
    """The events of a file, in batches, each of one object if the file is of lines of JSON. The
    format (Avro or lines of JSON) is detected from its bytes.

    columns, known: as in `json_events`; an Avro file contains its own. An empty file has no events
        (ST-178). One batch is in memory at a time, from about 8 MiB of the file, or from one larger
        block. Raises UnreadableEvents, also after batches: use none of them before the last one has
        been read.
    """
    start = file.read(len(MAGIC))
    file.seek(0)
    if start == MAGIC:
        return avro_events(file)
    return json_events(file, columns, known)
