"""Converts a landing zone to event files, and event files to a landing zone.

Input are the commits of the tables, in which everything that only one of the two formats has is
resolved already: truncations and backfills of a landing zone, and the order of events. What a
commit does not have, earlier changes of the same key, is in the landed files of a landing zone, and
for events in files that the commit keeps beside the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mirrorlake.app.changes.event_files import unified_type, write_events
from mirrorlake.app.changes.landing_zone import land, name_of
from mirrorlake.app.events.status import dead_events
from mirrorlake.app.landed_files import LandedFiles, scanner_of
from mirrorlake.app.mirror import Mirror
from mirrorlake.app.status.table_status import TableStatus
from mirrorlake.app.stores import store_of
from mirrorlake.app.table_paths import TablePaths
from mirrorlake.apply.events.columns import METADATA, column_name, delta_type, has_key_type
from mirrorlake.apply.events.remembered.state import StateFolder, states
from mirrorlake.capture.events.settings import EventsSettings
from mirrorlake.config import Project
from mirrorlake.delta.log.table_log import BrokenLog, TableLog
from mirrorlake.delta.schema import parse
from mirrorlake.errors import LeaseHeld, MirrorlakeError, UsageError
from mirrorlake.events.paths import EventExtension
from mirrorlake.landing.scan import TableScan
from mirrorlake.mirror.table.progress import MALFORMED, key_columns, unreadable
from mirrorlake.model.change import RESERVED_PREFIX
from mirrorlake.model.crash_points import CrashHook, no_crash
from mirrorlake.model.table import TableId
from mirrorlake.storage.urls import StorageLocation, is_url, open_store


@dataclass(frozen=True, slots=True)
class NotCarried:
    """Something of a table that the other format cannot carry. column: "" for the whole table."""

    what: str
    column: str = ""


@dataclass(frozen=True, slots=True)
class ConvertedTable:
    """A converted table.

    commits: number of commits of the table that were written.
    snapshot: rows of the snapshot that was written first.
    changes: rows of the commits.
    error: why no more was written, or why the table is not up to date.
    """

    table: str
    commits: int = 0
    snapshot: int = 0
    changes: int = 0
    lost: tuple[NotCarried, ...] = ()
    error: Mapping[str, Any] | None = None

    def facts(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "commits": self.commits,
            "snapshot": self.snapshot,
            "changes": self.changes,
            "not_carried": [asdict(one) for one in self.lost],
            "error": self.error,
        }


def convert(
    mirror: Mirror,
    target: str | Path,
    extension: EventExtension = EventExtension.AVRO,
    reached: CrashHook = no_crash,
) -> Iterator[ConvertedTable]:
    """Apply what has arrived, unless another process runs the mirror, and write what the target
    does not have yet.

    target: a folder or URL for event files, or the root of a landing zone.
    extension: of event files.
    Raises UsageError, ConfigError, and what `apply_once` raises.
    """
    project = mirror.project
    _check_target(project, target)
    with suppress(LeaseHeld):
        mirror.apply_once(keeps_changes=True)
    scans = {} if project.events else _scans(project)
    for table in mirror.status().tables:
        done = ConvertedTable(table.table)
        if table.version is not None:
            scan = scans.get(table.path)
            landed = LandedFiles(project, scan.table if scan else TableId.parse(table.table), scan)
            done = _converted(project, table, landed, target, extension, reached)
        if done.error is None:
            done = replace(done, error=table.error)
        if table.version is not None or done.error is not None:
            yield done


def _scans(project: Project) -> dict[str, TableScan]:
    """The tables of the landing zone, by the paths of their Delta tables below the root."""
    paths = TablePaths(store_of(project), project.mirror.default_schema)
    return {paths.of(scan): scan for scan in scanner_of(project).scan()}


def general_losses(project: Project) -> list[str]:
    """What the other format cannot carry of any table."""
    if project.events is None:
        lost = [
            "positions of the source: `lsn` is the version of the table and the number of the row"
        ]
        if not project.capture.metadata_columns:
            lost.append("transactions of the source: `tx_id` is the version of the table")
        return lost
    lost = [
        "events that were applied after a later one of their key, or before a truncation",
        "stream, read times and sort keys of events",
    ]
    if dead := dead_events(store_of(project)):
        lost.append(f"{dead:,} events that could not be applied: see mirrorlake dead-letters")
    return lost


def _converted(
    project: Project,
    table: TableStatus,
    landed: LandedFiles,
    target: str | Path,
    extension: EventExtension,
    reached: CrashHook,
) -> ConvertedTable:
    """Write the changes of one table. Its errors do not stop the other tables."""
    store = store_of(project)
    location, options = store.location(table.path), store.options(table.path)
    done, net = ConvertedTable(table.table), 0
    try:
        found = TableLog(location, options).snapshot()
        schema, key = parse(found.metadata).schema, key_columns(found.properties)
    except (BrokenLog, OSError, *MALFORMED) as error:
        return replace(done, error=unreadable(table.table, error).facts())
    try:
        if project.events is None:
            done = replace(done, lost=tuple(_lost_in_events(schema, key)))
            settings = EventsSettings(
                project.name,
                _location(target),
                extension=extension,
                schema_file=extension is not EventExtension.AVRO,
            )
            name = name_of(location)
            for written in write_events(
                location,
                name,
                key,
                settings,
                open_store(target),
                landed=landed,
                options=options,
                reached=reached,
            ):
                done = _with(done, written.is_snapshot, written.events)
                net += written.is_lossy
        else:
            done = replace(done, lost=tuple(_lost_in_zone(project, name_of(location), key)))
            for one in land(location, target, options=options, reached=reached):
                done = _with(done, one.is_snapshot, one.rows)
                net += one.is_lossy and not one.is_snapshot
                if one.is_lossy and one.is_snapshot and key:
                    what = f"earlier changes up to version {one.version}, whose rows come first"
                    done = replace(done, lost=(*done.lost, NotCarried(what)))
            _remove_old_changes(project, name_of(location))
    except MirrorlakeError as error:
        done = replace(done, error=error.facts())
    if net:
        what = f"earlier changes of keys, or their transactions, in {net:,} commits"
        if project.events is not None:
            what = f"earlier changes of keys, if any, in {net:,} commits of another command"
        done = replace(done, lost=(*done.lost, NotCarried(what)))
    return done


def _remove_old_changes(project: Project, table: TableId) -> None:
    """Remove what commits have kept, when their other files are removed too."""
    settings = project.mirror
    if settings.vacuum is not None:
        age = max(settings.vacuum, settings.subscription_hold)
        StateFolder(store_of(project), table).stored_changes.remove(datetime.now(UTC) - age)


def _with(done: ConvertedTable, is_snapshot: bool, rows: int) -> ConvertedTable:
    if is_snapshot:
        return replace(done, snapshot=rows)
    return replace(done, commits=done.commits + 1, changes=done.changes + rows)


def _lost_in_events(schema: Any, key: Sequence[str]) -> Iterator[NotCarried]:
    for column in schema:
        if column.name.casefold().startswith(RESERVED_PREFIX):
            yield NotCarried("a column that the mirror adds", column.name)
            continue
        if (name := column_name(column.name)) != column.name:
            yield NotCarried(f"it is {name} in a table that is made of the events", column.name)
        kind = unified_type(column.type)
        back = kind and delta_type(kind)
        if back is not None and back != column.type:
            yield NotCarried(f"{column.type} becomes {kind}, which is read as {back}", column.name)
        if column.name in key and not has_key_type(column.type):
            yield NotCarried(f"tables of events have no key of type {column.type}", column.name)
    if not key:
        yield NotCarried("a table without a key: each event is read as a row")


def _lost_in_zone(project: Project, table: TableId, key: Sequence[str]) -> Iterator[NotCarried]:
    if key:
        yield NotCarried("uuid and time of the event of each row", METADATA)
    state = states(store_of(project)).get(table)
    for column in state.columns if state else ():
        if unified_type(column.type) != column.unified:
            yield NotCarried(f"{column.unified} becomes {column.type}", column.name)


def _location(target: str | Path) -> StorageLocation | Path:
    return StorageLocation(str(target).rstrip("/")) if is_url(target) else Path(target).absolute()


def _check_target(project: Project, target: str | Path) -> None:
    """Refuse what names no place, and a target inside a folder that the mirror has already, or one
    that contains it."""
    if not str(target):
        raise UsageError(
            "no target was given", where="convert", hint="Name a folder or URL to write to."
        )
    open_store(target)  # raises UsageError for a file, and for a URL of no bucket
    root = project.root
    taken = {"the root of the mirror": str(root) if isinstance(root, Path) else root.url}
    if project.events is not None:
        taken["the folder of the event files that are read"] = project.events.described
    for one in project.destinations:
        taken[f"the destination of event files {one.described}"] = one.described
    there = _resolved(target)
    for what, location in taken.items():
        own = _resolved(location)
        if there.startswith(own) or own.startswith(there):
            raise UsageError(
                f"the target is inside {what}, or contains it",
                where=str(target),
                hint="Name another folder or bucket.",
            )


def _resolved(location: str | Path) -> str:
    """A folder or URL with a slash at the end, so that one within begins with it."""
    whole = str(location) if is_url(location) else str(Path(location).resolve())
    return f"{whole.rstrip('/')}/"
