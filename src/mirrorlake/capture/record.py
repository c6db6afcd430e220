"""What a zone of ours remembers of its stream, beside the files themselves.

`stream.json` names the stream and its source, and says whether the place in the source's log is
made; `sinks.json` says from where on a sink takes part that joined later; `stopped.json` lists the
tables that are no longer captured, because acknowledging without them would otherwise lose their
changes silently; `known.json` holds by what the source recognises the tables, and from which point
on; `append_only.json` holds what the source has counted of tables whose updates and deletions are
not captured; `attached.json` holds what tables have that changes no row, and `without_effect.json`
the last changes of that; `unfollowed.json` lists the tables whose columns were altered so that rows
have other values, which the stream will not say before one of their rows changes, and
`ignored.json` those that differ by a change that the project ignores; `admitted.json` says which
tables take part where the project ignores tables that are created later; `deleted.json` names the
folders that were deleted because their tables were dropped in the source; `loads.json`, where not
every table is loaded, says of which the rows are; `outage.json` is there while the source does not
answer, and `awaited.json` while a transaction of others keeps it from taking a snapshot;
`retained.json` says how much of its log the source keeps, and `waiting_events.json` which events
wait for their file; `truncated.json` (strict zones) holds the position before which nothing of a
table may be published again.
"""

from __future__ import annotations

import json
import secrets
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any, Self

from mirrorlake.capture.watch.missed_changes import AppendOnly
from mirrorlake.errors import RecordDamaged
from mirrorlake.landing import layout
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.model.landed import (
    DEFAULT_STREAM,
    FORMAT,
    LaterFormat,
    format_time,
    parse_time,
    readable_time,
)
from mirrorlake.model.table import TableId, Value, is_printed
from mirrorlake.sources.base import AwaitedTransaction
from mirrorlake.sources.table import Attached, KnownTables
from mirrorlake.storage.store import Store, read_record

STREAM, STOPPED, TRUNCATED = "stream.json", "stopped.json", "truncated.json"
APPEND_ONLY = "append_only.json"
KNOWN = "known.json"
OUTAGE = "outage.json"
AWAITED = "awaited.json"
SINKS = "sinks.json"
RETAINED = "retained.json"
WAITING_EVENTS = "waiting_events.json"
LOADS = "loads.json"
ATTACHED, WITHOUT_EFFECT = "attached.json", "without_effect.json"
UNFOLLOWED, IGNORED = "unfollowed.json", "ignored.json"
ADMITTED = "admitted.json"
DELETED = "deleted.json"
EVENTS = "events.json"

_SECRET = 32  # bytes

_FLEETING = {OUTAGE, AWAITED, RETAINED, WAITING_EVENTS, ATTACHED, WITHOUT_EFFECT}
"""Capture writes these again by itself, and no change depends on them."""

LOST = (
    "Restore it from a backup. Without one, run `mirrorlake reset --all` to load all tables again."
)

UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError)
"""Errors of reading a record that another program has written."""


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


@dataclass(frozen=True, slots=True)
class Outage:
    """`outage.json`. since: when the source was first found not to answer; again: when the next
    attempt is; reason, hint: what it or the socket said last, and what to do about it."""

    since: datetime
    again: datetime
    reason: str
    hint: str = ""

    def __str__(self) -> str:
        return (
            f"the source is unreachable since {readable_time(self.since)}: {self.reason}; "
            f"the next attempt is at {self.again:%H:%M:%S}"
        )

    def facts(self) -> dict[str, Any]:
        return {
            "since": format_time(self.since),
            "again": format_time(self.again),
            "reason": self.reason,
            "hint": self.hint,
        }


@dataclass(frozen=True, slots=True)
class SnapshotWait:
    """`awaited.json`. since: when it was found that a snapshot waits for the transaction."""

    since: datetime
    transaction: AwaitedTransaction

    @property
    def hint(self) -> str:
        return self.transaction.remedy

    def facts(self) -> dict[str, Any]:
        awaited = self.transaction
        return {
            "since": format_time(self.since),
            "transaction": awaited.name,
            "began": format_time(awaited.began) if awaited.began else None,
            "hint": awaited.remedy,
            **awaited.facts,
        }

    @classmethod
    def parse(cls, facts: Mapping[str, Any]) -> Self:
        """Read what `facts` gives."""
        began = parse_time(facts["began"]) if facts["began"] else None
        ours = ("since", "transaction", "began", "hint")
        parts = {name: str(fact) for name, fact in facts.items() if name not in ours}
        found = AwaitedTransaction(facts["transaction"], began, facts["hint"], parts)
        return cls(parse_time(facts["since"]), found)


