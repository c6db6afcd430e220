"""How a mirror stands: read from the zone and the tables themselves, without a JVM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from mirrorlake.app import board
from mirrorlake.app.reader import TableReader
from mirrorlake.capture.record import Records
from mirrorlake.config import Project
from mirrorlake.errors import ForeignTable, TableError
from mirrorlake.lake.history import Batch
from mirrorlake.lake.log import TableLog
from mirrorlake.landing import layout
from mirrorlake.landing.lease import holder_of
from mirrorlake.landing.local import LocalStore
from mirrorlake.landing.partner import Partner
from mirrorlake.landing.scan import Landed, Scanner, TableScan
from mirrorlake.landing.store import UnsafePath
from mirrorlake.mirror.plan import NO_METADATA, Known, Target
from mirrorlake.mirror.processed import Followers
from mirrorlake.mirror.progress import Progress, read_batches, read_progress
from mirrorlake.model.state import TableState


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One table. version, position: None before the first batch; last_file: the number of the last
    applied file, in timestamp mode its name, 0 before the first; lag_seconds: age of the oldest
    change that is landed and not applied, 0 when none is, None when nobody knows: its time is not
    told, or no capture runs that would land what happens in the source."""

    table: str
    state: TableState
    path: str
    version: int | None
    last_file: int | str
    pending_files: int
    position: str | None
    inserts: int
    updates: int
    deletes: int
    lag_seconds: float | None
    error: Mapping[str, Any] | None
    waiting: str = ""

    def facts(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "state": str(self.state),
            "version": self.version,
            "last_file": self.last_file,
            "pending_files": self.pending_files,
            "position": self.position,
            "applied": {
                "insert": self.inserts,
                "update": self.updates,
                "delete": self.deletes,
            },
            "lag_seconds": self.lag_seconds,
            "error": self.error,
            "waiting": self.waiting or None,
        }


@dataclass(frozen=True, slots=True)
class Status:
    """A mirror. capture, apply: the process that runs it now, in words, or None; landing_zone: the
    folder in which files are landed; partner: what the publisher says of itself."""

    mirror: str
    capture: str | None
    apply: str | None
    tables: list[TableStatus] = field(default_factory=list)
    landing_zone: str = ""
    partner: Partner = field(default_factory=Partner)

    @property
    def state(self) -> str:
        return "Running" if self.apply else "Stopped"

    def facts(self) -> dict[str, Any]:
        return {
            "mirror": self.mirror,
            "state": self.state,
            "landing_zone": self.landing_zone,
            "capture": self.capture,
            "apply": self.apply,
            "partner": self.partner.facts() if self.partner.is_told else None,
            "tables": [table.facts() for table in self.tables],
        }


def read(project: Project, now: datetime | None = None) -> Status:
    """The status of a project's mirror."""
    store = LocalStore(project.root)
    moment = now or datetime.now(UTC)
    scanner = Scanner(store, strict_text=project.mirror.strict_text)
    noted = board.read(store)
    halted = stopped(project)
    capture = holder_of(store, "capture", moment)
    followers = Followers(store, TableReader(store))
    fed = project.source is None or capture is not None
    view = _View(project, scanner, followers, moment, fed)
    tables = []
    for scan in scanner.scan():
        entry = noted.get(str(scan.table), {})
        tables.append(_table(view, scan, entry, halted.get(str(scan.table))))
    begun = {table.table for table in tables}
    tables += [_never_begun(name, halted[name]) for name in sorted(halted.keys() - begun)]
    return Status(
        mirror=project.name,
        capture=capture,
        apply=holder_of(store, "mirror", moment),
        tables=tables,
        landing_zone=str(project.root / scanner.zone()),
        partner=scanner.partner(),
    )


def stopped(project: Project) -> dict[str, dict[str, Any]]:
    """The tables that are no longer captured, with the error that stopped each."""
    store = LocalStore(project.root)
    return Records(store, Scanner(store).zone()).stopped()


