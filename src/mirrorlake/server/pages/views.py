"""What the pages show: gathered from what the commands and the API answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from mirrorlake.app.running.batches import HistoryPoint
from mirrorlake.app.status import mirror_status
from mirrorlake.app.status.amounts import p50_p99
from mirrorlake.app.status.mirror_status import Status
from mirrorlake.app.status.table_status import TableStatus
from mirrorlake.app.stores import store_of
from mirrorlake.app.streams.backfills import CAPTURED
from mirrorlake.app.streams.positions import StreamPositions
from mirrorlake.app.streams.service import Service
from mirrorlake.app.streams.supervisor import Work
from mirrorlake.config import Project
from mirrorlake.control.checks import PROJECT_FILE
from mirrorlake.control.names import ResourceKind, ResourceName
from mirrorlake.control.reports import Document
from mirrorlake.control.states import StreamState
from mirrorlake.control.supervision import Supervised
from mirrorlake.delta.log.history import CommittedBatch
from mirrorlake.delta.log.table_log import BrokenLog, TableLog
from mirrorlake.errors import MirrorlakeError, ResourceNotFound, UsageError
from mirrorlake.feed.commits.history import CommitHistory
from mirrorlake.model.table import TableId
from mirrorlake.server.pages.lookups import PositionLookups
from mirrorlake.server.pages.remedies import BackfillVerb, Commands, of_table

MOST_TABLES = 200
"""Tables on one page; those that stand still come first."""
LAST_COMMITS, LAST_ENTRIES = 20, 20
_STUCK = (StreamState.FAILED, StreamState.FAILED_PERMANENTLY)


@dataclass(frozen=True, slots=True)
class StreamRow:
    """A stream in one line. rate: changes per second; freshness: p50 and p99 in seconds; retained:
    bytes of log that its source keeps; each None when nobody knows. tables, failed: their numbers,
    None before anybody has looked."""

    name: ResourceName
    title: str
    state: StreamState
    is_stuck: bool
    rate: float | None
    freshness: tuple[float, float] | None
    retained: int | None
    tables: int | None
    failed: int | None
    problem: str

    @property
    def url(self) -> str:
        return stream_url(self.name)

    @property
    def words(self) -> str:
        """The state in words."""
        return self.state.name.replace("_", " ").capitalize()


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong, what to do, and the commands that do it, to be copied as they are."""

    message: str
    hint: str = ""
    commands: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class TableRow:
    """A table of a stream. url: of its own page."""

    status: TableStatus
    url: str
    fault: Fault | None = None

    @property
    def changes_url(self) -> str:
        return self.url.replace("/table?", "/changes?", 1)


@dataclass(frozen=True, slots=True)
class StreamSight:
    """A stream as its page shows it. more: tables that are not listed; written: where its event
    files are, None for a stream into tables; filled: where others write the files that its tables
    are made of, None for a stream that captures; objects: of a stream of event files, as by the
    API; activity: what has happened to it, newest first."""

    row: StreamRow
    faults: Sequence[Fault] = ()
    tables: Sequence[TableRow] = ()
    more: int = 0
    status: Status | None = None
    positions: StreamPositions = field(default_factory=StreamPositions)
    points: Sequence[HistoryPoint] = ()
    pending: int = 0
    applied: int = 0
    written: str | None = None
    filled: str | None = None
    objects: Sequence[Document] = ()
    activity: Sequence[Document] = ()


@dataclass(frozen=True, slots=True)
class TableSight:
    """A table as its page shows it. commits: the last ones, newest first; backfill: the load of its
    rows, or the backfill that was asked for last, as of the API; verb: what can be done now, with
    its command; can_ask: whether the page does it too."""

    stream: StreamRow
    row: TableRow
    commits: Sequence[CommittedBatch]
    freshness: tuple[float, float] | None
    backfill: Document | None
    verb: BackfillVerb
    commands: Sequence[str]
    can_ask: bool


