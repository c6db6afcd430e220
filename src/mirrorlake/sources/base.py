"""The contract of a source: check, discover, snapshot, stream, acknowledge, reread, positions.

A source lists its tables, takes consistent snapshots at a known point in the log, and streams the
changes after a point. Every source is a `Source`. A source that needs objects in the server, as
PostgreSQL needs a slot and publications, also implements `ManagedObjects` and returns it in
`Source.objects`.

Order: transactions arrive whole, one after the other, in an order in which they could have run; the
changes of a table arrive in log order. Delivery is at least once: everything that was not
acknowledged is sent again after a restart, with the same ordinals, and the reader skips by its
points what it already has. Failures: SourceUnavailable when a retry may help, and the reader
retries; SourceGap when unacknowledged changes are gone from the log and a person has to decide;
TableError for one table, while the others continue. The source itself never retries.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, StrEnum
from typing import Any, Protocol

import pyarrow as pa

from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.model.crash_points import CrashHook, no_crash
from mirrorlake.model.keys import ColumnBounds, KeyRange
from mirrorlake.model.position import LogPoint
from mirrorlake.model.table import TableId
from mirrorlake.sources.chunk import Chunk
from mirrorlake.sources.table import KnownTables, SnapshotPart, SourceTable


class CheckSeverity(StrEnum):
    OK = "ok"
    WARNING = "warning"  # it runs, with a limitation
    ERROR = "error"  # it does not run, or changes would be lost


ALTERED = "altered"
"""The check that finds a table altered in a way that the log does not contain."""


MADE = frozenset({"slot", "publication"})
"""Keys of `Source.identity` for what was created in the source for us. The others identify the
source."""

LINEAGE = "timeline"
"""Key of `Source.identity` for the timeline of the log. It changes after a failover."""

REPAIR = "Run `mirrorlake repair` to compare all tables with the source and continue."
"""The hint for lost changes."""

DIFFERS = "differs"
"""The check that finds rows changed without entries in the log, as in `TableDiffers`. Reported
once."""


DESCRIBED = "described"
"""The check that finds columns altered, where the log says so by now without a change of a row."""

UNFOLLOWED = "unfollowed"
"""The check that finds columns altered so that rows have other values, where the log does not say
so before the next change of a row. Reported at each look until then."""


class Inclusion(Enum):
    """What became of a table that was to be added to the stream again."""

    ADDED = "added"
    LOCKED = "locked"  # nothing was changed, and another attempt may succeed
    AWAITED = "awaited"  # nothing was changed: others have to add it
    REFUSED = "refused"  # nothing was changed


REACHABLE, URL_CHECK = "reachable", "url"
"""The checks whether a source can be connected to: whether it answers, and, if it is not asked at
all, its URL."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check.

    remedy: what to do, in the source's terms. kind: for `DIFFERS`, the kind of change; for an error
    of a table, `PUBLICATION_CHANGED` where the table goes on once it is streamed again, see
    `ManagedObjects.include_again`. addition: what others can do about that, where we may not.
    within: for `DIFFERS`, as in `TableDiffers`. script: statements that do what the remedy says.
    """

    check: str
    severity: CheckSeverity
    message: str
    remedy: str = ""
    table: TableId | None = None
    kind: SchemaChangeKind | None = None
    addition: str = ""
    within: tuple[ColumnBounds, ...] = ()
    script: str = ""


class Snapshot(Protocol):
    """A view of all tables. Several threads may read its parts at once, until it is closed."""

    @property
    def point(self) -> LogPoint:
        """Every part contains all transactions that end at or before this point; stream from
        here."""
        ...

    @property
    def taken(self) -> datetime:
        """The time by the source's own clock, which also tells when transactions were committed,
        at some moment before the snapshot was begun."""
        ...

    @property
    def shared(self) -> str:
        """The name by which other processes open the same view until it is closed; empty when they
        cannot."""
        ...

    def parts(self, table: SourceTable) -> Sequence[SnapshotPart]:
        """Parts of the table that together contain each row once."""
        ...

    def read(self, part: SnapshotPart) -> Iterator[pa.RecordBatch]:
        """The rows of a part, with the columns and types of the table's schema.

        Raises TableError when the table cannot be read, SourceUnavailable when a retry may help.
        """
        ...

    @property
    def recognising(self) -> Recognising | None:
        """By which a load goes on behind parts that were read before; None for a source that
        reads every part anew."""
        ...

    def ordered(
        self, table: SourceTable, keys: KeyRange
    ) -> Iterator[tuple[pa.RecordBatch, LogPoint]]:
        """All rows with a key in the range, in ascending key order as defined by `KeyRange`, in
        batches with the point at which each was read, as in `upto`. Of a table without ranges
        (`has_ranges`) all rows, in any order.

        The rows are read while changes arrive; the caller may stop at any time. Raises
        CannotBackfill for a key that cannot be ordered this way; TableAltered before the first row
        when the columns differ from those that the stream has described; TableError and
        SourceUnavailable as `read` does.
        """
        ...

    def estimated(self, table: SourceTable, keys: KeyRange) -> int | None:
        """About how many rows `ordered` reads, without reading them; None where unknown."""
        ...

    def upto(self, part: SnapshotPart, /) -> LogPoint:
        """The point at which a part was read, known after all of it was read.

        It covers `point`, and equals `point` when the snapshot is one consistent view. Otherwise
        the rows may contain changes that ended between the two points; then the table has a key,
        and its changes contain every value of a row.
        """
        ...

    def close(self) -> None:
        """Also while parts are read, which need not end otherwise. May be called again."""
        ...


class SharedSnapshot(Protocol):
    """A snapshot that another process keeps open. It pickles, and holds secrets."""

    @property
    def server(self) -> str:
        """The server and its address, without secrets."""
        ...

    @property
    def extremes(self) -> str:
        """The settings for values that no type can hold, as in `Recognising.facts`."""
        ...

    def part(self, table: SourceTable, bounds: Any) -> SnapshotPart:
        """A part of a table. bounds: its range as plain data, as `dataclasses.asdict` gives it."""
        ...

    def reach(self) -> None:
        """Connect to the server, and leave it again. Raises SourceUnavailable."""
        ...

    def open(self, noted: Callable[[TableId, str, int], None], /) -> Snapshot:
        """Enter the snapshot, from which only `read` is called then. noted: called with a table, a
        column, and the number of values in it that were replaced. Raises SourceUnavailable, also
        when the snapshot is closed."""
        ...


class Recognising(Protocol):
    """A snapshot that recognises rows which an earlier snapshot of the same source has read. It is
    one consistent view.

    A row has a version, which is a row of `versions`; its first column is unique in a part. Two
    rows of parts with equal facts are equal in all columns if their versions are. For several
    threads, as `Snapshot` is.
    """

    def facts(self, part: SnapshotPart) -> Mapping[str, Any] | None:
        """Plain data, which name the part, and everything that its values depend on besides its
        rows. None for a part whose rows have no versions."""
        ...

    def versioned(self, part: SnapshotPart) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        """As `Snapshot.read`, with the version of each row."""
        ...

    def versions(self, part: SnapshotPart) -> pa.Table:
        """The versions of all rows of a part. Raises as `Snapshot.read` does."""
        ...

    def only(
        self, part: SnapshotPart, versions: pa.Table
    ) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        """As `versioned`, of the rows that have these versions."""
        ...


class OpenAgain(Exception):
    """A stream cannot go on, while one that is opened at once behind what is durable can."""


class ChangeStream(Protocol):
    """The changes after a point, including new ones as they are committed."""

    def read(self, wait: float) -> Chunk | None:
        """The next chunk; None when nothing arrived for `wait` seconds. Raises OpenAgain."""
        ...

    def acknowledge(self, point: LogPoint) -> None:
        """Everything that ends at or before `point` is durable elsewhere; the source may discard
        it."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class AwaitedTransaction:
    """A transaction of others without whose end the source takes no snapshot.

    name: what it is and whose, in words; began: when, None where we may not see that; remedy: how
    it can be ended, in the source's terms; facts: the parts of its name.
    """

    name: str
    began: datetime | None
    remedy: str
    facts: Mapping[str, str] = field(default_factory=dict)