@dataclass(frozen=True, slots=True)
class WithoutEffect:
    """A change of a table's schema in the source that changes no row. at: when it was seen."""

    at: str
    change: str


@dataclass(frozen=True, slots=True)
class Unfollowed:
    """What was done to a table or its columns, and why the mirror does not have it; since: when it
    was seen."""

    since: str
    change: str


@dataclass(frozen=True, slots=True)
class Admission:
    """`admitted.json`. tables: those that take part, by name; left_out: tables that were created
    later, and when each was seen first."""

    tables: frozenset[str]
    left_out: Mapping[str, str]

    def with_tables(self, names: Collection[str]) -> Admission:
        left_out = {name: at for name, at in self.left_out.items() if name not in names}
        return Admission(self.tables | {*names}, left_out)


@dataclass(slots=True)
class Records:
    """Reads and writes the records of one stream in a zone. reached: called behind those by which a
    change of a schema is followed. forgets: what is damaged is read as if it were not there, for
    who forgets everything. Otherwise RecordDamaged is raised."""

    store: Store
    zone: str
    stream_id: str = DEFAULT_STREAM
    reached: CrashHook = field(default=no_crash, repr=False, compare=False)
    forgets: bool = False

    @property
    def folder(self) -> str:
        return layout.stream_folder(self.zone, self.stream_id)

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

    def stopped(self) -> dict[str, dict[str, Any]]:
        """Table name to the error that stopped its capture."""
        return self._tables(STOPPED)

    def failed(self) -> dict[str, dict[str, Any]]:
        """Those of `stopped` that are errors."""
        return {name: error for name, error in self.stopped().items() if not error.get("ignored")}

    def dropped(self) -> dict[str, dict[str, Any]]:
        """Those of `stopped` that are no errors: dropped in the source."""
        return {name: error for name, error in self.stopped().items() if error.get("ignored")}

    def stop(self, table: str, error: Mapping[str, Any]) -> None:
        self._write_stopped(self.stopped() | {table: dict(error)})

    def go_on(self, table: str) -> None:
        """The table is no longer stopped."""
        stopped = self.stopped()
        if stopped.pop(table, None) is not None:
            self._write_stopped(stopped)

    def _write_stopped(self, tables: Mapping[str, Any]) -> None:
        self._write(STOPPED, {"tables": dict(tables)})
        self.reached(CrashPoint.STOPPED_RECORDED)

    def forget(self, table: str) -> None:
        """Forget a table that starts over: what is recorded of it no longer holds."""
        _without(table, self.append_only(), self.write_append_only)
        _without(table, self.without_effect(), self.write_without_effect)
        _without(table, self.attached(), self.write_attached)
        _without(table, self.unfollowed(), self.write_unfollowed)
        _without(table, self.ignored(), self.write_ignored)
        self.go_on(table)
        _without(table, self.truncated(), self._write_truncated)
        known, pending = self.known(), self._pending()
        later = [entry for entry in pending if entry["tables"].pop(table, None) is not None]
        if known.pop(table, None) is not None or later:
            self._know(known, pending)

    def forget_all(self) -> None:
        """Forget all tables."""
        tables = (STOPPED, TRUNCATED, APPEND_ONLY, KNOWN, LOADS, ATTACHED, WITHOUT_EFFECT)
        for path in (*tables, UNFOLLOWED, IGNORED):
            self.store.delete(f"{self.folder}/{path}")

    def loads(self) -> dict[str, bool | None] | None:
        """By table name whether its rows are loaded, None where that is decided when it begins
        anew; None where all are."""
        found = self._read(LOADS)
        return self._printed(found["tables"]) if found else None

    def write_loads(self, tables: Mapping[str, bool | None]) -> None:
        self._write(LOADS, {"tables": dict(tables)})
        self.reached(CrashPoint.LOADS_RECORDED)

    def unloaded(self) -> set[str]:
        """The tables whose rows are not loaded."""
        return {name for name, is_loaded in (self.loads() or {}).items() if is_loaded is False}

    def load_rows(self, table: str) -> None:
        """The rows of the table are loaded, or will be."""
        loads = self.loads()
        if loads is not None and not loads.get(table, False):
            self.write_loads({**loads, table: True})

    def load_anew(self, table: str) -> None:
        """The table begins anew, and its rows are loaded, before changes or beside them."""
        loads = self.loads()
        if loads is not None and loads.get(table, False) is not None:
            self.write_loads({**loads, table: None})

    def append_only(self) -> dict[str, AppendOnly]:
        """By table name, as the last look found them."""
        found = self._tables(APPEND_ONLY)
        return {name: AppendOnly.parse(facts) for name, facts in found.items()}

    def write_append_only(self, tables: Mapping[str, AppendOnly]) -> None:
        found = {name: table.facts() for name, table in tables.items()}
        self._write(APPEND_ONLY, {"tables": found})
        self.reached(CrashPoint.APPEND_ONLY_RECORDED)

    def attached(self) -> dict[str, dict[str, Attached]]:
        """By table name `SourceTable.attached`, as of the last look."""
        found = self._tables(ATTACHED)
        return {
            name: {key: Attached(*facts) for key, facts in attached.items()}
            for name, attached in found.items()
        }

    def write_attached(self, tables: Mapping[str, Mapping[str, Attached]]) -> None:
        found = {
            name: {key: [a.label, a.state, a.column, a.type] for key, a in attached.items()}
            for name, attached in tables.items()
        }
        self._write(ATTACHED, {"tables": found})
        self.reached(CrashPoint.ATTACHED_RECORDED)

    def without_effect(self) -> dict[str, tuple[WithoutEffect, ...]]:
        """By table name the last changes of its schema that change no row, the oldest first."""
        found = self._tables(WITHOUT_EFFECT)
        return {name: tuple(WithoutEffect(**c) for c in changes) for name, changes in found.items()}

    def write_without_effect(self, tables: Mapping[str, Sequence[WithoutEffect]]) -> None:
        found = {name: [asdict(change) for change in changes] for name, changes in tables.items()}
        self._write(WITHOUT_EFFECT, {"tables": found})
        self.reached(CrashPoint.WITHOUT_EFFECT_RECORDED)

    def unfollowed(self) -> dict[str, Unfollowed]:
        """By table name, as of the last look."""
        found = self._tables(UNFOLLOWED)
        return {name: Unfollowed(**facts) for name, facts in found.items()}

    def write_unfollowed(self, tables: Mapping[str, Unfollowed]) -> None:
        found = {name: asdict(change) for name, change in tables.items()}
        self._write(UNFOLLOWED, {"tables": found})
        self.reached(CrashPoint.UNFOLLOWED_RECORDED)

    def ignored(self) -> dict[str, Unfollowed]:
        """By table name, until it is read again."""
        found = self._tables(IGNORED)
        return {name: Unfollowed(**facts) for name, facts in found.items()}

    def write_ignored(self, tables: Mapping[str, Unfollowed]) -> None:
        found = {name: asdict(change) for name, change in tables.items()}
        self._write(IGNORED, {"tables": found})
        self.reached(CrashPoint.IGNORED_RECORDED)

    def admission(self) -> Admission | None:
        """Which tables take part; None where the project ignores none."""
        found = self._read(ADMITTED)
        if not found:
            return None
        tables = self._printed(dict.fromkeys(found["tables"]))
        return Admission(frozenset(tables), self._printed(found["left_out"]))

    def write_admission(self, admission: Admission) -> None:
        left_out = dict(sorted(admission.left_out.items()))
        self._write(ADMITTED, {"tables": sorted(admission.tables), "left_out": left_out})
        self.reached(CrashPoint.ADMITTED_RECORDED)

    def admit(self, names: Collection[str]) -> None:
        """Let tables take part, whenever they were created."""
        if (found := self.admission()) is not None:
            self.write_admission(found.with_tables(names))

    def end_admission(self) -> None:
        """Let all tables take part."""
        self.store.delete(f"{self.folder}/{ADMITTED}")

    def deleted(self) -> dict[str, str]:
        """By table name the folders of those that were dropped in the source, which are deleted, or
        will be."""
        return self._tables(DELETED)

    def note_deleted(self, table: str, folder: str) -> None:
        """A folder is about to be deleted because its table was dropped in the source."""
        if (known := self.deleted()).get(table) != folder:
            self._write(DELETED, {"tables": known | {table: folder}})
            self.reached(CrashPoint.DELETED_RECORDED)

    def note_filled(self, folders: Collection[str]) -> None:
        """Tables are about to be loaded into these folders."""
        known = self.deleted()
        left = {name: folder for name, folder in known.items() if folder not in folders}
        if left != known:
            self._write(DELETED, {"tables": left})

    def known(self) -> dict[str, dict[str, Any]]:
        """Table name to `SourceTable.known`, as far as it counts; see `confirm`."""
        return self._tables(KNOWN)

    def know(self, tables: KnownTables, at: str = "") -> None:
        """By what tables are known from a point on, which counts from the next `confirm` on that
        covers it; without a point from now on."""
        noted = {str(table): dict(known) for table, known in tables.items()}
        known, pending = self.known(), self._pending()
        if at:
            self._know(known, [*pending, {"at": at, "tables": noted}])
            self.reached(CrashPoint.KNOWN_NOTED)
            return
        for entry in pending:
            entry["tables"] = {n: facts for n, facts in entry["tables"].items() if n not in noted}
        self._know(known | noted, pending)
        self.reached(CrashPoint.KNOWN_RECORDED)

    def confirm(self, is_durable: Callable[[str], bool], *, at_start: bool = False) -> None:
        """Let everything count that is known from points on that are durable. at_start: what else
        is noted does not hold, because it will be reported again."""
        known, pending = self.known(), self._pending()
        if not pending:
            return
        for entry in pending:
            known |= entry["tables"] if is_durable(entry["at"]) else {}
        left = [] if at_start else [entry for entry in pending if not is_durable(entry["at"])]
        if len(left) < len(pending):
            self._know(known, left)
            self.reached(CrashPoint.KNOWN_RECORDED)

    def _pending(self) -> list[dict[str, Any]]:
        pending = self._read(KNOWN).get("pending", ())
        return [entry | {"tables": self._printed(entry["tables"])} for entry in pending]

    def _know(
        self, known: Mapping[str, Mapping[str, Any]], pending: Sequence[Mapping[str, Any]]
    ) -> None:
        left = [entry for entry in pending if entry["tables"]]
        self._write(KNOWN, {"tables": known} | ({"pending": left} if left else {}))

    def retained(self) -> dict[str, Any] | None:
        """What the source kept of its log at the last look, as `Retention.facts` gives it."""
        found: dict[str, Any] | None = self._read(RETAINED).get("log")
        return found

    def write_retained(self, facts: Mapping[str, Any]) -> None:
        self._write(RETAINED, {"log": dict(facts)})

    def waiting_events(self) -> dict[str, dict[str, tuple[int, int]]]:
        """Of each destination of event files, of each table: the oldest event that was read and is
        not written. When it was committed in the source and when it was read, in milliseconds."""
        return {
            destination: {table: (committed, read) for table, (committed, read) in tables.items()}
            for destination, tables in self._read(WAITING_EVENTS).get("destinations", {}).items()
        }

    def write_waiting_events(
        self, destination: str, waiting: Mapping[str, tuple[int, int]]
    ) -> None:
        known = self.waiting_events()
        if known.get(destination) or waiting:
            self._write(WAITING_EVENTS, {"destinations": known | {destination: dict(waiting)}})

    def outage(self) -> Outage | None:
        """What is known of the source while it does not answer."""
        found = self._read(OUTAGE)
        if not found:
            return None
        since, again = parse_time(found["since"]), parse_time(found["again"])
        return Outage(since, again, found["reason"], found["hint"])

    def begin_outage(self, outage: Outage) -> None:
        self._write(OUTAGE, outage.facts())

    def end_outage(self) -> None:
        self.store.delete(f"{self.folder}/{OUTAGE}")

    def awaited(self) -> SnapshotWait | None:
        """For what a snapshot waits now."""
        found = self._read(AWAITED)
        return SnapshotWait.parse(found["wait"]) if found else None

    def begin_wait(self, wait: SnapshotWait) -> None:
        self._write(AWAITED, {"wait": wait.facts()})

    def end_wait(self) -> None:
        self.store.delete(f"{self.folder}/{AWAITED}")

    def truncated(self) -> dict[str, dict[str, str]]:
        """Table name to `position` and `generation` of its last truncation (strict zones), and to
        `schema` and `identity` of the table."""
        found: dict[str, dict[str, str]] = self._read(TRUNCATED).get("tables", {})
        # The folder of one may be deleted; of an earlier release its schema says what is its name.
        for former in [name for name in found if not is_printed(name)]:
            if schema := found[former].get("schema"):
                name = str(TableId(schema, former.removeprefix(f"{schema}.")))
                found.setdefault(name, found.pop(former))
        return self._printed(found)

    def truncate(
        self, table: TableId, position: str, generation: str, identity: str | None = None
    ) -> None:
        entry = {"position": position, "generation": generation}
        entry |= {"schema": table.schema, "identity": identity} if identity else {}
        self._write_truncated(self.truncated() | {str(table): entry})

    def _write_truncated(self, tables: Mapping[str, Any]) -> None:
        self._write(TRUNCATED, {"tables": dict(tables)})
        self.reached(CrashPoint.TRUNCATED_RECORDED)

    def _tables(self, path: str) -> dict[str, Any]:
        return self._printed(self._read(path).get("tables", {}))

    def _printed(self, tables: Mapping[str, Value]) -> dict[str, Value]:
        """What is recorded of tables, by the names that are printed now: an earlier release put no
        part of a name in quotes."""
        if all(map(is_printed, tables)):
            return dict(tables)
        delivered = self._delivered()
        found = {name: one for name, one in tables.items() if is_printed(name)}
        for former in tables.keys() - found.keys():
            for name in self.printed_names(former, delivered):
                found.setdefault(name, tables[former])
        return found

    def rewrite(self) -> None:
        """Write what an earlier release recorded of tables under the names that are printed now,
        while their folders, which say what these are, are there."""
        tables = (STOPPED, TRUNCATED, APPEND_ONLY, LOADS, ATTACHED, WITHOUT_EFFECT)
        for path in (*tables, UNFOLLOWED, IGNORED):
            self._rewrite(path)
        if (known := self.known()).keys() != self._read(KNOWN).get("tables", {}).keys():
            self._know(known, self._pending())

    def _rewrite(self, path: str) -> None:
        record = self._read(path)
        if not all(map(is_printed, tables := record.get("tables", {}))):
            now = self.truncated() if path == TRUNCATED else self._printed(tables)
            self._write(path, {"tables": now})

    def printed_names(self, text: str, delivered: Collection[TableId] | None = None) -> list[str]:
        """As in `layout`, also of tables of which event files were written. delivered: these, if
        they are known."""
        names = layout.printed_names(self.store, self.zone, text)
        if all(map(is_printed, names)):
            return names
        known = self._delivered() if delivered is None else delivered
        return [str(table) for table in known if table.plain == text] or names

    def _delivered(self) -> set[TableId]:
        """The tables of which event files were written; the record names their parts."""
        try:
            stored = json.loads(self.store.read(f"{self.folder}/{EVENTS}"))
            states = [*stored["destinations"].values()] if "destinations" in stored else [stored]
            tables = [facts for state in states for facts in state["tables"].values()]
            return {TableId(facts["schema"], facts["name"]) for facts in tables}
        except UNREADABLE:
            return set()

    def _read(self, path: str) -> dict[str, Any]:
        try:
            record = read_record(self.store, f"{self.folder}/{path}", LOST)
        except FileNotFoundError:
            return {}
        except RecordDamaged:
            if self.forgets or path in _FLEETING:
                return {}
            raise
        if record["format"] != FORMAT:
            raise LaterFormat(
                f"{path} has format {record['format']}; this release reads format {FORMAT}"
            )
        return record

    def _write(self, path: str, record: dict[str, Any]) -> None:
        stored = {"format": FORMAT, "stream_id": self.stream_id, **record}
        content = json.dumps(stored, indent=1, ensure_ascii=False)
        self.store.replace(f"{self.folder}/{path}", content.encode())


def _without(table: str, found: dict[str, Any], write: Callable[[dict[str, Any]], None]) -> None:
    """Write what is recorded of other tables, if there is something of this one."""
    if found.pop(table, None) is not None:
        write(found)