class Looking:
    """Looks at the streams of a service. For any number of threads."""

    def __init__(self, service: Service) -> None:
        self._service, self._batches = service, service.supervisor.batches
        self._positions = PositionLookups()

    def streams(self) -> list[StreamRow]:
        """Every stream, those that are stuck first."""
        works = self._works()
        found = self._service.control.supervision.supervised()
        rows = [self._row(one, works.get(str(one.name))) for one in found if not one.is_deleted]
        return sorted(rows, key=lambda row: (not row.is_stuck, str(row.name)))

    def stream(self, name: ResourceName, find: str = "") -> StreamSight:
        """find: only tables whose names contain this. Raises ResourceNotFound."""
        supervised = self._supervised(name)
        work = self._works().get(str(name))
        row = self._row(supervised, work)
        try:
            project = self._project(supervised)
            status = self._status(work, project)
        except MirrorlakeError as error:
            what = str(error).removesuffix(error.hint).rstrip()
            return StreamSight(row, [Fault(what, error.hint), *_faults(supervised, None)])
        except OSError as error:
            what = f"its files cannot be read: {error}"
            return StreamSight(row, [Fault(what), *_faults(supervised, None)])
        commands = self._commands(supervised, project)
        tables = [one for one in status.tables if find.casefold() in one.table.casefold()]
        tables.sort(key=lambda one: (one.error is None, one.table))
        faults = _faults(supervised, commands)
        if (stopped := self._service.supervisor.mirror_errors().get(str(name))) is not None:
            faults.append(Fault(str(stopped).removesuffix(stopped.hint).rstrip(), stopped.hint))
        return StreamSight(
            row,
            faults,
            [_table_row(row, one, commands) for one in tables[:MOST_TABLES]],
            max(len(tables) - MOST_TABLES, 0),
            status,
            self._positions.of(str(name), project),
            self._batches.points(str(name)),
            sum(one.pending_files for one in status.tables),
            sum(one.total.rows for one in status.tables),
            _written(project),
            _filled(status, project),
            () if project.lands else self._objects(name),
            self._service.control.activity(name)[: -LAST_ENTRIES - 1 : -1],
        )

    def table(self, name: ResourceName, table: str) -> TableSight:
        """Raises ResourceNotFound."""
        supervised, project, found = self._found(name, table)
        row = self._row(supervised, self._works().get(str(name)))
        commands = self._commands(supervised, project)
        job = self._backfill(name, table)
        is_active = job is not None and job["state"] in ("PENDING", "ACTIVE")
        verb = BackfillVerb.STOP if is_active else BackfillVerb.BACKFILL
        commits = _commits(project, found)
        late = (
            (one.time - one.source_time).total_seconds()
            for one in commits
            if one.source_time is not None and not one.loading
        )
        return TableSight(
            row,
            _table_row(row, found, commands),
            commits,
            p50_p99(max(one, 0.0) for one in late),
            job,
            verb,
            commands.backfill(table, verb),
            job is not None and supervised.state in CAPTURED and project.source is not None,
        )

    def ask_backfill(self, name: ResourceName, table: str, verb: BackfillVerb) -> str:
        """Ask for a backfill of a table, or for its end. Returns the address of its page. Raises
        what `ObjectBackfills` raises."""
        found = self._object(name, table)
        asked = ResourceName.parse(found["name"])
        if verb is BackfillVerb.STOP:
            self._service.backfills.stop(asked)
        else:
            self._service.backfills.start(asked, {})
        return table_url(stream_url(name), table)

    def table_of(self, name: ResourceName, table: str) -> tuple[StreamRow, Project, TableStatus]:
        """The stream, its settings and one of its tables. Raises ResourceNotFound."""
        supervised, project, found = self._found(name, table)
        return self._row(supervised, self._works().get(str(name))), project, found

    def _commands(self, stream: Supervised, project: Project) -> Commands:
        file = stream.document.get(PROJECT_FILE)
        root = project.root if isinstance(project.root, Path) else project.root.url
        mirror = ("--config", f"{file}#{project.name}") if file else ("--root", str(root))
        return Commands(stream.name, self._service.places.folder, mirror)

    def _objects(self, name: ResourceName) -> list[Document]:
        control = self._service.control
        return control.page(ResourceKind.OBJECT, str(name), size=MOST_TABLES)[0]

    def _backfill(self, name: ResourceName, table: str) -> Document | None:
        try:
            job: Document = self._object(name, table)["backfillJob"]
        except UsageError:
            return None  # nobody has looked at its objects yet
        return job

    def _object(self, name: ResourceName, table: str) -> Document:
        """Of a table, as of the API. Raises ResourceNotFound."""
        named = TableId.parse(table)
        identifier = {"postgresqlIdentifier": {"schema": named.schema, "table": named.name}}
        return self._service.control.lookup(name, identifier)

    def _found(self, name: ResourceName, table: str) -> tuple[Supervised, Project, TableStatus]:
        supervised = self._supervised(name)
        project = self._project(supervised)
        status = self._status(self._works().get(str(name)), project)
        found = next((one for one in status.tables if one.table == table), None)
        if found is None:
            raise ResourceNotFound("the stream has no such table", where=str(name))
        return supervised, project, found

    def _works(self) -> Mapping[str, Work]:
        return {str(work.name): work for work in self._service.supervisor.works()}

    def _supervised(self, name: ResourceName) -> Supervised:
        document: Document = self._service.control.get(name)
        state = StreamState[document["state"]]
        return Supervised(name, document, state, is_deleted=False)

    def _project(self, stream: Supervised) -> Project:
        return self._service.projects.of(stream.name, stream.document)

    def _status(self, work: Work | None, project: Project) -> Status:
        """What the supervisor saw last; of a stream that it does not look at, what is there."""
        if work is not None and work.status is not None and work.capture.is_running:
            return work.status
        return mirror_status.read(project)

    def _row(self, stream: Supervised, work: Work | None) -> StreamRow:
        status = work.status if work else None
        errors = stream.document.get("errors", [])
        retained = None
        if work is not None and work.capture.is_running:
            retained = work.capture.reports.retained_bytes
        failed = None if status is None else sum(one.error is not None for one in status.tables)
        return StreamRow(
            name=stream.name,
            title=str(stream.document.get("displayName") or stream.name.id),
            state=stream.state,
            is_stuck=stream.state in _STUCK or bool(errors) or bool(failed),
            rate=self._batches.rate(str(stream.name)),
            freshness=self._batches.freshness(str(stream.name)),
            retained=retained,
            tables=None if status is None or work is None else len(status.tables or work.tables),
            failed=failed,
            problem=str(errors[0]["message"]) if errors else "",
        )


