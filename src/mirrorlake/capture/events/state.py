"""What a stream remembers of its event files, in `events.json` beside its other records.

A batch of files is noted before the first of them is written, and noted as durable afterwards. So
after a crash in between the same changes make the same files again, with the same names and ids.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any, Self

from mirrorlake.capture.record import Records
from mirrorlake.model.landed import FORMAT, LaterFormat

_FILE = "events.json"


@dataclass(frozen=True, slots=True)
class AssignedBatch:
    """A batch whose files may be written in part. number: in its names and ids; through: the point
    up to which its changes go; read: when they were read, in milliseconds."""

    number: int
    through: str
    read: int


@dataclass(frozen=True, slots=True)
class EventState:
    """destination: where the files are. batch: the number of the next batch; the first is the
    moment at which the stream began, so that no two streams of one name share a number.
    position: up to where everything is durable, empty before the first cut. tables: what is
    loaded, with the point of its load and what it was loaded as. loads: complete loads that wait to
    be seen, with their files.
    """

    destination: str
    batch: int = 0
    position: str = ""
    assigned: AssignedBatch | None = None
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    loads: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def begin(cls, records: Records, destination: str, now: datetime) -> None:
        """Begin to write to a destination, if that is not what the stream does already."""
        if cls.read(records, destination).batch == 0:
            cls(destination, int(now.timestamp() * 1000)).write(records)

    @classmethod
    def read(cls, records: Records, destination: str) -> Self:
        """As it is stored; nothing where the files went to another destination."""
        found = _stored(records)
        if found is None or found["destination"] != destination:
            return cls(destination)
        batch = found["assigned"]
        return cls(
            destination,
            found["batch"],
            found["position"],
            AssignedBatch(**batch) if batch else None,
            found["tables"],
            found["loads"],
        )

    def write(self, records: Records) -> None:
        content = {"format": FORMAT, "stream_id": records.stream_id, **asdict(self)}
        text = json.dumps(content, indent=1, ensure_ascii=False)
        records.store.replace(f"{records.folder}/{_FILE}", text.encode())

    def without(self, table: str) -> EventState:
        """The table begins anew."""
        return replace(
            self,
            tables={name: facts for name, facts in self.tables.items() if name != table},
            loads={name: facts for name, facts in self.loads.items() if name != table},
        )


def delivered(records: Records) -> list[str]:
    """The tables of which event files were written."""
    found = _stored(records)
    return sorted(found["tables"]) if found else []


def forget(records: Records, table: str) -> None:
    """The table is loaded again, whatever the destination is."""
    found = _stored(records)
    if found is not None:
        EventState.read(records, found["destination"]).without(table).write(records)


def forget_all(records: Records) -> None:
    """The stream begins anew; numbers of batches go on, as files of earlier ones are there."""
    found = _stored(records)
    if found is not None:
        EventState(found["destination"], found["batch"] + 1).write(records)


def _stored(records: Records) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(records.store.read(f"{records.folder}/{_FILE}"))
    except FileNotFoundError:
        return None
    if found["format"] != FORMAT:
        raise LaterFormat(
            f"{_FILE} has format {found['format']}; this release reads format {FORMAT}"
        )
    return found
