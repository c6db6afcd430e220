"""How each table stands: read from its folder and from the table itself, without a JVM."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from mirrorlake.app.status.feed_status import FeedStatus, feed_status
from mirrorlake.app.table_paths import TablePaths
from mirrorlake.apply.logs.processed_names import ProcessedNames
from mirrorlake.capture.backfill.jobs import BackfillJob
from mirrorlake.capture.records.looks import Unfollowed, WithoutEffect
from mirrorlake.capture.watch.missed_changes import AppendOnly
from mirrorlake.errors import ForeignTable, TableError
from mirrorlake.landing.file_identity import Tails
from mirrorlake.landing.scan import Landed, Scanner, TableScan
from mirrorlake.mirror.plan import NO_METADATA, other_files
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.mirror.table.known_table import KnownTable
from mirrorlake.mirror.table.progress import Progress
from mirrorlake.model.applied import Totals
from mirrorlake.model.landed import format_time
from mirrorlake.model.state import TableState
from mirrorlake.storage.store import Store, UnsafePath

if TYPE_CHECKING:  # capture does without DuckDB
    from mirrorlake.apply.events.remembered.state import WidenedColumn


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One table. version, position: None before the first batch; last_file: the number of the last
    applied file, in timestamp mode its name, 0 before the first; lag_seconds: age of the oldest
    change that is landed and not applied, 0 when none is, and at least for how long the source has
    not answered; None when nobody knows: its time is not known, or no capture runs that would land
    what happens in the source.

    append_only: what is known of a table whose updates and deletions are not captured, None for all
    others; state: where it is, and goes on from when the mirror starts; is_running: whether the
    mirror works; total: what was applied since the table was made; synced: time of the last commit;
    source_time: when the source committed the last change that is applied, None when unknown.
    freshness_seconds: how long after its commit in the source the oldest change that waits was
    landed; 0 when none waits, None when unknown. feed: None when unknown. is_loaded: false where
    only changes are captured, and the rows from before are missing. without_effect: the last
    changes of its schema in the source for which no row is changed, the oldest first. reread: the
    backfill that it needs to equal its source, None when it needs none. unfollowed: how its columns
    were altered in the source since the last change of a row, where that gave rows other values.
    waiting_deletions: of a table of events, the deletions without a key that wait for the event
    with it (ST-230); widened: its columns that got wider types because of its events, in order.
    dropped: that it was dropped in the source: since when that is known, and a `message`.
    """

    table: str
    state: TableState
    path: str
    version: int | None
    last_file: int | str
    pending_files: int
    position: str | None
    total: Totals
    lag_seconds: float | None
    error: Mapping[str, Any] | None
    waiting: str = ""
    synced: datetime | None = None
    source_time: datetime | None = None
    folder: str = ""
    is_running: bool = True
    append_only: AppendOnly | None = None
    freshness_seconds: float | None = None
    feed: FeedStatus | None = None
    is_loaded: bool = True
    without_effect: Sequence[WithoutEffect] = ()
    reread: BackfillJob | None = None
    unfollowed: Unfollowed | None = None
    waiting_deletions: int = 0
    dropped: Mapping[str, Any] | None = None
    widened: Sequence[WidenedColumn] = ()

    @property
    def differs(self) -> bool:
        """Whether it is known that rows are other ones in the source: changes were not captured, or
        the table has to be read again for another reason, or waits for a change of a row."""
        if self.dropped is not None:
            return False
        is_counted = self.append_only is not None and self.append_only.differs
        return self.reread is not None or self.unfollowed is not None or is_counted

    @property
    def status(self) -> TableState:
        """The state in the words of LZ-296: a stopped mirror stops what has not failed (LZ-295)."""
        if self.is_running or self.state is TableState.FAILED:
            return self.state
        return TableState.STOPPED

    @property
    def inserts(self) -> int:
        return self.total.insert

    @property
    def updates(self) -> int:
        return self.total.update

    @property
    def deletes(self) -> int:
        return self.total.delete

    def facts(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "state": str(self.state),
            "status": str(self.status),
            "version": self.version,
            "last_file": self.last_file,
            "pending_files": self.pending_files,
            "position": self.position,
            "applied": {"insert": self.inserts, "update": self.updates, "delete": self.deletes},
            "processed_rows": self.total.rows,
            "processed_bytes": self.total.bytes,
            "duplicates": self.total.duplicates,
            "last_sync": format_time(self.synced) if self.synced else None,
            "source_time": format_time(self.source_time) if self.source_time else None,
            "lag_seconds": self.lag_seconds,
            "error": self.error,
            "waiting": self.waiting or None,
            "waiting_deletions": self.waiting_deletions,
            "widened": [asdict(column) for column in self.widened],
            "append_only": self.append_only.reason if self.append_only else None,
            "differs": _difference(self) if self.differs else None,
            "feed": self.feed.facts() if self.feed else None,
            "loaded": self.is_loaded,
            "without_effect": [asdict(change) for change in self.without_effect],
            "dropped": self.dropped["since"] if self.dropped else None,
        }


