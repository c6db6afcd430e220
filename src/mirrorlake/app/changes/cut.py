"""Consistent cuts: the versions of all tables at one position of the source (CF-082, CF-083).

Capture writes cuts: a position, and for each table its last file up to there. A table shows a cut
at the version that applied just that file; the mirror applies files so that cuts are reached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from mirrorlake.app.stores import store_of
from mirrorlake.app.table_paths import TablePaths
from mirrorlake.apply.logs.progress import read_progress
from mirrorlake.config import Project
from mirrorlake.delta.log.history import CommittedBatch
from mirrorlake.delta.log.table_log import BrokenLog, TableLog
from mirrorlake.delta.lookup.key_lookup import live_rows
from mirrorlake.delta.schema import parse
from mirrorlake.delta.workspace import open_workspace
from mirrorlake.errors import NotReached, TableDropped, UsageError, tables_like
from mirrorlake.feed.bounds import parse_position
from mirrorlake.feed.commits.history import CommitHistory
from mirrorlake.feed.commits.position_map import PositionMap
from mirrorlake.landing.cuts import STOPPED, Cut, Cuts
from mirrorlake.landing.scan import Scanner
from mirrorlake.mirror.table.progress import GENERATION, unreadable
from mirrorlake.model.arrow import arrow_schema
from mirrorlake.model.position import LogPoint, Position
from mirrorlake.model.table import named
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.store import Store

_DROPPED = STOPPED.format(TableDropped.code)
_HINT = "`mirrorlake status` shows the position of each table."


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A table at one version. path: below the root; location: the same as a folder or URL."""

    table: str
    version: int
    path: str
    location: str
    options: ObjectOptions | None = field(default=None, repr=False)

    def read(self) -> pa.Table:
        """All rows. Raises FileNotFoundError and BrokenLog when they are no longer kept."""
        snapshot = TableLog(self.location, self.options).snapshot_at(self.version)
        schema = parse(snapshot.metadata)
        parts = [arrow_schema(schema.schema).empty_table()]
        with open_workspace(self.location, self.options) as workspace:
            for add in snapshot.files.values():
                workspace.fetch([add])
                parts.append(live_rows(workspace.folder, add, schema))
        return pa.concat_tables(parts)


@dataclass(frozen=True, slots=True)
class ConsistentCut:
    """Versions that belong together: each table shows all transactions of the source up to
    `position`, and nothing after it. excluded: the tables that are not covered, with the reason."""

    number: int
    position: str
    commit_time: str | None
    tables: Mapping[str, TableVersion]
    excluded: Mapping[str, str]

    def facts(self) -> dict[str, Any]:
        return {
            "cut": self.number,
            "position": self.position,
            "commit_time": self.commit_time,
            "tables": {name: one.version for name, one in self.tables.items()},
            "excluded": dict(self.excluded),
        }

    @property
    def versions(self) -> dict[str, int]:
        """The version of each table, by its path below the root."""
        return {one.path: one.version for one in self.tables.values()}


def find(project: Project, at: str | None = None) -> ConsistentCut:
    """The newest cut that every table shows, or the newest one up to a position. Starts no JVM.

    Raises UsageError for a position that is none, NotReached, ForeignTable.
    """
    zone = _MirroredZone(project)
    until = None if at is None else asked_position(at)
    reasons = dict[str, str]()
    for cut in reversed(list(zone.cuts())):
        if until is not None and not until.passes(_point(cut, until)):
            continue
        found = {name: zone.version_at(name, cut) for name, n in zone.covered(cut).items() if n}
        versions = {name: one for name, one in found.items() if isinstance(one, TableVersion)}
        reasons = {name: one for name, one in found.items() if isinstance(one, str)}
        if not reasons:
            return ConsistentCut(cut.number, cut.position, cut.commit_time, versions, cut.excluded)
    which = f" up to {at}" if at else ""
    why = "; ".join(f"{name}: {reason}" for name, reason in sorted(reasons.items())[:3])
    raise NotReached(
        f"no cut{which} is shown by all tables" + (f": {why}" if why else ""),
        where=project.name,
        hint="Let the mirror run. Cuts are written by capture, and not by other publishers.",
    )


