"""Whether a mirror can begin, or go on, with its source; nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

from mirrorlake import root
from mirrorlake.app import extras, own_root
from mirrorlake.app.source import detached
from mirrorlake.app.status import ended
from mirrorlake.capture.events.state import delivered
from mirrorlake.capture.landing.table_positions import known
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.tables.dropped import dropped_names
from mirrorlake.capture.tables.members import expecting_new
from mirrorlake.capture.watch import unpublished
from mirrorlake.config import Project
from mirrorlake.config.sources import open_source
from mirrorlake.errors import PrerequisiteMissing, Unavailable, UsageError
from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.model.clock import WallClock
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import REACHABLE, URL_CHECK, CheckResult, CheckSeverity, Source
from mirrorlake.sources.section import SourceSettings
from mirrorlake.storage.lease import holder_of
from mirrorlake.storage.store import Store


def findings(project: Project, store: Store) -> list[CheckResult]:
    """Test the root and every prerequisite of the source."""
    own_root.check_root(project, store)
    records = Records(store, root.LANDING)
    with discovering(project, store) as source:
        found = source.check()
        failed = {one.check for one in found if one.severity is not CheckSeverity.OK}
        if not failed & {REACHABLE, URL_CHECK}:
            is_new = records.stream() is None
            home = store.location(records.zone)
            other = source.objects.occupied(home) if is_new and source.objects else None
            found += [other] if other else []
            if all(one.severity is not CheckSeverity.ERROR for one in found):
                found += _unknown_tables(project, source, records)
        found, again = _added_again(project, records, source, found)
    if (time := detached.since(store)) is not None:
        problem = detached.error(time)
        found.append(CheckResult("detached", CheckSeverity.ERROR, problem.what, problem.hint))
    is_running = holder_of(store, ended.CAPTURE, WallClock().now()) is not None
    landed = {*map(str, known(records)), *delivered(records)}
    admits_new = SchemaChangeKind.TABLE_CREATED not in project.capture.ignores
    return expecting_new(
        found, records, landed, again, is_running=is_running, admits_new=admits_new
    )


def _unknown_tables(project: Project, source: Source, records: Records) -> Iterator[CheckResult]:
    """Settings of single tables that no table has, as where the name is misspelt."""
    if not project.mirror.tables:
        return
    tables = {*(one.table for one in source.discover()), *known(records)}
    names = {name for table in tables for name in (str(table), table.plain)}
    for name in sorted(project.mirror.tables.keys() - names):
        yield CheckResult(
            "settings",
            CheckSeverity.WARNING,
            f"{name} in mirror.tables is no table of this mirror, so its settings have no effect",
            "Correct the spelling (names are case-sensitive), or remove it from the project file.",
        )


def _added_again(
    project: Project, records: Records, source: Source, found: list[CheckResult]
) -> tuple[list[CheckResult], set[TableId]]:
    """The findings, with what to do about tables that are not published any more; and those of
    these that capture adds again by itself."""
    if all(one.kind is None for one in found):
        return found, set()
    if project.destinations or project.capture.strict:
        return list(unpublished.without_repair(found)), set()
    stopped = records.stopped()
    tables = [table for table in source.discover() if str(table.table) not in stopped]
    again = unpublished.find(found, tables, tables, project.capture)
    return found, {table.table for table, _finding in again}


def check_begin(project: Project, store: Store) -> None:
    """Ask, before anything is made, whether capture can begin or go on at this root.

    Raises UsageError for a wrong root and without a source, SourceGap once it is detached,
    PrerequisiteMissing where the slot belongs to another root.
    """
    connection(project)
    own_root.check_root(project, store)
    if (time := detached.since(store)) is not None:
        raise detached.error(time)
    _check_slot(project, store)


def check_root(project: Project, store: Store) -> None:
    """Refuse a wrong root, before anything is created.

    Raises UsageError, and PrerequisiteMissing where the root is new and the slot belongs to another
    one, which is not known while the source cannot be reached.
    """
    own_root.check_root(project, store)
    if project.source is not None and project.unset is None:
        with suppress(Unavailable):
            _check_slot(project, store)


def _check_slot(project: Project, store: Store) -> None:
    """Raises PrerequisiteMissing where the root is new and the slot belongs to another one."""
    records = Records(store, root.LANDING)
    if records.stream() is None:
        with closing(source_of(project)) as source:
            home = store.location(records.zone)
            found = source.objects.occupied(home) if source.objects else None
        if found is not None:
            raise PrerequisiteMissing(found.message, where=project.where, hint=found.remedy)


def source_of(project: Project) -> Source:
    """The source of a project. Raises UsageError where there is none."""
    settings = connection(project)
    with extras.needed(f"a {settings.product} source"):
        return open_source(settings)


@contextmanager
def discovering(project: Project, store: Store) -> Iterator[Source]:
    """The source of a project, to discover its tables as they are there. Settings that name what is
    gone of tables that were loaded are no misspellings. Raises UsageError where there is none."""
    with closing(source_of(project)) as source:
        records = Records(store, root.LANDING)
        with suppress(Unavailable):  # it may be looked at before there is a root
            loaded = {*known(records), *map(TableId.parse, delivered(records))}
            source.keep_names({}, loaded, dropped_names(records))
        yield source


def connection(project: Project) -> SourceSettings:
    """The settings of the source. Raises UsageError when there are none to connect with."""
    if project.events is not None:
        raise UsageError(
            "the source is a folder or bucket of event files, and no database",
            where=f"mirror {project.name}",
            hint="Use `mirrorlake run` or `mirrorlake apply`.",
        )
    if project.source is None:
        raise UsageError(
            "this mirror has no source",
            where=f"mirror {project.name}",
            hint="Add a `source:` section to the project file; `mirrorlake init` writes an "
            "example.",
        )
    if project.unset is not None:
        raise project.unset
    return project.source