@dataclass(frozen=True, slots=True)
class _View:
    """From where and when it is looked. fed: whether what happens in the source lands now."""

    project: Project
    scanner: Scanner
    followers: Followers
    now: datetime
    fed: bool


def _table(
    view: _View,
    scan: TableScan,
    noted: Mapping[str, Any],
    halted: Mapping[str, Any] | None,
) -> TableStatus:
    settings = view.project.mirror
    path = layout.delta_path(scan.folder, settings.default_schema)
    error = halted or (scan.error.facts() if scan.error else None) or noted.get("error")
    try:
        progress, done = _told(view.project, path, str(scan.table))
        processed = view.followers.processed(scan, path, progress)
    except TableError as unreadable:
        # Of the table nothing is known then, and all others are shown as they are.
        return _unknown(str(scan.table), error or unreadable.facts(), path, len(scan.files))
    detection = Known(scan, path, progress, Target(), processed=processed).detection
    pending = [file for file in scan.files if detection.is_new(file)]
    described = scan.metadata is not None or not (
        settings.metadata_required or scan.is_undescribed_text
    )
    return TableStatus(
        table=str(scan.table),
        state=TableState.FAILED if error else _state(scan, progress, pending, described=described),
        path=path,
        version=progress.version if progress.exists else None,
        last_file=processed.last or progress.recorded,
        pending_files=len(pending),
        position=done[-1].position if done else None,
        inserts=_total(done, "inserts"),
        updates=_total(done, "updates"),
        deletes=_total(done, "deletes"),
        lag_seconds=_lag(view, scan, pending),
        error=error,
        waiting="" if error else _waiting(noted, pending, described=described),
    )


def _told(project: Project, path: str, table: str) -> tuple[Progress, list[Batch]]:
    """What a table says of itself, and its batches. Raises ForeignTable."""
    try:
        log = TableLog(LocalStore(project.root).location(path))
    except UnsafePath as error:
        raise ForeignTable(str(error), table=table, hint="Give its folder another name.") from None
    return read_progress(log, table), read_batches(log, table)


def _never_begun(table: str, error: Mapping[str, Any]) -> TableStatus:
    return _unknown(table, error, path="", pending=0)


def _unknown(table: str, error: Mapping[str, Any], path: str, pending: int) -> TableStatus:
    return TableStatus(
        table=table,
        state=TableState.FAILED,
        path=path,
        version=None,
        last_file=0,
        pending_files=pending,
        position=None,
        inserts=0,
        updates=0,
        deletes=0,
        lag_seconds=None,
        error=error,
    )


def _total(done: list[Batch], kind: str) -> int:
    return sum(getattr(batch, kind) for batch in done)


def _state(
    scan: TableScan, progress: Progress, pending: list[Landed], *, described: bool
) -> TableState:
    ours = scan.metadata.ours if scan.metadata else None
    if not progress.exists:
        # With metadata and no file it waits for one, for as long as it takes (LZ-275); without,
        # its files are not read (LZ-040).
        begun = described and (scan.metadata is not None or bool(pending))
        return TableState.SNAPSHOTTING if begun else TableState.INITIALIZED
    if ours and ours.generation != progress.generation:
        return TableState.RESEEDING
    return TableState.REPLICATING if progress.recorded else TableState.SNAPSHOTTING


def _waiting(noted: Mapping[str, Any], pending: list[Landed], *, described: bool) -> str:
    """For what a table waits: what can be seen now, else what its last run has noted."""
    if not described:
        return NO_METADATA
    return str(noted.get("waiting") or "") if pending else ""


def _lag(view: _View, scan: TableScan, pending: list[Landed]) -> float | None:
    if not view.fed:
        return None
    if not pending:
        return 0.0
    if pending[0].text is not None:  # it has no footer that could tell
        return None
    try:
        footer = view.scanner.inspect(scan.table, pending[0]).footer
    except (TableError, FileNotFoundError):
        return None
    if footer is None or footer.commit_times is None:
        return None
    return max((view.now - footer.commit_times[0]).total_seconds(), 0.0)
