"""How the targets of a project stand, read from the tables themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mirrorlake.app.stores import store_of
from mirrorlake.app.targets.keeper import errors, location_of_table
from mirrorlake.config import Project
from mirrorlake.delta.log.table_log import BrokenLog, TableLog
from mirrorlake.errors import FeedTargetError
from mirrorlake.feed.targets.target import TargetTable


@dataclass(frozen=True, slots=True)
class TargetStatus:
    """A target. kind: what it is; covered: the last version of its source that it covers, -1 for
    none; behind: how many versions of the source it does not cover yet, None when nobody can tell;
    error: what stops it, as plain data."""

    target: str
    table: str
    kind: str
    covered: int
    behind: int | None
    error: dict[str, Any] | None

    def facts(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "table": self.table,
            "kind": self.kind,
            "covered": self.covered,
            "behind": self.behind,
            "error": self.error,
        }


def targets_of(project: Project) -> list[TargetStatus]:
    """The status of each target."""
    if not project.targets:
        return []
    store = store_of(project)
    stopped, found = errors(store), []
    for one in project.targets:
        source = location_of_table(store, project, one.table)
        target = location_of_table(store, project, one.target)
        kind, covered, error = "", -1, stopped.get(str(one.target))
        try:
            state = TargetTable(target.location, target.options).state()
            if state.built is not None:
                kind, covered = state.built.kind, state.recorded
        except FeedTargetError as refused:
            error = refused.facts()
        try:
            latest = TableLog(source.location, source.options).snapshot().version
        except (BrokenLog, OSError):
            latest = None
        behind = None if latest is None else latest - covered
        found.append(TargetStatus(str(one.target), str(one.table), kind, covered, behind, error))
    return found
