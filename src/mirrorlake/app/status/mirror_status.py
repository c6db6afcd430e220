"""How a mirror stands: read from the zone and the tables themselves, without a JVM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from mirrorlake.app.events.status import dead_events, event_tables
from mirrorlake.app.source import detached
from mirrorlake.app.status import ended, table_status_file
from mirrorlake.app.status.outage import outage_of, wait_of
from mirrorlake.app.status.source_log import retention_of
from mirrorlake.app.status.table_status import TableStatus, View, tables_of
from mirrorlake.app.stores import store_of
from mirrorlake.app.subscribe import SubscriptionState, states
from mirrorlake.app.targets.target_status import TargetStatus, targets_of
from mirrorlake.apply.logs.processed_names import ProcessedNames
from mirrorlake.apply.logs.progress import read_progress
from mirrorlake.apply.logs.table_reader import LogReader
from mirrorlake.capture.backfill.jobs import BackfillJob, BackfillRecords
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.records.source_state import Outage, SnapshotWait
from mirrorlake.capture.watch.retention import LogRetention
from mirrorlake.config import Project
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.errors import SourceGap
from mirrorlake.landing.file_identity import Tails
from mirrorlake.landing.partner_events import PartnerEvents
from mirrorlake.landing.scan import Scanner
from mirrorlake.mirror.table.progress import Progress
from mirrorlake.storage.lease import holder_of


@dataclass(frozen=True, slots=True)
class Status:
    """A mirror. capture, apply: the process that runs it now, in words, or None; landing_zone: the
    folder in which files are landed; partner: what the publisher says of itself; detached: when the
    mirror was detached from its source, None if it was not; outage: why capture, which runs, gets
    nothing; wait: for what it can take no snapshot; retention: what the source kept of its log when
    capture last looked; errors: what ended processes that do not run now, as by `ended.errors`;
    targets: tables that are built from change feeds; subscriptions: who reads the changes, and how
    long what they have not read is kept (CF-189); left_out: tables that came later, which the
    project ignores, and when each was seen; backfills: of each table the last; events: where event
    files are read, "" where none are; dead_events: how many of them could not be applied; written:
    where event files are written; lands: whether there are a landing zone and tables too."""

    mirror: str
    capture: str | None
    apply: str | None
    tables: list[TableStatus] = field(default_factory=list)
    landing_zone: str = ""
    partner: PartnerEvents = field(default_factory=PartnerEvents)
    detached: str | None = None
    outage: Outage | None = None
    wait: SnapshotWait | None = None
    retention: LogRetention | None = None
    errors: list[dict[str, Any]] = field(default_factory=list)
    targets: list[TargetStatus] = field(default_factory=list)
    subscriptions: list[SubscriptionState] = field(default_factory=list)
    backfills: list[BackfillJob] = field(default_factory=list)
    left_out: Mapping[str, str] = field(default_factory=dict)
    events: str = ""
    dead_events: int = 0
    written: tuple[str, ...] = ()
    lands: bool = True

    @property
    def state(self) -> str:
        if any(error["code"] == SourceGap.code for error in self.errors):
            return "Failed permanently"  # until it is repaired (ST-277)
        return "Running" if (self.apply if self.lands else self.capture) else "Stopped"

    def facts(self) -> dict[str, Any]:
        return {
            "mirror": self.mirror,
            "state": self.state,
            "landing_zone": self.landing_zone,
            "capture": self.capture,
            "apply": self.apply,
            "detached": self.detached,
            "source": {"state": "unreachable", **self.outage.facts()} if self.outage else None,
            "snapshot_wait": self.wait.facts() if self.wait else None,
            "source_log": self.retention.facts() if self.retention else None,
            "errors": self.errors,
            "partner": self.partner.facts() if self.partner.is_present else None,
            "tables": [table.facts() for table in self.tables],
            "targets": [target.facts() for target in self.targets],
            "subscriptions": [one.facts() for one in self.subscriptions],
            "left_out": [{"table": name, "since": at} for name, at in self.left_out.items()],
            "backfills": [job.as_facts() for job in self.backfills],
            "events": {"url": self.events, "dead": self.dead_events} if self.events else None,
            "event_files": list(self.written),
        }


def read(project: Project, now: datetime | None = None) -> Status:
    """The status of a project's mirror."""
    store = store_of(project)
    moment = now or datetime.now(UTC)
    if project.events is not None:
        apply = holder_of(store, "mirror", moment)
        return Status(
            mirror=project.name,
            capture=None,
            apply=apply,
            tables=event_tables(store, is_running=apply is not None),
            errors=ended.errors(store, moment),
            events=project.events.described,
            dead_events=dead_events(store),
        )
    settings = project.mirror
    scanner = Scanner(store, strict_text=settings.strict_text, partitions=settings.partitions)
    capture = holder_of(store, "capture", moment)
    apply = holder_of(store, "mirror", moment)
    outage = outage_of(store, moment)
    view = View(
        store,
        project.mirror,
        scanner,
        ProcessedNames(store, LogReader(store)),
        moment,
        Tails(store),
        is_fed=project.source is None or capture is not None,
        is_running=apply is not None,
        unheard=outage.since if outage else None,
    )

    records = Records(store, scanner.zone())
    backfills = BackfillRecords(records)
    jobs = backfills.jobs()
    admission = records.admission()

    def progress(path: str, table: str) -> Progress:
        return read_progress(TableLog.below(store, path), table)

    return Status(
        mirror=project.name,
        capture=capture,
        apply=apply,
        tables=tables_of(
            view,
            scanner.scan(),
            progress,
            table_status_file.read(store),
            stopped(project),
            records.append_only(),
            records.unloaded(),
            records.without_effect(),
            backfills.due(jobs),
            records.ignored() | records.unfollowed(),
            records.dropped(),
        ),
        landing_zone=store.location(scanner.zone()) if project.lands else "",
        written=tuple(one.described for one in project.destinations),
        lands=project.lands,
        partner=scanner.partner(),
        detached=detached.since(store),
        outage=outage,
        wait=wait_of(store, moment),
        retention=retention_of(store),
        errors=ended.errors(store, moment),
        targets=targets_of(project, moment),
        subscriptions=states(project, moment),
        backfills=jobs,
        left_out=admission.left_out if admission else {},
    )


def stopped(project: Project) -> dict[str, dict[str, Any]]:
    """The tables that an error has stopped in capture, with it."""
    return _records(project).failed()


def due(project: Project) -> dict[str, BackfillJob]:
    """By table name the backfills that are not complete, without which tables differ."""
    backfills = BackfillRecords(_records(project))
    return backfills.due(backfills.jobs())


def _records(project: Project) -> Records:
    store = store_of(project)
    return Records(store, Scanner(store).zone())
