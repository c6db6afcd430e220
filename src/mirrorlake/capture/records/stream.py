"""The stream itself: its source, its place in the log, and the sinks that joined it."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from mirrorlake.capture.records.files import RecordFiles
from mirrorlake.capture.records.names import SINKS, STREAM

_SECRET = 32  # bytes


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """`stream.json`. `start` is empty until the place in the source's log is made; before that,
    `made` is what is about to be made in the source, so that a crash leaves it known. `repair`:
    why the stream gets a new start; empty when it does not. `secret`: as `Source.stream` has it;
    earlier releases had none."""

    stream: str
    source: Mapping[str, str]
    start: str = ""
    made: Sequence[str] = ()
    repair: str = ""
    secret: str = field(default="", repr=False)

    @classmethod
    def new(cls, source: Mapping[str, str], intended: Sequence[str] = ()) -> Self:
        return cls(str(uuid.uuid4()), source, made=intended, secret=secrets.token_hex(_SECRET))

    @property
    def is_established(self) -> bool:
        return bool(self.start)

    @property
    def is_complete(self) -> bool:
        """Whether the stream may continue from its position in the log."""
        return self.is_established and not self.repair

    def established(self, start: str, made: Sequence[str]) -> StreamRecord:
        return replace(self, start=start, made=made)


class StreamRecords(RecordFiles):
    """`stream.json` and `sinks.json`."""

    __slots__ = ()

    def stream(self) -> StreamRecord | None:
        record = self._read(STREAM)
        if not record:
            return None
        return StreamRecord(
            record["stream"],
            record["source"],
            record["start"],
            record["made"],
            record.get("repair", ""),
            record.get("secret", ""),
        )

    def write_stream(self, record: StreamRecord) -> None:
        self._write(STREAM, asdict(record))

    def secret_of(self, record: StreamRecord) -> str:
        """The secret of a stream, which one of an earlier release gets now."""
        if not record.secret:
            record = replace(record, secret=secrets.token_hex(_SECRET))
            self.write_stream(record)
        return record.secret

    def joined(self, sink: str, record: StreamRecord) -> str | None:
        """The point from which on a sink takes part; None where that is the start of the stream."""
        found: str | None = self._joined(record).get(sink)
        return found

    def join(self, sink: str, record: StreamRecord, point: str) -> None:
        """A sink takes part from a point on, until the stream gets another start."""
        sinks = self._joined(record) | {sink: point}
        self._write(SINKS, {"start": record.start, "sinks": sinks})

    def _joined(self, record: StreamRecord) -> dict[str, Any]:
        found = self._read(SINKS)
        return dict(found["sinks"]) if found.get("start") == record.start else {}
