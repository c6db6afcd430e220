"""Which file was applied when: an acknowledgement for publishers, read from the commits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mirrorlake.app.stores import store_of
from mirrorlake.app.table_paths import TablePaths
from mirrorlake.apply.logs.processed_names import ProcessedNames
from mirrorlake.apply.logs.progress import read_batches, read_progress
from mirrorlake.apply.logs.table_reader import LogReader
from mirrorlake.config import Project
from mirrorlake.delta.log.history import CommittedBatch
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.errors import ForeignTable, UsageError, tables_like
from mirrorlake.landing.file_identity import Tails
from mirrorlake.landing.metadata import NAMED
from mirrorlake.landing.scan import Landed, Scanner, TableScan
from mirrorlake.mirror.table.known_table import KnownTable
from mirrorlake.model.applied import FileRows
from mirrorlake.model.landed import FileName, format_time
from mirrorlake.model.table import named
from mirrorlake.storage.store import Store, UnsafePath

MARKERS = ("insert", "update", "delete", "upsert")


@dataclass(frozen=True, slots=True)
class AppliedFiles:
    """Files first..last of a table, nearly always one; in timestamp mode, where files have no
    numbers, these names.

    rows: as they were read, by marker; None for files that nobody read, because a later one of the
    same commit emptied the table. version, time: of the commit that holds them; None for files
    that wait, and for names that only the mirror still remembers, not the log of the table.
    """

    first: int | None
    last: int | None
    rows: dict[str, int] | None = None
    version: int | None = None
    time: datetime | None = None
    names: tuple[str, ...] = ()
    is_applied: bool = True

    def facts(self) -> dict[str, Any]:
        return {
            "first": self.first,
            "last": self.last,
            "state": "applied" if self.is_applied else "waiting",
            "rows": self.rows,
            "version": self.version,
            "time": format_time(self.time) if self.time else None,
        } | ({"names": list(self.names)} if self.names else {})


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The files of a table. recorded: all up to this number are applied, also those that the log of
    the table no longer names one by one, or that a commit of very many names as a range; None in
    timestamp mode, where every file is recorded by its name."""

    table: str
    recorded: int | None
    files: Sequence[AppliedFiles]

    def facts(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "applied_to": self.recorded,
            "files": [file.facts() for file in self.files],
        }


def read(project: Project, table: str) -> TableFiles:
    """The files of one table, in the order in which they are applied. Starts no JVM.

    Raises UsageError, ForeignTable, ProgressLost.
    """
    store = store_of(project)
    scan = _scan(project, store, table)
    table = str(scan.table)
    path = TablePaths(store, project.mirror.default_schema).of(scan)
    try:
        known, done = _known(project, store, scan, path)
        waiting = [file for file in scan.files if known.detection.is_new(file)]
    except UnsafePath as error:
        raise ForeignTable(str(error), table=table, hint="Rename its folder.") from None
    applied = [_applied(run, batch) for batch in done for run in batch.files]
    if scan.detection in NAMED:
        older = _older(known.processed.names, applied)
        return TableFiles(table, None, [*older, *applied, *map(_waiting, waiting)])
    return TableFiles(table, known.recorded, [*applied, *map(_waiting, waiting)])


def _scan(project: Project, store: Store, table: str) -> TableScan:
    settings = project.mirror
    scanner = Scanner(store, strict_text=settings.strict_text, partitions=settings.partitions)
    scans = {str(scan.table): scan for scan in scanner.scan()}
    table = named(table, scans, where="files")
    if table not in scans:
        raise UsageError(
            f"there is no table {table}",
            where="files",
            hint=tables_like(table, scans),
        )
    return scans[table]


def _known(
    project: Project, store: Store, scan: TableScan, path: str
) -> tuple[KnownTable, Sequence[CommittedBatch]]:
    """What is known of a table, and its batches: none of those before its folder was recreated."""
    log, table = TableLog.below(store, path), str(scan.table)
    progress = read_progress(log, table)
    processed = ProcessedNames(store, LogReader(store)).processed(scan, path, progress)
    known = KnownTable(scan, path, progress, project.mirror, tail=Tails(store), processed=processed)
    is_told = progress.exists and not known.is_reseeded
    return known, read_batches(log, table) if is_told else ()


def _applied(run: FileRows, batch: CommittedBatch) -> AppliedFiles:
    rows = dict(zip(MARKERS, run.rows, strict=True)) if run.rows is not None else None
    if batch.names:
        names = batch.names[run.first - 1 : run.last]
        return AppliedFiles(None, None, rows, batch.version, batch.time, names)
    return AppliedFiles(run.first, run.last, rows, batch.version, batch.time)


def _older(names: Iterable[str], applied: Iterable[AppliedFiles]) -> list[AppliedFiles]:
    """The names that the log of the table no longer has."""
    recorded = {name for files in applied for name in files.names}
    older = tuple(sorted(set(names) - recorded))
    return [AppliedFiles(None, None, names=older)] if older else []


def _waiting(file: Landed) -> AppliedFiles:
    if isinstance(file.name, FileName):
        return AppliedFiles(file.number, file.number, is_applied=False)
    return AppliedFiles(None, None, names=(str(file.name),), is_applied=False)
