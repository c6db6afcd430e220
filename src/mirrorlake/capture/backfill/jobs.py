"""What was asked to be backfilled, and how far it is: records below those of the stream.

`<id>.request.json` and `<id>.stop.json` are made by whoever asks, once each; `<id>.json` says how
far it is, and only capture writes it. So nobody overwrites what another says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

from mirrorlake.capture.record import UNREADABLE, Records
from mirrorlake.errors import UsageError
from mirrorlake.model.keys import KeyRange
from mirrorlake.model.landed import FORMAT, LaterFormat, format_time, parse_time

FOLDER = "backfills"
REQUEST, STOP, STATE = ".request.json", ".stop.json", ".json"
_ID = re.compile(r"[0-9a-z-]{1,64}")


class BackfillJobState(StrEnum):
    """How a backfill stands, in the words of ST-284."""

    PENDING = "PENDING"  # asked for; capture has not begun it
    ACTIVE = "ACTIVE"  # chunks are read and landed; goes on after a restart
    STOPPED = "STOPPED"  # on request; another one starts from the beginning
    FAILED = "FAILED"  # ended by an error
    COMPLETED = "COMPLETED"  # all chunks are landed
    UNSUPPORTED = "UNSUPPORTED"  # the table cannot be read by ranges of its key

    @property
    def is_over(self) -> bool:
        return self not in {BackfillJobState.PENDING, BackfillJobState.ACTIVE}


@dataclass(frozen=True, slots=True)
class BackfillRequest:
    """What was asked for. keys: the first and the last value of the first key column, as texts;
    None for the whole table. requested: when, RFC 3339. reason: why capture asked for it by itself,
    because the table differs; it stops when such a backfill ends before it is complete."""

    id: str
    table: str
    keys: tuple[str, str] | None = None
    max_rows_per_second: int | None = None
    requested: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class BackfillJob:
    """A backfill and how far it is.

    rows, chunks: read and landed. left: the keys that are still to be read, as `KeyRange` records
    them; None before the first chunk. expected: the rows of the table by the source's own estimate,
    None where it does not say, or for a range. started, updated: RFC 3339, empty before. message:
    why it ended, where that needs one.
    """

    request: BackfillRequest
    state: BackfillJobState = BackfillJobState.PENDING
    rows: int = 0
    chunks: int = 0
    left: Mapping[str, Any] | None = field(default=None, compare=False)
    expected: int | None = None
    started: str = ""
    updated: str = ""
    message: str = ""

    def remaining(self) -> KeyRange | None:
        """The keys that are still to be read, None where that is not known."""
        try:
            return KeyRange.parse(self.left) if self.left else None
        except UNREADABLE:
            return None

    def now(self, time: datetime, **changes: Any) -> BackfillJob:
        """The job with these changes, as of a time."""
        said = format_time(time)
        return replace(self, started=self.started or said, updated=said, **changes)

    def seconds_left(self) -> float | None:
        """About how long it takes yet, from how long it took so far; None when nobody knows."""
        if self.state is not BackfillJobState.ACTIVE or not (self.rows and self.expected):
            return None
        took = (parse_time(self.updated) - parse_time(self.started)).total_seconds()
        return max(self.expected - self.rows, 0) * took / self.rows

    def as_facts(self) -> dict[str, Any]:
        """As `status --json` prints it. Seconds are absent when unknown."""
        facts = asdict(self.request) | {"keys": list(self.request.keys or ()) or None}
        facts |= {"state": str(self.state), "rows": self.rows, "chunks": self.chunks}
        facts |= {"expected_rows": self.expected, "started": self.started, "updated": self.updated}
        left = self.seconds_left()
        return facts | {
            "seconds_left": None if left is None else round(left, 1),
            "message": self.message,
        }

    @classmethod
    def parse(cls, request: BackfillRequest, record: Mapping[str, Any]) -> Self:
        """How far a request is, by its record. Raises what UNREADABLE lists."""
        return cls(
            request,
            BackfillJobState(record["state"]),
            int(record["rows"]),
            int(record["chunks"]),
            record["left"],
            record["expected"],
            record["started"],
            record["updated"],
            record["message"],
        )


@dataclass(frozen=True, slots=True)
class BackfillRecords:
    """Reads and writes the records of a stream's backfills."""

    records: Records

    @property
    def folder(self) -> str:
        return f"{self.records.folder}/{FOLDER}"

    def request(self, request: BackfillRequest) -> None:
        """Ask for a backfill. Records of others of the table that are over are removed.

        Raises UsageError while there is one that is not.
        """
        if not _ID.fullmatch(request.id):
            raise ValueError(f"not the id of a backfill: {request.id!r}")
        for job in self._of(request.table):
            if not job.state.is_over:
                raise UsageError(
                    f"{request.table} has a backfill already, {job.request.id}",
                    where="backfill",
                    hint=f"`mirrorlake backfill {request.table} --stop` ends it.",
                )
        self.add(request)

    def add(self, request: BackfillRequest) -> None:
        """Ask for a backfill behind whatever else was asked for. Records of others of the table
        that are over are removed."""
        self._drop([job for job in self._of(request.table) if job.state.is_over])
        self._create(request.id + REQUEST, asdict(request))

    def stop(self, job: BackfillJob) -> None:
        """Ask for the end of a backfill."""
        try:
            self._create(job.request.id + STOP, {})
        except FileExistsError:
            return  # somebody asked before

    def drop(self, table: str) -> None:
        """Remove the records of a table's backfills."""
        self._drop(self._of(table))

    def _drop(self, jobs: Sequence[BackfillJob]) -> None:
        for job in jobs:
            for kind in (REQUEST, STOP, STATE):
                self.records.store.delete(f"{self.folder}/{job.request.id}{kind}")

    def _of(self, table: str) -> list[BackfillJob]:
        return [job for job in self.jobs() if job.request.table == table]

    def jobs(self, but: Collection[str] = ()) -> list[BackfillJob]:
        """All that there are records of, `but` some ids, in the order in which they were asked
        for."""
        names = {file.name for file in self.records.store.list(self.folder).files}
        found = []
        for name in sorted(names):
            number = name.removesuffix(REQUEST)
            if (
                name != number
                and number not in but
                and _ID.fullmatch(number)
                and (job := self._job(number, names))
            ):
                found.append(job)
        return sorted(found, key=lambda job: (job.request.requested, job.request.id))

    def is_to_stop(self, job: BackfillJob) -> bool:
        names = {file.name for file in self.records.store.list(self.folder).files}
        return job.request.id + STOP in names

    def write(self, job: BackfillJob) -> None:
        """Record how far a backfill is."""
        record = {name: value for name, value in asdict(job).items() if name != "request"}
        content = json.dumps({"format": FORMAT, **record}, indent=1).encode()
        self.records.store.replace(f"{self.folder}/{job.request.id}{STATE}", content)

    def _job(self, number: str, names: set[str]) -> BackfillJob | None:
        """None when it was removed meanwhile, or cannot be read."""
        try:
            record = self._read(number + REQUEST)
            keys = record["keys"]
            request = BackfillRequest(
                number,
                str(record["table"]),
                None if keys is None else (str(keys[0]), str(keys[1])),
                record["max_rows_per_second"],
                str(record["requested"]),
                str(record.get("reason", "")),
            )
            if number + STATE not in names:
                return BackfillJob(request)
            return BackfillJob.parse(request, self._read(number + STATE))
        except LaterFormat:
            raise
        except UNREADABLE:
            return None

    def _create(self, name: str, record: Mapping[str, Any]) -> None:
        content = json.dumps({"format": FORMAT, **record}, indent=1, ensure_ascii=False)
        self.records.store.create(f"{self.folder}/{name}", content.encode())

    def _read(self, name: str) -> dict[str, Any]:
        record: dict[str, Any] = json.loads(self.records.store.read(f"{self.folder}/{name}"))
        if record["format"] != FORMAT:
            raise LaterFormat(
                f"{name} has format {record['format']}; this release reads format {FORMAT}"
            )
        return record
