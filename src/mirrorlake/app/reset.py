"""Starting tables anew: the explicit act that stop and start never imply (LZ-274)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from mirrorlake import root
from mirrorlake.app.status import table_status_file
from mirrorlake.app.stores import store_of
from mirrorlake.app.table_paths import TablePaths
from mirrorlake.capture.backfill.jobs import BackfillRecords
from mirrorlake.capture.events import state
from mirrorlake.capture.records.names import EVENTS, STREAM
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.records.stream import StreamRecord
from mirrorlake.config import Project
from mirrorlake.delta import tables as table_removal
from mirrorlake.errors import RecordDamaged, TableError, UsageError, printable, tables_like
from mirrorlake.landing import layout
from mirrorlake.landing.metadata import BY_TIME, NAMED
from mirrorlake.landing.scan import Scanner, TableScan
from mirrorlake.mirror.table.processed import folder_of
from mirrorlake.model.clock import WallClock
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.model.landed import PartName
from mirrorlake.model.table import named
from mirrorlake.storage.lease import Lease
from mirrorlake.storage.store import Store, read_record

_FEED = "; its change feed is deleted too, and begins anew"
_DROPPED = " with its change feed, because it was dropped in the source"


@dataclass(frozen=True, slots=True)
class Reset:
    """What a reset will do. captured: the zone is filled by our own capture. delivered: tables of
    which there are event files; left_out: tables that were created later; damaged: paths of records
    that cannot be read, and are forgotten; dropped: tables that were dropped in the source, so that
    nothing is loaded in their place."""

    project: Project
    tables: Sequence[TableScan]
    stopped: Sequence[str]
    captured: bool
    everything: bool
    delivered: Sequence[str] = ()
    left_out: Sequence[str] = ()
    damaged: Sequence[str] = ()
    dropped: Collection[str] = ()

    def sentences(self) -> list[str]:
        lines, store = [], store_of(self.project)
        for scan in self.tables:
            if self.captured and str(scan.table) in self.dropped:
                lines.append(f"{scan.table}: delete {scan.folder.path}, and the table{_DROPPED}")
            elif self.captured:
                lines.append(
                    f"{scan.table}: delete {scan.folder.path} and load the table again{_FEED}"
                )
            else:
                path = TablePaths(store, self.project.mirror.default_schema).of(scan)
                lines.append(f"{scan.table}: delete {path} and apply {_files_of(scan)}{_FEED}")
        lines += [
            f"{table}: capture it again" for table in self.stopped if table not in self.dropped
        ]
        lines += [f"{table}: write all its rows as events again" for table in self.delivered]
        lines += [f"{table}: mirror it, although it was created later" for table in self.left_out]
        if self.everything and self.captured:
            lines.append(
                "delete the recorded position in the source's log, and start from a new one"
            )
        lines += [
            f"{store.location(path)}: delete it, because it is damaged" for path in self.damaged
        ]
        return lines or ["There is nothing to reset."]

    def execute(self, reached: CrashHook = no_crash) -> None:
        """Do it. Raises LeaseHeld while capture or apply runs."""
        store = store_of(self.project)
        paths = TablePaths(store, self.project.mirror.default_schema)
        clock = WallClock()
        with ExitStack() as held:
            for role in ("capture", "mirror"):
                lease = Lease(store, role, clock)
                lease.take()
                held.callback(lease.release)
            if self.captured:
                self._forget_files(store, reached)
            else:
                for scan in self.tables:
                    path = paths.of(scan)
                    table_removal.remove(store, path)
                    reached(CrashPoint.RESET_TABLE_DELETED)
                    store.delete_folder(folder_of(path))
            left = [scan for scan in self.tables if str(scan.table) not in self.dropped]
            waiting = {str(scan.table): paths.of(scan) for scan in left}
            table_status_file.note_reset(store, clock, waiting)

    def _forget_files(self, store: Store, reached: CrashHook) -> None:
        records = Records(store, root.LANDING, reached=reached, forgets=self.everything)
        record = records.stream() or StreamRecord.new({})
        if self.everything:
            # First, so that a crash in between leaves a stream that begins anew, not a gap.
            records.write_stream(replace(record, start="", repair=""))
            reached(CrashPoint.RESET_STREAM_FORGOTTEN)
            for path in self.damaged:
                if not path.endswith(f"/{STREAM}"):  # it was written anew
                    store.delete(path)
        records.rewrite()
        if self.everything:
            store.delete_folder(f"{records.folder}/{layout.CUTS}")
            state.forget_all(records)
        landed = {str(scan.table) for scan in self.tables}
        for name in records.unloaded() & {*landed, *self.delivered}:
            # Should this be interrupted, its rows are read from the first one.
            BackfillRecords(records).drop(name)
        # Before nothing is held of them, so that they are not left out.
        records.admit({*landed, *self.stopped, *self.delivered, *self.left_out})
        for scan in self.tables:
            if str(scan.table) in self.dropped:
                records.note_deleted(str(scan.table), scan.folder.path)
            store.delete_folder(scan.folder.path)
            reached(CrashPoint.RESET_FOLDER_DELETED)
            records.forget(str(scan.table))
        for table in {*self.stopped, *self.delivered}:
            state.forget(records, table)
            records.forget(table)
        for name in {*self.stopped, *self.delivered, *landed}:
            records.load_anew(name)
        for table in {*self.stopped, *self.delivered, *landed}:
            BackfillRecords(records).drop(table)


def plan_reset(project: Project, tables: Sequence[str] | None) -> Reset:
    """What starting these tables anew (all for None) means.

    Raises UsageError for an unknown table, TableError for one whose files are not all there.
    """
    store = store_of(project)
    scanner = Scanner(store, partitions=project.mirror.partitions)
    records = Records(store, root.LANDING, forgets=tables is None)
    damaged = _damaged(store, records) if tables is None else []
    scans = {str(scan.table): scan for scan in scanner.scan()}
    stopped = set(records.stopped())
    captured = records.stream() is not None or f"{records.folder}/{STREAM}" in damaged
    delivered = set(state.delivered(records))
    admission = records.admission()
    left_out = set(admission.left_out) if admission and tables is not None else set[str]()
    known = scans.keys() | stopped | delivered | left_out
    wanted = chosen_of(known, tables)
    chosen = [scans[name] for name in wanted if name in scans]
    if not captured:
        for scan in chosen:
            _check_complete(scan)
    return Reset(
        project,
        chosen,
        [name for name in wanted if name in stopped],
        captured,
        everything=tables is None,
        delivered=[name for name in wanted if name in delivered],
        left_out=[name for name in wanted if name in left_out],
        damaged=damaged,
        dropped=records.dropped().keys(),
    )


def _damaged(store: Store, records: Records) -> list[str]:
    """The paths of the records that are damaged, except those of event files, without which nobody
    knows what is written."""
    found = []
    for folder in (records.folder, BackfillRecords(records).folder):
        for file in store.list(folder).files:
            path = f"{folder}/{file.name}"
            if file.name.endswith(".json") and file.name != EVENTS:
                try:
                    read_record(store, path, "")
                except FileNotFoundError:
                    continue
                except RecordDamaged:
                    found.append(path)
    return found


def chosen_of(known: Collection[str], tables: Sequence[str] | None) -> list[str]:
    """The tables that are asked for, all for None. Raises UsageError for one that is not known."""
    if tables is None:
        return sorted(known)
    wanted = list(dict.fromkeys(named(name, known, where="reset") for name in tables))
    for name in wanted:
        if name not in known:
            raise UsageError(
                f"there is no table {name}",
                where="reset",
                hint=tables_like(name, known),
            )
    return wanted


def _files_of(scan: TableScan) -> str:
    if scan.detection in NAMED:
        count = len({str(file.name) for file in (*scan.files, *scan.moved())})
        return f"the {count} files that are still in its folder and its cleanup folder"
    return "its files from number 1"


def _check_complete(scan: TableScan) -> None:
    """Files that somebody else landed can be applied again only while they are all there.

    For files without numbers this is unknown; the sentence of the reset says how many there are.
    """
    if scan.detection == BY_TIME:
        return
    found: dict[str, set[int]] = {}
    for file in (*scan.files, *scan.moved()):
        folder = file.name.folder if isinstance(file.name, PartName) else ""
        found.setdefault(folder, set()).add(file.number)
    for folder, numbers in sorted(found.items()):
        # A name can say any number: what lies between is not enumerated.
        missing = next((n for n, m in enumerate(sorted(numbers), start=1) if n != m), None)
        if missing is not None:
            location = f" of {printable(folder)}" if folder else ""
            raise TableError(
                f"file {missing}{location} no longer exists: it was applied and then removed",
                table=str(scan.table),
                hint="The publisher must recreate the table folder with all data (LZ-239).",
            )
