"""Tables whose folders were deleted: found, waited for, dropped (LZ-231, LZ-237, LZ-241).

The tables themselves say which there are: each names its folder and its generation.
Nothing is dropped unless the zone bears our mark, and the folder was missing for long enough in
several looks in a row, and is missing still. Our own capture records which folders it deletes
because their tables were dropped in the source: in its zone any other that is missing waits for it,
as after `mirrorlake reset`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

import structlog

from mirrorlake import root
from mirrorlake.app.maintenance.dates import Dates
from mirrorlake.capture.records.files import UNREADABLE
from mirrorlake.capture.records.records import Records
from mirrorlake.errors import TableError
from mirrorlake.landing import layout, zone_id
from mirrorlake.landing.cleanup import CLEANUP_ERRORS, is_remnant
from mirrorlake.landing.scan import TableScan
from mirrorlake.mirror.engine import TableReader
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.mirror.steps import DropTable, TablePlan
from mirrorlake.mirror.table.deleted import Missing, observe
from mirrorlake.mirror.table.processed import folder_of
from mirrorlake.mirror.table.progress import FOLDER
from mirrorlake.model.clock import Clock
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.model.landed import format_time, parse_time
from mirrorlake.model.state import TableState
from mirrorlake.model.table import TableId
from mirrorlake.storage.store import Store, UnsafePath

log = structlog.get_logger()

ZONE_UNKNOWN = "zone_not_recognised"
ZONE_UNMARKED = "zone_not_marked"
SCHEMA_UNKNOWN = "schema_folder_not_recognised"
PATH = f"{root.STATE}/missing.json"
GONE = f"{root.STATE}/dropped.json"
EVERY = 5.0
"""Seconds between two looks at most."""


class DeletedTables:
    """Looks after the tables of one zone. Changes nothing but its own records."""

    def __init__(
        self,
        store: Store,
        zone: Callable[[], str],
        tables: TableReader,
        settings: MirrorSettings,
        clock: Clock,
        reached: CrashHook = no_crash,
    ) -> None:
        self._store, self._find_zone, self._tables = store, zone, tables
        self._settings, self._clock, self._reached = settings, clock, reached
        self._gone = Dates(store, GONE)
        self._looked = clock.monotonic() - EVERY
        self._said = False
        self._marked: set[str] = set()  # folders that bear our mark, as far as it was looked at
        self._unknown: set[str] = set()  # schema folders of which we have said that they do not

    def plans(self, scans: Sequence[TableScan], paths: Mapping[TableId, str]) -> list[TablePlan]:
        """What stands and falls due, as of the last look; nothing is changed."""
        if not self._settings.drop_tables:
            return []
        if self._is_captured():
            found = self._ended(scans, paths)
        elif zone_id.is_marked(self._store, self._zone):
            found = [one for one in self._missing(scans, paths) if self._is_deleted(one)]
        else:
            return []
        known, now = _record(self._store), self._clock.now()
        return [
            self._plan(deleted, known.get(deleted.path) or Missing(now, 0), now)
            for deleted in found
        ]

    def prepare(self, scans: Sequence[TableScan], paths: Mapping[TableId, str]) -> None:
        """Mark the zone before its first table is made.

        A zone or a schema folder in the place of ours, where tables are missing, is never marked.
        """
        if not self._settings.drop_tables or self._is_captured():
            return
        locations = {self._zone, *_schema_folders(scans)}
        if not all(self._bears_mark(location) for location in locations):
            self._mark(scans, list(self._missing(scans, paths)))

    def look(
        self, scans: Sequence[TableScan], paths: Mapping[TableId, str]
    ) -> list[TablePlan] | None:
        """One more look, noted; what stands and falls due. None when it is not time for one."""
        moment = self._clock.monotonic()
        if moment - self._looked < EVERY:
            return None
        self._looked = moment
        if not self._settings.drop_tables:
            return []
        if self._is_captured():
            deleted = self._ended(scans, paths)
        else:
            deleted = self._deleted_by_others(scans, paths)
        before, now = _record(self._store), self._clock.now()
        known = observe(before, [table.path for table in deleted], now)
        if known != before:
            self._store.replace(PATH, _encoded(known))
        self._expire(now)
        return [self._plan(table, known[table.path], now) for table in deleted]

    def _deleted_by_others(
        self, scans: Sequence[TableScan], paths: Mapping[TableId, str]
    ) -> list[DropTable]:
        """As of this look, which marks what it can."""
        deleted = list(self._missing(scans, paths))
        if scans:
            self._mark(scans, deleted)
        if deleted and not self._is_ours():
            return []
        return [table for table in deleted if self._is_deleted(table)]

    def _ended(self, scans: Sequence[TableScan], paths: Mapping[TableId, str]) -> list[DropTable]:
        """Those whose folders our own capture has deleted for good."""
        try:
            folders = {*Records(self._store, self._zone).deleted().values()}
        except UNREADABLE:
            return []
        missing = self._missing(scans, paths) if folders else ()
        return [table for table in missing if table.folder in folders]

    def record_drop(self, step: DropTable) -> None:
        """A table is about to be put aside, where it stays until the retention of the cleanup
        folder has passed. Noted first: what is not noted would stay for ever."""
        self._gone.write(self._gone.read() | {step.path: self._clock.now()})
        self._reached(CrashPoint.DROP_RECORDED)

    def dropped(self, step: DropTable) -> None:
        """A table was put aside: the names of its files go, and what is left of its folder."""
        self._store.delete_folder(folder_of(step.path))
        if is_remnant(self._store, step.folder):
            self._store.delete_folder(step.folder)
        known = _record(self._store)
        if known.pop(step.path, None):
            self._store.replace(PATH, _encoded(known))

    @property
    def _zone(self) -> str:
        return self._find_zone()

    def _mark(self, scans: Sequence[TableScan], deleted: Sequence[DropTable]) -> None:
        """Mark the zone, and the schema folders in it, where no table is missing.

        What cannot be marked is mirrored all the same, and nothing of it is dropped.
        """
        doubtful = {_parent(table.folder) for table in deleted}
        if deleted:
            doubtful.add(self._zone)
        self._marked -= doubtful
        for location in {self._zone, *_schema_folders(scans)} - doubtful - self._marked:
            try:
                zone_id.mark(self._store, location)
            except CLEANUP_ERRORS as error:
                if not self._said:
                    log.warning(ZONE_UNMARKED, zone=location, reason=str(error))
                self._said = True
            else:
                self._marked.add(location)

    def _bears_mark(self, location: str) -> bool:
        if location not in self._marked and zone_id.is_marked(self._store, location):
            self._marked.add(location)
        return location in self._marked

    def _is_deleted(self, deleted: DropTable) -> bool:
        """Whether its folder is gone from the schema folder in which it was.

        A schema folder that is there without our mark is another one, such as the empty place of
        one that is not mounted. Says so once.
        """
        schema = _parent(deleted.folder)
        if (
            schema == self._zone
            or schema.rpartition("/")[2] not in self._store.list(self._zone).folders
        ):
            return True
        known = zone_id.is_marked(self._store, schema)
        if not known and schema not in self._unknown:
            log.warning(SCHEMA_UNKNOWN, folder=schema, table=str(deleted.table))
            self._unknown.add(schema)
        return known

    def _is_ours(self) -> bool:
        """Whether the zone bears our mark. Says once when it does not."""
        known = zone_id.is_marked(self._store, self._zone)
        if not known and not self._said:
            log.warning(ZONE_UNKNOWN, zone=self._zone)
        self._said = not known
        return known

    def _is_captured(self) -> bool:
        """Whether our own capture fills the zone, or what stands there cannot be read as no."""
        try:
            return Records(self._store, self._zone).stream() is not None
        except UNREADABLE:
            return True

    def _missing(
        self, scans: Sequence[TableScan], paths: Mapping[TableId, str]
    ) -> Iterator[DropTable]:
        """The tables that name a folder of this zone which is not there.

        A table whose path another folder uses now is that folder's.
        """
        live = {paths[scan.table] for scan in scans if _holds_something(scan)}
        empty = {paths[scan.table]: scan for scan in scans if not _holds_something(scan)}
        for path in self._tables.paths(live):
            scan = empty.get(path)
            try:
                progress = self._tables.progress(path)
            except (TableError, OSError, UnsafePath):
                continue  # a table that cannot be read is nobody's to drop
            folder = progress.properties.get(FOLDER, "")
            if not progress.generation or not folder.startswith(f"{self._zone}/"):
                continue
            if scan and scan.folder.path != folder:
                continue
            if self._is_gone(folder):
                yield DropTable(_table_of(self._zone, folder), path, folder, progress.generation)

    def _is_gone(self, folder: str) -> bool:
        try:
            self._store.location(folder)
        except UnsafePath:
            return False  # a link is in its place: what it leads to is not for us to see
        parent, _, name = folder.rpartition("/")
        if name in self._store.list(parent).folders:
            return is_remnant(self._store, folder)
        listing = self._store.list(folder)
        return not (listing.files or listing.folders)

    def _plan(self, deleted: DropTable, missing: Missing, now: datetime) -> TablePlan:
        due = missing.is_due(now, self._settings.drop_after)
        return TablePlan(
            deleted.table,
            deleted.path,
            deleted.folder,
            TableState.REPLICATING,
            steps=(deleted,) if due else (),
            waiting=f"its folder has been missing since {format_time(missing.since)}; the table "
            "will be dropped",
        )

    def _expire(self, now: datetime) -> None:
        """Remove what was dropped long enough ago."""
        gone = self._gone.read()
        old = [path for path, time in gone.items() if now - time > self._settings.retention]
        for path in old:
            self._store.delete_folder(f"{root.DROPPED}/{path}")
            self._reached(CrashPoint.DROPPED_DELETED)
        if old:
            self._gone.write({path: time for path, time in gone.items() if path not in old})


def _parent(folder: str) -> str:
    return folder.rpartition("/")[0]


def _schema_folders(scans: Sequence[TableScan]) -> set[str]:
    """The schema folders in which there are tables."""
    return {_parent(scan.folder.path) for scan in scans if scan.folder.table.schema}


def _holds_something(scan: TableScan) -> bool:
    return bool(scan.files or scan.metadata or scan.error)


def _table_of(zone: str, folder: str) -> TableId:
    schema, _, name = folder.removeprefix(f"{zone}/").rpartition("/")
    return TableId(schema.removesuffix(layout.SCHEMA_SUFFIX), name)


def _record(store: Store) -> dict[str, Missing]:
    try:
        found = json.loads(store.read(PATH))["tables"]
        return {
            str(path): Missing(parse_time(entry["since"]), int(entry["looks"]))
            for path, entry in found.items()
        }
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return {}  # without it the wait begins again


def _encoded(known: Mapping[str, Missing]) -> bytes:
    tables = {
        path: {"since": format_time(one.since), "looks": one.scans} for path, one in known.items()
    }
    return json.dumps({"tables": tables}, indent=1).encode()
