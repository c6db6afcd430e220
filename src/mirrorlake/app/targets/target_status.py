"""How the targets of a project stand, read from the tables themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from mirrorlake.app.stores import store_of
from mirrorlake.app.subscribe import retention_of
from mirrorlake.app.targets.functions import TargetLocation
from mirrorlake.app.targets.keeper import errors, location_of_table
from mirrorlake.app.targets.names import named_targets
from mirrorlake.config import Project
from mirrorlake.delta.log.table_log import BrokenLog, TableLog, TableSnapshot
from mirrorlake.errors import FeedTargetError
from mirrorlake.feed.archive.parts import part_name
from mirrorlake.feed.archive.settings import ArchiveSettings
from mirrorlake.feed.subscriptions.retention import FeedReader, NeededVersion, needed_versions
from mirrorlake.feed.targets.settings import TargetSettings
from mirrorlake.feed.targets.target import TargetState, TargetTable
from mirrorlake.root import delta_path


@dataclass(frozen=True, slots=True)
class TargetStatus:
    """A target, or one table of an archive (CF-195). kind: what it is; first, covered: the versions
    of its source that it covers, -1 for none; gap: those before them that were given up; behind:
    how many versions of the source it does not cover yet, None when that is unknown, and for a
    table that another one follows; error: what stops it, as plain data. left_seconds: until the
    next version of its source is no longer kept, None where nothing waits for it; is_late: little
    of that time is left (CF-189)."""

    target: str
    table: str
    kind: str = ""
    first: int = -1
    covered: int = -1
    gap: tuple[int, int] | None = None
    behind: int | None = None
    error: dict[str, Any] | None = None
    left_seconds: float | None = None
    is_late: bool = False

    def facts(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "table": self.table,
            "kind": self.kind,
            "first": self.first,
            "covered": self.covered,
            "gap": self.gap and list(self.gap),
            "behind": self.behind,
            "error": self.error,
            "left_seconds": self.left_seconds,
            "is_late": self.is_late,
        }


def targets_of(project: Project, now: datetime | None = None) -> list[TargetStatus]:
    """The status of each target."""
    if not project.targets:
        return []
    stopped = errors(store_of(project))
    return [
        found
        for one in named_targets(project)
        for found in _status(project, one, stopped.get(str(one.target)), now or datetime.now(UTC))
    ]


def readers_of(project: Project, path: str) -> list[FeedReader]:
    """The targets that are built from the table at a path below the root. Raises
    FeedTargetError."""
    store, schema = store_of(project), project.mirror.default_schema
    return [
        reader
        for one in named_targets(project)
        if delta_path(one.table, schema) == path
        for reader in _readers(one, location_of_table(store, project, one.target))
    ]


def built_paths(project: Project) -> list[str]:
    """The paths, below the root, of the tables that the project builds from change feeds and that
    exist."""
    store, schema = store_of(project), project.mirror.default_schema
    found: list[str] = []
    for one in named_targets(project):
        target, path = location_of_table(store, project, one.target), delta_path(one.target, schema)
        with suppress(FeedTargetError):  # `status` shows it
            states = _states(target, is_archive=isinstance(one.options, ArchiveSettings))
            found += [part_name(path, number) for number, _state in enumerate(states, start=1)]
    return found


def _readers(one: TargetSettings, target: TargetLocation) -> list[FeedReader]:
    """None for a target that is not built yet, which begins with what there is then."""
    found = list(_states(target, is_archive=isinstance(one.options, ArchiveSettings)))
    return [_reader(one, state) for state in found[-1:]]


def _reader(one: TargetSettings, state: TargetState) -> FeedReader:
    assert state.built is not None
    return FeedReader(f"table {one.target}", state.built.source_id, state.recorded + 1)


def _status(
    project: Project, one: TargetSettings, error: dict[str, Any] | None, now: datetime
) -> Iterator[TargetStatus]:
    store = store_of(project)
    source = location_of_table(store, project, one.table)
    target = location_of_table(store, project, one.target)
    table, states = str(one.table), list[TargetState]()
    try:
        states = list(_states(target, is_archive=isinstance(one.options, ArchiveSettings)))
    except FeedTargetError as refused:
        error = refused.facts()
    needed, retention, latest = list[NeededVersion](), retention_of(project), None
    readers = [_reader(one, state) for state in states[-1:]]
    with suppress(BrokenLog, OSError):
        log = TableLog(source.location, source.options)
        snapshot = log.snapshot()
        if all(reader.table_id == snapshot.metadata.get("id") for reader in readers):
            latest = snapshot.version if snapshot.exists else None
        else:
            error = error or _other_source(snapshot, table)
        needed = needed_versions(log, readers, retention)
    if not states:
        behind = None if latest is None else latest + 1
        yield TargetStatus(str(one.target), table, behind=behind, error=error)
    for number, state in enumerate(states, start=1):
        assert state.built is not None
        is_last = number == len(states)
        need = needed[0] if needed and is_last else None
        yield TargetStatus(
            part_name(str(one.target), number),
            table,
            state.built.kind,
            state.built.start,
            state.recorded,
            state.built.gap,
            latest - state.recorded if is_last and latest is not None else None,
            error if is_last else None,
            *((need.seconds_left(now), need.is_late(now, retention.warning)) if need else ()),
        )


def _other_source(snapshot: TableSnapshot, table: str) -> dict[str, Any]:
    gone = "was removed and made anew" if snapshot.exists else "is not there any more"
    hint = "Build another target, or take this one out of the project file."
    return FeedTargetError(f"its source {gone}", where=table, hint=hint).facts()


def _states(target: TargetLocation, *, is_archive: bool) -> Iterator[TargetState]:
    """The state of the target, or of each table of the archive that there is."""
    number = 1
    while True:
        location = part_name(target.location, number)
        state = TargetTable(location, target.options).state()
        if state.built is None:
            return
        yield state
        if not is_archive:
            return
        number += 1