def stream_url(name: ResourceName) -> str:
    """The address of the page of a stream."""
    project, location = name.parent.split("/")[1::2]
    return "/streams/" + "/".join(quote(one) for one in (project, location, name.id))


def table_url(stream: str, table: str) -> str:
    """The address of the page of a table. stream: that of its stream."""
    return f"{stream}/table?{urlencode({'name': table}, errors='replace')}"


def stream_name(project: str, location: str, identifier: str) -> ResourceName:
    """Raises InvalidRequest."""
    parent = f"projects/{project}/locations/{location}"
    return ResourceName.parse(f"{parent}/{ResourceKind.STREAM.value}/{identifier}")


def _faults(stream: Supervised, commands: Commands | None) -> list[Fault]:
    chosen: Sequence[str] = ()
    if commands is not None and stream.state is StreamState.FAILED_PERMANENTLY:
        chosen = commands.recover()
    elif commands is not None and stream.state is StreamState.NOT_STARTED:
        chosen = commands.start()
    return [
        Fault(str(one["message"]), commands=chosen) for one in stream.document.get("errors", [])
    ]


def _written(project: Project) -> str | None:
    """Where the event files of a stream are, without how it is reached."""
    if project.lands:
        return None
    place = project.destinations[0].location
    return str(place) if isinstance(place, Path) else place.url


def _filled(status: Status, project: Project) -> str | None:
    """Where others put files, of a stream that has no source of its own."""
    return None if project.source is not None else status.events or status.landing_zone


def _table_row(stream: StreamRow, table: TableStatus, commands: Commands) -> TableRow:
    fault = None
    if table.error:
        error: Mapping[str, Any] = table.error
        message = str(error.get("message") or error.get("code") or "it has stopped")
        what = message.removesuffix(str(error.get("hint") or "")).rstrip()
        fault = Fault(what, *of_table(error, table.table, commands))
    return TableRow(table, table_url(stream.url, table.table), fault)


def _commits(project: Project, table: TableStatus) -> list[CommittedBatch]:
    """The last batches, newest first, as far as the log still has them."""
    if table.version is None:
        return []
    store = store_of(project)
    log = TableLog.below(store, table.path)
    try:
        return list(islice(CommitHistory(log).batches(), LAST_COMMITS))
    except (BrokenLog, OSError):
        return []  # the table itself says what is wrong


def utc(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
