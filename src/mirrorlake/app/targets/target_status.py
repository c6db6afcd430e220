"""How the targets of a project stand, read from the tables themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mirrorlake.app.stores import store_of
from mirrorlake.app.targets.functions import TargetLocation
from mirrorlake.app.targets.keeper import errors, location_of_table
from mirrorlake.config import Project
from mirrorlake.delta.log.table_log import BrokenLog, TableLog
from mirrorlake.errors import FeedTargetError
from mirrorlake.feed.archive.parts import part_name
from mirrorlake.feed.archive.settings import ArchiveSettings
from mirrorlake.feed.targets.settings import TargetSettings
from mirrorlake.feed.targets.target import TargetState, TargetTable


@dataclass(frozen=True, slots=True)
class TargetStatus:
    """A target, or one table of an archive (CF-195). kind: what it is; first, covered: the versions
    of its source that it covers, -1 for none; gap: those before them that were given up; behind:
    how many versions of the source it does not cover yet, None when nobody can tell, and for a
    table that another one follows; error: what stops it, as plain data."""

    target: str
    table: str
    kind: str = ""
    first: int = -1
    covered: int = -1
    gap: tuple[int, int] | None = None
    behind: int | None = None
    error: dict[str, Any] | None = None

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
        }


def targets_of(project: Project) -> list[TargetStatus]:
    """The status of each target."""
    if not project.targets:
        return []
    stopped = errors(store_of(project))
    return [
        found
        for one in project.targets
        for found in _status(project, one, stopped.get(str(one.target)))
    ]


def _status(
    project: Project, one: TargetSettings, error: dict[str, Any] | None
) -> Iterator[TargetStatus]:
    store = store_of(project)
    source = location_of_table(store, project, one.table)
    target = location_of_table(store, project, one.target)
    table, states = str(one.table), list[TargetState]()
    try:
        states = list(_states(target, is_archive=isinstance(one.asked, ArchiveSettings)))
    except FeedTargetError as refused:
        error = refused.facts()
    try:
        latest = TableLog(source.location, source.options).snapshot().version
    except (BrokenLog, OSError):
        latest = None
    if not states:
        behind = None if latest is None else latest + 1
        yield TargetStatus(str(one.target), table, behind=behind, error=error)
    for number, state in enumerate(states, start=1):
        assert state.built is not None
        is_last = number == len(states)
        yield TargetStatus(
            part_name(str(one.target), number),
            table,
            state.built.kind,
            state.built.start,
            state.recorded,
            state.built.gap,
            latest - state.recorded if is_last and latest is not None else None,
            error if is_last else None,
        )


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
