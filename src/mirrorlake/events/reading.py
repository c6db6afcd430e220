"""Event files, whoever wrote them: their events in columns, and what is wrong with each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO

from mirrorlake.events.decode.avro_events import avro_events
from mirrorlake.events.decode.avro_file import MAGIC
from mirrorlake.events.decode.batch import EventBatch
from mirrorlake.events.decode.json_events import json_events
from mirrorlake.events.types import EventColumn, UnifiedType


def read_events(
    file: BinaryIO,
    *,
    columns: Sequence[EventColumn] | None = None,
    known: Mapping[str, UnifiedType] | None = None,
) -> Iterator[EventBatch]:
    """The events of a file, at its beginning, Avro or lines of JSON: what it is, its bytes say.

    columns, known: as `json_events`; an Avro file names its own. An empty file has no events
    (ST-178). In memory is one batch, of about 8 MiB of the file or of one block where it is larger.
    Raises UnreadableEvents, also after batches: none of them may be used before the last has come.
    """
    start = file.read(len(MAGIC))
    file.seek(0)
    if start == MAGIC:
        return avro_events(file)
    return json_events(file, columns, known)