def find_beyond(project: Project, point: str, tables: Sequence[str]) -> ConsistentCut:
    """The newest cut at or beyond a point that all of these tables show, where it covers them.
    Starts no JVM. excluded: those that it does not cover. Raises NotReached, ForeignTable."""
    zone, wanted = _MirroredZone(project), asked_position(point)
    missing: dict[str, str] = {}
    for cut in reversed(list(zone.cuts())):
        if not _covers(cut, wanted):
            break
        covered = zone.covered(cut)
        excluded = {
            name: cut.excluded.get(name, "nothing of it is mirrored")
            for name in tables
            if not covered.get(name)
        }
        found = {name: zone.version_at(name, cut) for name in tables if name not in excluded}
        versions = {name: one for name, one in found.items() if isinstance(one, TableVersion)}
        if len(versions) == len(found):
            return ConsistentCut(cut.number, cut.position, cut.commit_time, versions, excluded)
        missing = missing or {name: one for name, one in found.items() if isinstance(one, str)}
    why = "; ".join(f"{name}: {reason}" for name, reason in sorted(missing.items())[:3])
    raise NotReached(
        f"no cut at or beyond {point} is shown by the tables" + (f": {why}" if why else ""),
        where=project.name,
        hint=_HINT,
    )


def wait(
    project: Project,
    position: str,
    *,
    tables: Sequence[str] = (),
    timeout: float = 60.0,
    clock: Callable[[], float],
    pause: Callable[[float], bool],
    seconds: float = 0.2,
) -> None:
    """Wait until every table shows a position of the source. Starts no JVM.

    tables: some of them only. clock: seconds that only grow; pause: waits for so many seconds, and
    says whether to stop. Raises UsageError for a position or a table that there is not, NotReached
    after `timeout` seconds, with the tables that do not show it.
    """
    zone, end = _MirroredZone(project), clock() + timeout
    wanted = asked_position(position)
    while missing := zone.missing(wanted, tables):
        left = end - clock()
        is_stopped = left > 0 and pause(min(seconds, left))
        if left <= 0 or is_stopped:
            when = "was stopped" if is_stopped else f"ended after {timeout:g} seconds"
            raise NotReached(
                f"the wait for {position} {when}, and these do not show it: {', '.join(missing)}",
                where=project.name,
                hint="`mirrorlake status` shows how far each table is, and what stops it.",
            )


