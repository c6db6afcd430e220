"""The state of a stream's event files, in `events.json` beside its other records: by destination.

A batch of files is noted before the first of them is written, and noted as durable afterwards. So
after a crash in between the same changes make the same files again, with the same names and ids.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from mirrorlake.capture.records.names import EVENTS
from mirrorlake.capture.records.records import Records
from mirrorlake.latencies import LatencyHistogram
from mirrorlake.model.landed import LaterFormat
from mirrorlake.model.table import TableId, is_printed
from mirrorlake.storage.store import read_record

_FORMAT = 5
"""Format 1 had one destination, format 2 no times, format 3 no `cuts`, and format 4 no `latest`."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class AssignedBatch:
    """A batch whose files may be written in part. number: in its names and ids; through: the point
    up to which its changes go; read: when they were read, in milliseconds. cuts: of each table that
    is larger than a file, the numbers of the changes with which further files begin: sizes may
    differ when values that were not sent are read again."""

    number: int
    through: str
    read: int
    cuts: Mapping[str, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """When the last change of a batch was committed in the source, when the batch was read, and
    when its files were written, in milliseconds since 1970."""

    committed: int
    read: int
    written: int


@dataclass(frozen=True, slots=True)
class StreamLatencies:
    """Of the last changes of the batches of all tables: from their reading (system) and from their
    commit in the source (total) until their files are written (ST-305)."""

    system: LatencyHistogram = field(default_factory=LatencyHistogram)
    total: LatencyHistogram = field(default_factory=LatencyHistogram)

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> Self:
        return cls(**{name: LatencyHistogram(**one) for name, one in stored.items()})

    @classmethod
    def of(cls, times: BatchTimes) -> Self:
        one = cls()
        one.system.add(max(times.written - times.read, 0) / 1000)
        one.total.add(max(times.written - times.committed, 0) / 1000)
        return one

    def __add__(self, other: StreamLatencies) -> StreamLatencies:
        return StreamLatencies(self.system + other.system, self.total + other.total)


@dataclass(frozen=True, slots=True)
class WrittenEvents:
    """What was written of a table. bytes: of its files; unsupported: changes and rows that became
    no events, because a value was not sent and its row no longer exists, or because they are larger
    than an event may be; last: the times of the last batch, None before the first, and for loads
    and backfills."""

    events: int = 0
    bytes: int = 0
    unsupported: int = 0
    last: BatchTimes | None = None

    def __add__(self, other: WrittenEvents) -> WrittenEvents:
        known = [one.last for one in (self, other) if one.last is not None]
        return WrittenEvents(
            self.events + other.events,
            self.bytes + other.bytes,
            self.unsupported + other.unsupported,
            max(known, key=lambda one: one.written, default=None),
        )

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> Self:
        last = stored.get("last")
        return cls(**{**stored, "last": BatchTimes(**last) if last else None})


@dataclass(frozen=True, slots=True)
class EventState:
    """destination: where the files are. batch: the number of the next batch; the first is the
    moment at which the stream began, so that no two streams of one name share a number.
    position: up to where everything is durable, empty before the first cut. tables: what is
    loaded, with the point of its load and what it was loaded as. loads: complete loads that wait to
    be seen, with their files. written: of each table, since the stream began; latencies: of all.
    latest: of each table, the latest source time of its events, in milliseconds since 1970.

    Invariant: the events of a table have source times that never decrease in the order of the log,
    by which consumers find the last one of a key, also when the clock of the source is set back.
    `latest` is of everything up to `position`, and of loads and backfills, for which it is noted
    before their files are written. So the same changes get the same times when they come again.
    """

    destination: str
    batch: int = 0
    position: str = ""
    assigned: AssignedBatch | None = None
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    loads: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    written: Mapping[str, WrittenEvents] = field(default_factory=dict)
    latencies: StreamLatencies = field(default_factory=StreamLatencies)
    latest: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def begin(cls, records: Records, destination: str, now: datetime) -> None:
        """Begin to write to a destination, if that is not what the stream does already."""
        if cls.read(records, destination).batch == 0:
            cls(destination, int(now.timestamp() * 1000)).write(records)

    @classmethod
    def read(cls, records: Records, destination: str) -> Self:
        """As it is stored; nothing for a destination to which none of its files went."""
        found = _stored(records).get(destination)
        if found is None:
            return cls(destination)
        batch = found["assigned"]
        return cls(
            destination,
            found["batch"],
            found["position"],
            AssignedBatch(**batch) if batch else None,
            found["tables"],
            found["loads"],
            _written(found),
            _latencies(found),
            found.get("latest", {}),
        )

    def write(self, records: Records) -> None:
        destinations = _stored(records) | {self.destination: asdict(self)}
        content = {"format": _FORMAT, "stream_id": records.stream_id, "destinations": destinations}
        text = json.dumps(content, indent=1, ensure_ascii=False)
        records.store.replace(f"{records.folder}/{EVENTS}", text.encode())

    def wrote(self, table: str, more: WrittenEvents) -> EventState:
        """More was written of a table."""
        known = self.written.get(table, WrittenEvents())
        times = self.latencies + StreamLatencies.of(more.last) if more.last else self.latencies
        return replace(self, written={**self.written, table: known + more}, latencies=times)

    def read_at(self, table: str, taken: datetime) -> tuple[EventState, int]:
        """Rows of a table were read that `taken` is not later than, by the clock of the source.
        Returns what is to be noted first, and the source time of their events: after all earlier
        ones where the clock was set back."""
        time, latest = milliseconds(taken), self.latest.get(table, 0)
        if time < latest:
            time = latest + 1
        return self.reached(table, time), time

    def reached(self, table: str, time: int) -> EventState:
        """The events of a table have source times up to this one."""
        time = max(time, self.latest.get(table, 0))
        return replace(self, latest={**self.latest, table: time})

    def without(self, table: str) -> EventState:
        """Without the table, which is loaded again."""
        return replace(
            self,
            tables={name: facts for name, facts in self.tables.items() if name != table},
            loads={name: facts for name, facts in self.loads.items() if name != table},
        )


def milliseconds(moment: datetime) -> int:
    """Since 1970, as events have times."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def delivered(records: Records) -> list[str]:
    """The tables of which event files were written."""
    return sorted({table for state in _stored(records).values() for table in state["tables"]})


def written(records: Records) -> dict[str, WrittenEvents]:
    """Of each table, in all destinations together."""
    found: dict[str, WrittenEvents] = {}
    for state in _stored(records).values():
        for table, more in _written(state).items():
            found[table] = found.get(table, WrittenEvents()) + more
    return found


def latencies(records: Records) -> StreamLatencies:
    """In all destinations together."""
    return sum(map(_latencies, _stored(records).values()), StreamLatencies())


def _latencies(stored: Mapping[str, Any]) -> StreamLatencies:
    return StreamLatencies.parse(stored.get("latencies", {}))


def _written(stored: Mapping[str, Any]) -> dict[str, WrittenEvents]:
    return {table: WrittenEvents.parse(one) for table, one in stored.get("written", {}).items()}


def forget(records: Records, table: str) -> None:
    """Forget a table in all destinations, so that it is loaded again."""
    for destination in _stored(records):
        EventState.read(records, destination).without(table).write(records)


def forget_all(records: Records) -> None:
    """Reset the stream. Batch numbers and times continue, because the files of earlier batches
    remain."""
    for destination, found in _stored(records).items():
        latest = found.get("latest", {})
        EventState(destination, found["batch"] + 1, latest=latest).write(records)


def _printed(state: dict[str, Any]) -> dict[str, Any]:
    """A state by the names of tables that are printed now: an earlier release put no part of a name
    in quotes. Of loaded tables the parts are recorded."""
    tables = {_name(facts): facts for facts in state["tables"].values()}
    loads = {_name(load["table"]): load for load in state["loads"].values()}
    now = {TableId.parse(name).plain: name for name in (*tables, *loads)}

    def renamed(found: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name if is_printed(name) else now.get(name, name): one for name, one in found.items()
        }

    state = state | {"tables": tables, "loads": loads}
    state |= {part: renamed(state[part]) for part in ("written", "latest") if part in state}
    if batch := state["assigned"]:
        state["assigned"] = batch | {"cuts": renamed(batch.get("cuts", {}))}
    return state


def _name(facts: Mapping[str, Any]) -> str:
    return str(TableId(facts["schema"], facts["name"]))


_LOST = (
    "Restore it from a backup. Without one it is not known which event files are written: begin "
    "anew with another root, and another path of the destination."
)


def _stored(records: Records) -> dict[str, dict[str, Any]]:
    """By destination."""
    try:
        found = read_record(records.store, f"{records.folder}/{EVENTS}", _LOST)
    except FileNotFoundError:
        return {}
    match int(found["format"]):
        case 1:
            return {found["destination"]: _printed(found)}
        case 2 | 3 | 4 | 5:
            return {name: _printed(one) for name, one in found["destinations"].items()}
    raise LaterFormat(f"{EVENTS} has format {found['format']}; this release reads up to {_FORMAT}")
