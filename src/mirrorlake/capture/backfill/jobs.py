"""Requested backfills and their progress: records below those of the stream.

`<id>.request.json` and `<id>.stop.json` are created by the process that requests it, once each;
`<id>.json` holds the progress, and only capture writes it. So each file has a single writer. The
folder `<id>` has the parts that are read of a table without ranges (`noted_rows.py`), until the
backfill is over.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

from mirrorlake.capture.records.files import UNREADABLE
from mirrorlake.capture.records.records import Records
from mirrorlake.errors import UsageError
from mirrorlake.model.keys import ColumnBounds, KeyRange
from mirrorlake.model.landed import FORMAT, LaterFormat, format_time, parse_time
from mirrorlake.model.table import TableId, is_printed
from mirrorlake.storage.store import read_record

FOLDER = "backfills"
REQUEST, STOP, STATE = ".request.json", ".stop.json", ".json"
_LOST = (
    "Restore it from a backup. Without one, delete it, and run `mirrorlake backfill` for each "
    "table: the rows of one may be missing."
)
_ID = re.compile(r"[0-9a-z-]{1,64}")


class BackfillJobState(StrEnum):
    """The state of a backfill, by the names of ST-284."""

    PENDING = "PENDING"  # requested; capture has not begun it
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
    """A requested backfill. keys: the first and the last value of the first key column, as texts;
    None for the whole table. max_bytes_per_second: of rows in memory. requested: when, RFC 3339.
    reason: why capture requested it itself, because the table differs; it stops when such a
    backfill ends before it is complete. saved: columns of the mirror with former values, which are
    dropped when it is. within: of the keys, those that may differ; None for all."""

    id: str
    table: str
    keys: tuple[str, str] | None = None
    max_rows_per_second: int | None = None
    requested: str = ""
    reason: str = ""
    saved: tuple[str, ...] = ()
    max_bytes_per_second: int | None = None
    within: ColumnBounds | None = None

    @property
    def is_whole(self) -> bool:
        """Whether all rows of the table are read."""
        return self.keys is None and self.within is None


@dataclass(frozen=True, slots=True)
class BackfillJob:
    """A backfill and how far it is.

    rows, chunks: read and landed. left: the keys that are still to be read, as `KeyRange` records
    them; None before the first chunk. expected: the rows to read by the source's own estimate,
    None where it does not say, and of a range before its first chunk is read. started, updated:
    RFC 3339, empty before. message: why it ended, where that needs one. bytes: of the rows in
    memory. seconds: how long it took to read and land them, without those in which capture did not
    run.
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
    bytes: int = 0
    seconds: float = 0.0

    @property
    def is_due(self) -> bool:
        """Whether its table differs from the source until it is complete."""
        return bool(self.request.reason) and not self.state.is_over

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
        """The estimated time left, from the time taken so far; None when it is unknown."""
        if self.state is not BackfillJobState.ACTIVE or not (self.rows and self.expected):
            return None
        return max(self.expected - self.rows, 0) * self.seconds / self.rows

    def per_second(self) -> tuple[float, float] | None:
        """Rows and bytes per second so far; None before the first chunk."""
        if self.seconds <= 0:
            return None
        return self.rows / self.seconds, self.bytes / self.seconds

    def as_facts(self) -> dict[str, Any]:
        """As `status --json` prints it. Seconds are absent when unknown."""
        facts = asdict(self.request) | {"keys": list(self.request.keys or ()) or None}
        rows_per_second, bytes_per_second = self.per_second() or (None, None)
        facts |= {"state": str(self.state), "rows": self.rows, "chunks": self.chunks}
        facts |= {
            "bytes": self.bytes,
            "rows_per_second": rows_per_second and round(rows_per_second, 1),
            "bytes_per_second": bytes_per_second and round(bytes_per_second, 1),
        }
        facts |= {"expected_rows": self.expected, "started": self.started, "updated": self.updated}
        left = self.seconds_left()
        return facts | {
            "seconds_left": None if left is None else round(left, 1),
            "message": self.message,
        }

    @classmethod
    def parse(cls, request: BackfillRequest, record: Mapping[str, Any]) -> Self:
        """How far a request is, by its record. Raises what UNREADABLE lists."""
        took = 0.0  # by a release that did not record it
        if "seconds" not in record and record["started"]:
            began, updated = parse_time(record["started"]), parse_time(record["updated"])
            took = (updated - began).total_seconds()
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
            int(record.get("bytes", 0)),
            float(record.get("seconds", took)),
        )


def _required(
    table: str,
    reason: str,
    now: datetime,
    saved: tuple[str, ...] = (),
    within: ColumnBounds | None = None,
) -> BackfillRequest:
    return BackfillRequest(
        str(uuid.uuid4()),
        table,
        requested=format_time(now),
        reason=reason,
        saved=saved,
        within=within,
    )