@dataclass(frozen=True, slots=True)
class View:
    """What the status of tables is computed from.

    is_fed: capture runs, or will; with_feed: report the change feed, which reads the log of each
    table; unheard: since when the source does not answer, None while it does.
    """

    store: Store
    settings: MirrorSettings
    scanner: Scanner
    followers: ProcessedNames
    now: datetime
    tails: Tails
    is_fed: bool = True
    with_feed: bool = True
    is_running: bool = True
    unheard: datetime | None = None


def tables_of(
    view: View,
    scans: Iterable[TableScan],
    progress: Callable[[str, str], Progress],
    noted: Mapping[str, Mapping[str, Any]],
    halted: Mapping[str, Mapping[str, Any]],
    append_only: Mapping[str, AppendOnly] | None = None,
    unloaded: Collection[str] = (),
    without_effect: Mapping[str, Sequence[WithoutEffect]] | None = None,
    due: Mapping[str, BackfillJob] | None = None,
    unfollowed: Mapping[str, Unfollowed] | None = None,
    dropped: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[TableStatus]:
    """How each table stands.

    progress: of the table at a path, with a name for errors; noted: what the mirror last said of
    its tables; halted: the tables that are no longer captured, with the error of each; append_only:
    the tables whose updates and deletions are not; unloaded: those whose rows are not loaded;
    without_effect: the last changes of their schemas that change no row; due: the backfills without
    which tables differ; unfollowed: the tables whose columns were altered since a row changed, or
    that differ by a change that the project ignores; dropped: those that were dropped in the
    source.
    """
    tables = []
    for scan in scans:
        name = str(scan.table)
        tables.append(_table(view, scan, progress, noted.get(name, {}), halted.get(name)))
    begun = {table.table for table in tables}
    tables += [_unknown(name, halted[name]) for name in sorted(halted.keys() - begun)]
    tables += [
        _departed(name, noted[name]) for name in sorted(_gone(noted) - begun - halted.keys())
    ]
    appended, changed, due = append_only or {}, without_effect or {}, due or {}
    return [
        replace(
            table,
            is_running=view.is_running,
            append_only=appended.get(table.table),
            is_loaded=table.table not in unloaded,
            without_effect=changed.get(table.table, ()),
            reread=due.get(table.table),
            unfollowed=(unfollowed or {}).get(table.table),
            dropped=(dropped or {}).get(table.table),
        )
        for table in tables
    ]


def _difference(table: TableStatus) -> dict[str, Any]:
    """Why it differs, and since when that is known."""
    counted = table.append_only if table.append_only and table.append_only.differs else None
    asked = table.reread.request if table.reread else None
    updates, deletes = counted.missed if counted else (None, None)
    since = [one for one in (counted, table.unfollowed) if one is not None]
    return {
        "updates": updates,
        "deletes": deletes,
        "since": since[0].since if since else asked and asked.requested,
        "reason": asked.reason if asked else table.unfollowed and table.unfollowed.change,
    }


def _gone(noted: Mapping[str, Mapping[str, Any]]) -> set[str]:
    return {name for name, entry in noted.items() if entry.get("gone")}


def _departed(table: str, noted: Mapping[str, Any]) -> TableStatus:
    """A table whose folder is missing, and which is not dropped yet, or was reset."""
    known = _unknown(table, None, path=str(noted.get("path", "")))
    state = TableState.INITIALIZED if noted.get("reset") else TableState.REPLICATING
    return replace(known, state=state, waiting=str(noted.get("waiting") or ""))


def _table(
    view: View,
    scan: TableScan,
    progress_of: Callable[[str, str], Progress],
    noted: Mapping[str, Any],
    halted: Mapping[str, Any] | None,
) -> TableStatus:
    name = str(scan.table)
    path = TablePaths(view.store, view.settings.default_schema).of(scan)
    error = halted or (scan.error.facts() if scan.error else None) or noted.get("error")
    try:
        known = _known(view, scan, path, progress_of(path, name))
        is_reseeded = known.is_reseeded
    except (TableError, UnsafePath) as found:
        # Of the table nothing is known then, and all others are shown as they are.
        return _unknown(name, error or _facts(found, name), path, len(scan.files))
    detection, progress = known.detection, known.progress
    pending = [file for file in scan.files if detection.is_new(file)]
    done = None if is_reseeded else progress.batch
    return TableStatus(
        table=name,
        state=TableState.FAILED if error else _state(known, pending),
        path=path,
        version=progress.version if progress.exists else None,
        last_file=(known.processed.last if known.recorded else None) or known.recorded,
        pending_files=len(pending),
        position=done.position if done else None,
        total=done.total if done else Totals(),
        lag_seconds=_lag(view, scan, pending),
        freshness_seconds=_freshness(view, scan, pending),
        error=error,
        waiting="" if error else _waiting(view, known, noted, pending),
        synced=done.time if done else None,
        source_time=done.source_time if done else None,
        folder=scan.folder.path,
        feed=feed_status(view.store, path, progress, view.now) if view.with_feed else None,
    )


def _known(view: View, scan: TableScan, path: str, progress: Progress) -> KnownTable:
    """Raises ProgressLost."""
    processed = view.followers.processed(scan, path, progress)
    return KnownTable(scan, path, progress, view.settings, tail=view.tails, processed=processed)


def _facts(error: TableError | UnsafePath, table: str) -> Mapping[str, Any]:
    if isinstance(error, UnsafePath):
        error = ForeignTable(str(error), table=table, hint="Rename its folder.")
    return error.facts()


def _unknown(
    table: str, error: Mapping[str, Any] | None, path: str = "", pending: int = 0
) -> TableStatus:
    return TableStatus(
        table=table,
        state=TableState.FAILED,
        path=path,
        version=None,
        last_file=0,
        pending_files=pending,
        position=None,
        total=Totals(),
        lag_seconds=None,
        error=error,
    )


def _state(known: KnownTable, pending: list[Landed]) -> TableState:
    progress = known.progress
    if not progress.exists:
        # With metadata and no file it waits for one, for as long as it takes (LZ-275); without,
        # its files are not read (LZ-040).
        begun = not known.awaits_metadata and (known.scan.metadata is not None or bool(pending))
        return TableState.SNAPSHOTTING if begun else TableState.INITIALIZED
    if known.is_reseeded or progress.is_reseeding:
        return TableState.RESEEDING
    loading = not progress.recorded or (progress.is_loading and bool(pending))
    return TableState.SNAPSHOTTING if loading else TableState.REPLICATING


def _waiting(view: View, known: KnownTable, noted: Mapping[str, Any], pending: list[Landed]) -> str:
    """For what a table waits: what can be seen now, else what its last run has noted."""
    if known.awaits_metadata:
        return NO_METADATA
    if not known.recorded and not known.scan.files and known.scan.described:
        since = datetime.fromtimestamp(known.scan.described.modified, UTC)
        age = timedelta(seconds=max(round((view.now - since).total_seconds()), 0))
        others = other_files(known.scan)
        return others or f"its first data file, for {age} (LZ-275)"
    return str(noted.get("waiting") or "") if pending else ""


def _lag(view: View, scan: TableScan, pending: list[Landed]) -> float | None:
    if not view.is_fed:
        return None
    least = max((view.now - view.unheard).total_seconds(), 0.0) if view.unheard else 0.0
    if not pending:
        return least
    oldest = _committed(view, scan, pending[0])
    return None if oldest is None else max((view.now - oldest).total_seconds(), least)


def _freshness(view: View, scan: TableScan, pending: list[Landed]) -> float | None:
    """From the commit of the oldest change that waits, to when it was landed (ST-304)."""
    if not pending:
        return 0.0
    oldest = _committed(view, scan, pending[0])
    return None if oldest is None else max(pending[0].modified - oldest.timestamp(), 0.0)


def _committed(view: View, scan: TableScan, file: Landed) -> datetime | None:
    """When the source committed the first change of a file; None where that is unknown."""
    if file.text is not None:  # it has no footer
        return None
    try:
        footer = view.scanner.inspect(scan.table, file).footer
    except (TableError, FileNotFoundError):
        return None
    return footer.commit_times[0] if footer and footer.commit_times else None