class Pulse(Protocol):
    """Checks whether the server answers. For use by one thread, which may differ from the
    source's."""

    def check(self) -> float:
        """Return if the stream that was opened last received something within about a second;
        otherwise query the server, with a timeout of 2 seconds. A refusal counts as an answer.
        Returns after how many seconds it has to be checked again. Raises SourceUnavailable."""
        ...

    def awaited(self) -> AwaitedTransaction | None:
        """For what a snapshot that was begun waits, if it has waited for seconds; None also when
        that is unknown."""
        ...

    def stop_waiting(self) -> None:
        """Let who waits for the beginning of a snapshot get SourceUnavailable."""
        ...

    def give_up(self) -> None:
        """End the connections of the source on which its threads may wait without an end: they get
        SourceUnavailable."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Established:
    """A new start of the stream: its snapshot, the objects that were created for it, and
    `SourceTable.known` of the tables, for a source that has it."""

    snapshot: Snapshot
    made: Sequence[str]
    known: KnownTables = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RetainedLog:
    """Bytes of its log that the source keeps for us. left: so many more until it discards them,
    None where nothing limits that."""

    size: int
    left: int | None = None


class ManagedObjects(Protocol):
    """The objects that have to be created in the server before its changes can be streamed.

    Every created object has a description in words, which the caller stores; only objects that are
    named this way are ever removed.
    """

    def occupied(self, home: str = "") -> CheckResult | None:
        """An error if the objects that `establish` would create exist already, although the stream
        is new; None if they do not exist. home: where the landing zone is that asks; the objects
        may have been made for a former one there."""
        ...

    def intended(self) -> Sequence[str]:
        """What `establish` would create now, in the words that `detach` accepts. Recorded
        beforehand, so that a crash before `establish` returns leaves nothing unknown behind."""
        ...

    def establish(
        self, tables: Sequence[SourceTable], beyond: LogPoint | None = None
    ) -> Established:
        """Create what a new stream needs. The stream begins at the snapshot's point, which covers
        `beyond`.

        Leftovers of an interrupted call or an earlier stream are removed first. The returned
        `known` is for those who discover the tables afterwards; tables that already have `known`
        keep it. Raises PrerequisiteMissing.
        """
        ...

    def include(self, tables: Sequence[SourceTable]) -> None:
        """Add these tables to the stream where they are missing: all of them, or none.

        Their `known` is for those who discover them afterwards. Raises PrerequisiteMissing.
        """
        ...

    def include_again(self, table: SourceTable) -> Inclusion:
        """Add a table to the stream that it has ceased to carry, if that is for us to decide and
        its users are not hindered."""
        ...

    def name_home(self, home: str) -> None:
        """Record in the server for which landing zone its objects were created, where possible,
        without overwriting a note of someone else. `occupied` reports it."""
        ...

    def rejects_changes(self) -> bool:
        """Whether the server rejects changes of its users because they would be streamed. Asked
        each second; `Source.watch` ends it."""
        ...

    def retained(self) -> RetainedLog | None:
        """The log that the server retains for us; None when unknown."""
        ...

    def release(self) -> None:
        """Let the server discard its log, while no stream is open. The stream cannot continue
        then."""
        ...

    def left(self, home: str) -> Sequence[str]:
        """What `establish` created for the landing zone at `home` and is there without a stream, in
        the words that `detach` accepts: for who has no record of it any more."""
        ...

    def detach(self, made: Sequence[str]) -> list[str]:
        """Remove objects that `establish` created. Returns those that existed and are the ones that
        were created. Raises SlotInUse, and removes none, while another connection reads the
        stream."""
        ...


class Source(Protocol):
    """A database with the tables selected from it."""

    @property
    def objects(self) -> ManagedObjects | None:
        """None when nothing has to be created in the server: the stream of such a source begins at
        its first snapshot and carries every requested table."""
        ...

    def check(self) -> list[CheckResult]:
        """Check every prerequisite, without changing anything."""
        ...

    def discover(self) -> list[SourceTable]:
        """The selected tables sorted by name, including refused ones. Raises PrerequisiteMissing
        for none."""
        ...

    def keep_names(
        self,
        names: Mapping[str, TableId],
        taken: Collection[TableId] = (),
        gone: Collection[TableId] = (),
    ) -> None:
        """From now on, describe a renamed table under the name with which it was loaded. A table
        is not described so if the source has another selected table of that name, or if the new
        name is that of another loaded table.

        names: of the loaded tables, by `SourceTable.identity`. taken: names of loaded tables that
            are not among them. gone: names of tables that were loaded and were dropped since, so
            that settings that name them are no mistake.
        """
        ...

    def identity(self) -> Mapping[str, str]:
        """What distinguishes this source, and our objects in it, from every other."""
        ...

    def parse_point(self, text: str) -> LogPoint:
        """Parse the printed form of a point in the log. Raises ValueError."""
        ...

    def current(self) -> LogPoint:
        """The current end of the log: it covers everything that was committed before this call."""
        ...

    def resume(self, since: LogPoint, former: Mapping[str, str]) -> None:
        """Check that the log still contains everything that ends after `since`, and that it is the
        same log.

        former: `identity` at the time of `since`. Raises SourceGap.
        """
        ...

    def snapshot(self) -> Snapshot:
        """A snapshot of a moment between this call and its return. It may have to wait for the end
        of transactions that are open."""
        ...

    def snapshot_within(self, seconds: float) -> Snapshot | None:
        """A snapshot, or None where it would have to wait for longer than so many seconds."""
        ...

    def open_transactions(self) -> Mapping[str, AwaitedTransaction | None]:
        """For what a snapshot that is begun now would wait: by an identity that no later
        transaction has before the server is restarted, with the oldest first as far as their
        beginnings are known; None for one that is not known in words. Empty for a source whose
        snapshots wait for no transaction. Raises SourceUnavailable, also after two seconds."""
        ...

    def stream(
        self,
        tables: Sequence[SourceTable],
        since: LogPoint,
        *,
        metadata: bool = False,
        secret: str = "",
        reached: CrashHook = no_crash,
    ) -> ChangeStream:
        """The changes of these tables in the transactions that `since` does not cover; some covered
        ones may be included.

        A server that remembers what was acknowledged leaves that out regardless of `since`.

        metadata: whether changes carry the source's metadata of each row, and deletions all values
        of it that are logged instead of those of the key. secret: of this stream,
        the same after a restart; known by it, what the source writes for itself into its log is not
        taken from others. Without it nothing is written. reached: called at the points of what
        `watch` changes in the source.
        """
        ...

    def beyond(self, snapshot: Snapshot, tables: Sequence[SourceTable]) -> ChangeStream:
        """The changes of these tables beyond the point of a snapshot of this source, apart from
        its stream: what is read here is still sent there. It ends with the snapshot, of which
        then only one part at a time is read."""
        ...

    def reread(self, table: SourceTable, keys: pa.Table) -> pa.Table:
        """The current rows with these keys, in no order. Deleted rows are absent."""
        ...

    def watch(self, tables: Sequence[SourceTable]) -> list[CheckResult]:
        """Check for what would otherwise be lost silently; called repeatedly while running.

        An error with a table concerns that table only.
        """
        ...

    def gone(self, identities: Iterable[str], former: Mapping[str, str], /) -> Collection[str]:
        """Those of these identities of tables that certainly are not there any more, selected or
        not. None where the source is not the one that had `former` as its `identity`."""
        ...

    def pulse(self) -> Pulse | None:
        """The pulse of the server that answers now; None for a source that cannot fall silent."""
        ...

    def close(self) -> None:
        """Close all connections. Later calls open new ones."""
        ...