@dataclass(frozen=True, slots=True)
class BackfillRecords:
    """Reads and writes the records of a stream's backfills."""

    records: Records

    @property
    def folder(self) -> str:
        return f"{self.records.folder}/{FOLDER}"

    def request(self, request: BackfillRequest) -> None:
        """Request a backfill. Records of finished ones of the table are removed.

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
        """Request a backfill, after those that were requested before. Records of finished ones of
        the table are removed."""
        self._drop([job for job in self._of(request.table) if job.state.is_over])
        self._create(request.id + REQUEST, asdict(request))

    def require(
        self,
        table: str,
        reason: str,
        now: datetime,
        but: Collection[str] = (),
        saved: tuple[str, ...] = (),
        within: ColumnBounds | None = None,
    ) -> None:
        """Request a backfill of a table that differs, unless there is one that has not begun, reads
        what is `within`, and has the columns to be `saved`. but: ids that are over."""
        for job in self.jobs(but):
            request = job.request
            is_waiting = request.reason and request.table == table and not job.started
            reads = request.is_whole or (request.keys is None and request.within == within)
            if is_waiting and reads and {*saved} <= {*request.saved}:
                return
        self.add(_required(table, reason, now, saved, within))

    def create(self, table: str, reason: str, now: datetime) -> None:
        """Request a backfill of a table that has none because it differs. No record is read."""
        new = _required(table, reason, now)
        self._create(new.id + REQUEST, asdict(new))

    def separate(self, tables: Collection[TableId]) -> None:
        """Request of each of these tables what an earlier release recorded under a name that
        several of them may have had there."""
        for job in self.jobs():
            if job.state.is_over or is_printed(job.request.table):
                continue
            meant = [table for table in tables if table.plain == job.request.table]
            for table in meant:
                self.add(replace(job.request, id=str(uuid.uuid4()), table=str(table)))
            if meant:
                self._drop([job])

    def stop(self, job: BackfillJob) -> None:
        """Request the end of a backfill."""
        try:
            self._create(job.request.id + STOP, {})
        except FileExistsError:
            return  # requested before

    def drop(self, table: str) -> None:
        """Remove the records of a table's backfills."""
        self._drop(self._of(table))

    def drop_all(self) -> None:
        """Remove the records of all backfills."""
        self._drop(self.jobs())

    def parts_of(self, job: BackfillJob) -> str:
        """The folder of the parts that a backfill has read of a table without ranges."""
        return f"{self.folder}/{job.request.id}"

    def drop_parts(self, job: BackfillJob) -> None:
        """Remove the parts that a backfill has read, which is over. What another thread is still
        staging is left to the next call."""
        with suppress(OSError):
            self.records.store.delete_folder(self.parts_of(job))

    def _drop(self, jobs: Sequence[BackfillJob]) -> None:
        for job in jobs:
            self.drop_parts(job)
            for kind in (REQUEST, STOP, STATE):
                self.records.store.delete(f"{self.folder}/{job.request.id}{kind}")

    def _of(self, table: str) -> list[BackfillJob]:
        return [job for job in self.jobs() if job.request.table == table]

    def jobs(self, but: Collection[str] = ()) -> list[BackfillJob]:
        """All that there are records of, `but` some ids, in the order in which they were
        requested."""
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

    def due(self, jobs: Sequence[BackfillJob]) -> dict[str, BackfillJob]:
        """By table name the first of these that is due, of tables whose rows are loaded: of the
        others it is known that they lack rows."""
        due = [job for job in jobs if job.is_due]
        unloaded = self.records.unloaded() if due else set()
        return {j.request.table: j for j in reversed(due) if j.request.table not in unloaded}

    def being_read(self) -> set[str]:
        """The tables all rows of which are read, or will be."""
        return {
            job.request.table
            for job in self.jobs()
            if job.request.is_whole and not job.state.is_over
        }

    def stopped(self) -> set[str]:
        """The ids of those that were requested to end."""
        names = {file.name for file in self.records.store.list(self.folder).files}
        return {name.removesuffix(STOP) for name in names if name.endswith(STOP)}

    def write(self, job: BackfillJob) -> None:
        """Record how far a backfill is."""
        record = {name: value for name, value in asdict(job).items() if name != "request"}
        content = json.dumps({"format": FORMAT, **record}, indent=1).encode()
        self.records.store.replace(f"{self.folder}/{job.request.id}{STATE}", content)

    def _job(self, number: str, names: set[str]) -> BackfillJob | None:
        """None when it was removed meanwhile. Raises RecordDamaged."""
        try:
            record = self._read(number + REQUEST)
            keys = record["keys"]
            tables = self.records.printed_names(str(record["table"]))
            request = BackfillRequest(
                number,
                tables[0] if len(tables) == 1 else str(record["table"]),
                None if keys is None else (str(keys[0]), str(keys[1])),
                record["max_rows_per_second"],
                str(record["requested"]),
                str(record.get("reason", "")),
                tuple(map(str, record.get("saved", ()))),
                record.get("max_bytes_per_second"),
                ColumnBounds(**within) if (within := record.get("within")) else None,
            )
            if number + STATE not in names:
                return BackfillJob(request)
            return BackfillJob.parse(request, self._read(number + STATE))
        except FileNotFoundError:
            return None

    def _create(self, name: str, record: Mapping[str, Any]) -> None:
        content = json.dumps({"format": FORMAT, **record}, indent=1, ensure_ascii=False)
        self.records.store.create(f"{self.folder}/{name}", content.encode())

    def _read(self, name: str) -> dict[str, Any]:
        record = read_record(self.records.store, f"{self.folder}/{name}", _LOST)
        if record["format"] != FORMAT:
            raise LaterFormat(
                f"{name} has format {record['format']}; this release reads format {FORMAT}"
            )
        return record