class _MirroredZone:
    """The cuts of a landing zone, and how far its tables are."""

    def __init__(self, project: Project) -> None:
        self._store: Store = store_of(project)
        settings = project.mirror
        self._scanner = Scanner(
            self._store, strict_text=settings.strict_text, partitions=settings.partitions
        )
        self._paths = TablePaths(self._store, settings.default_schema)
        self._cuts = Cuts(self._store, self._scanner.zone())
        self._covering: Cut | None = None
        self._known: dict[str, str] = {}
        self._generations: dict[str, str] = {}
        self._logs: dict[str, TableLog] = {}
        self._batches: dict[str, list[CommittedBatch]] = {}

    def cuts(self) -> Iterator[Cut]:
        return self._cuts.whole()

    def covered(self, cut: Cut) -> dict[str, int]:
        """The tables that a cut covers and that are still mirrored, with the last file of each."""
        return {
            name: number
            for name, number in cut.tables.items()
            if name not in cut.excluded and self._path(name)
        }

    def version_at(self, table: str, cut: Cut) -> TableVersion | str:
        """The version that shows the files of a table up to a cut and no others, or why there is
        none."""
        file = cut.tables[table]
        log = self._log(table)
        if log is None:
            return "it is not mirrored yet"
        if table not in self._batches:
            self._batches[table] = list(_of_one_sequence(self._told(log, table)))
        for batch in self._batches[table]:
            if batch.last == file:
                if batch.position and not _covers(cut, asked_position(batch.position)):
                    return "it was loaded anew after this cut"
                path = self._path(table) or ""
                location, options = self._store.location(path), self._store.options(path)
                return TableVersion(table, batch.version, path, location, options)
            if batch.first <= file < batch.last:
                return f"files {batch.first} to {batch.last} were applied together"
        newest = self._batches[table][0].last if self._batches[table] else 0
        return f"file {file} is not applied" if file > newest else "its log is no longer there"

    def _told(self, log: TableLog, table: str) -> Iterator[CommittedBatch]:
        """The batches of a table, the newest first. Raises ForeignTable."""
        try:
            kept = PositionMap(self._store, self._path(table) or "")
            yield from CommitHistory(log, kept).batches()
        except (BrokenLog, OSError) as error:
            raise unreadable(table, error) from error

    def missing(self, wanted: Position, tables: Sequence[str]) -> list[str]:
        """The tables that do not show a position. Raises UsageError."""
        if self._covering is None:
            self._covering = next((cut for cut in self.cuts() if _covers(cut, wanted)), None)
        cut = self._covering
        if cut is None:
            return self._chosen(tables, [str(scan.table) for scan in self._scanner.scan()])
        names = self._chosen(tables, [*self.covered(cut), *cut.excluded])
        if not tables:  # nothing comes of those that were dropped
            names = [name for name in names if cut.excluded.get(name) != _DROPPED]
        return [name for name in names if not self._has_applied(name, cut)]

    def _chosen(self, tables: Sequence[str], known: Sequence[str]) -> list[str]:
        tables = [named(name, known, where="wait") for name in tables]
        if unknown := sorted(set(tables) - set(known)):
            raise UsageError(
                f"there is no table {unknown[0]}",
                where="wait",
                hint=tables_like(unknown[0], known, "none yet"),
            )
        return sorted(tables or known) or ["any table"]

    def _has_applied(self, table: str, cut: Cut) -> bool:
        if table in cut.excluded:
            return False
        file = cut.tables.get(table, 0)
        log = self._log(table)
        if not file or log is None:
            return not file
        progress = read_progress(log, table)
        return progress.restored is None and progress.recorded >= file

    def _log(self, table: str) -> TableLog | None:
        if table not in self._logs:
            path = self._path(table)
            log = TableLog.below(self._store, path) if path else None
            if log is None or not (snapshot := log.snapshot()).exists:
                return None
            if self._generations.get(table, "") not in {"", snapshot.properties.get(GENERATION)}:
                return None  # its folder was recreated, and the table is still that of before
            self._logs[table] = log
        return self._logs[table]

    def _path(self, table: str) -> str | None:
        """None when its folder is not in the landing zone, so that it is no longer mirrored."""
        if table not in self._known:
            scans = list(self._scanner.scan())
            self._known = {str(scan.table): self._paths.of(scan) for scan in scans}
            self._generations = {
                str(scan.table): scan.metadata.ours.generation
                for scan in scans
                if scan.metadata and scan.metadata.ours
            }
        return self._known.get(table)


def _of_one_sequence(batches: Iterable[CommittedBatch]) -> Iterator[CommittedBatch]:
    """Batches, the newest first, without those of a folder that was recreated since."""
    following: int | None = None
    for batch in batches:
        if following is not None and batch.last >= following:
            return
        following = batch.first
        yield batch


def _covers(cut: Cut, wanted: Position) -> bool:
    return _point(cut, wanted).covers(wanted.point)


def _point(cut: Cut, wanted: Position) -> LogPoint:
    """Where a cut is, in a log in which the position may be, too. Raises UsageError."""
    point = parse_position(cut.position).point
    if type(point) is not type(wanted.point):
        raise UsageError(
            f"{wanted.point} is no position of this source, whose positions look like "
            f"{cut.position}",
            where="position",
            hint=_HINT,
        )
    return point


def asked_position(text: str) -> Position:
    """A position that somebody named. Raises UsageError."""
    try:
        return parse_position(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a position", where="position", hint=_HINT) from None
