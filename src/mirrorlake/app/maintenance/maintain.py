"""All that tables need at once, on request: compaction, clustering by key, vacuum, checkpoint,
clean-up of the log.

A running mirror does the same by itself, a little at a time, but for clustering. Rows, feed and
progress stay what they were (CF-156). The log is cleaned after vacuum, which has the table say how
long it is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, assert_never

from mirrorlake.app.maintenance.vacuum import VacuumOutcome, Vacuums
from mirrorlake.app.stores import store_of
from mirrorlake.app.targets.target_status import built_paths, readers_of
from mirrorlake.config import Project
from mirrorlake.errors import MirrorlakeError, TableError, UsageError, tables_like
from mirrorlake.mirror.engine import (
    AlreadyApplied,
    Applied,
    Conflicted,
    Failed,
    MirrorEngine,
    Outcome,
    Unknown,
)
from mirrorlake.mirror.steps import Compact
from mirrorlake.mirror.table.progress import table_name
from mirrorlake.model.clock import Clock
from mirrorlake.model.table import named
from mirrorlake.storage.lease import Lease, renewed
from mirrorlake.storage.store import UnsafePath


class MaintenanceAct(StrEnum):
    COMPACT = "compact"
    CLUSTER = "cluster"
    CHECKPOINT = "checkpoint"
    VACUUM = "vacuum"


@dataclass(frozen=True, slots=True)
class MaintenanceStep:
    """What a table needs, or what was done. detail: in words; version: of the table, which the act
    made or is about; held_by: the readers for which it was left; error: why it failed."""

    table: str
    act: MaintenanceAct
    detail: str
    version: int | None = None
    held_by: tuple[str, ...] = ()
    error: MirrorlakeError | None = None

    def facts(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "act": str(self.act),
            "detail": self.detail,
            "version": self.version,
            "held_by": list(self.held_by),
            "error": self.error.facts() if self.error else None,
        }


class TableMaintenance:
    """Of the tables that one engine may write. before_commit: refuses a commit by raising."""

    def __init__(
        self,
        engine: MirrorEngine,
        vacuums: Vacuums,
        before_commit: Callable[[], None],
    ) -> None:
        self._engine, self._vacuums = engine, vacuums
        self._before_commit = before_commit

    def plan(self, path: str, *, is_built: bool = False) -> Iterator[MaintenanceStep]:
        """What `run` would do now with a table. Changes nothing."""
        table, version = table_name(path), self._engine.progress(path).version
        step = None if is_built else self._engine.compaction(path)
        if step is not None:
            detail = f"{step.files}, and what can be joined then"
            yield MaintenanceStep(table, MaintenanceAct.COMPACT, detail)
        if not is_built and (step := self._engine.clustering(path)):
            yield MaintenanceStep(table, MaintenanceAct.CLUSTER, step.files)
        if self._vacuums.is_on:
            yield _vacuumed(table, self._vacuums.preview(path))
        said = "write one, and remove commits that are older than the log is kept"
        yield MaintenanceStep(table, MaintenanceAct.CHECKPOINT, said, version)

    def run(self, path: str, *, is_built: bool = False) -> Iterator[MaintenanceStep]:
        """Do what a table needs, and report each act when it is done. is_built: from a change feed,
        by a builder, which compacts it itself."""
        if not is_built:
            yield from self._compact(path)
            yield from self._cluster(path)
        outcome = self._vacuums.now(path, self._before_commit)  # the table says what is kept then
        if self._vacuums.is_on:
            yield _vacuumed(table_name(path), outcome)
        yield self._checkpoint(path)

    def _compact(self, path: str) -> Iterator[MaintenanceStep]:
        while (step := self._engine.compaction(path)) is not None:
            (outcome,) = self._engine.compact([step], self._before_commit)
            yield _compacted(step, outcome)
            if not isinstance(outcome, Applied):
                return

    def _cluster(self, path: str) -> Iterator[MaintenanceStep]:
        """Cluster as long as each step leaves fewer files per key."""
        overlap = math.inf
        while (step := self._engine.clustering(path)) is not None and step.overlap < overlap:
            overlap = step.overlap
            (outcome,) = self._engine.compact([step], self._before_commit)
            yield _compacted(step, outcome)
            if not isinstance(outcome, Applied):
                return

    def _checkpoint(self, path: str) -> MaintenanceStep:
        table, version = table_name(path), self._engine.progress(path).version
        if not self._vacuums.may_clean_log(path):
            detail = "left, because readers need commits that it would remove"
            return MaintenanceStep(table, MaintenanceAct.CHECKPOINT, detail, version)
        try:
            self._engine.checkpoint(path)
        except TableError as error:
            return MaintenanceStep(
                table, MaintenanceAct.CHECKPOINT, error.what, version, error=error
            )
        return MaintenanceStep(table, MaintenanceAct.CHECKPOINT, "written", version)


def maintained(
    project: Project,
    engine: MirrorEngine,
    clock: Clock,
    tables: Collection[str],
    *,
    dry_run: bool,
) -> list[MaintenanceStep]:
    """Do what tables of a project need, all or those of some names, also those that it builds from
    change feeds; or report what there is to do. Raises LeaseHeld, LeaseLost, UsageError."""
    store, settings = store_of(project), project.mirror
    lease, readers = Lease(store, "mirror", clock), partial(readers_of, project)
    times = settings.vacuum, settings.subscription_hold
    targets = built_paths(project)
    vacuums = Vacuums(store, engine, clock, *times, readers, lambda: targets)
    maintenance = TableMaintenance(engine, vacuums, lease.check)
    if tables:
        known = {table_name(path) for path in (*engine.paths(), *targets)}
        tables = {named(name, known, where=project.name) for name in tables}
    built = [path for path in targets if not tables or table_name(path) in tables]
    mirrored = set(tables) - {table_name(path) for path in built}
    paths = tables_of(engine, mirrored) if mirrored or not tables else []
    if dry_run:
        return list(_each(maintenance.plan, paths, built))
    lease.take()
    try:
        with renewed(lease):
            return list(_each(maintenance.run, paths, built))
    finally:
        lease.release()


def _each(
    act: Callable[..., Iterator[MaintenanceStep]], paths: Sequence[str], built: Sequence[str]
) -> Iterator[MaintenanceStep]:
    for path in paths:
        yield from act(path)
    for path in built:
        yield from act(path, is_built=True)


def tables_of(engine: MirrorEngine, tables: Collection[str] = ()) -> list[str]:
    """The paths of the tables of a mirror, or of those of some names. Raises UsageError for one
    that there is not."""
    ours = {table_name(path): path for path in engine.paths() if is_ours(engine, path)}
    tables = {named(name, ours, where="table") for name in tables}
    if unknown := sorted(tables - ours.keys()):
        raise UsageError(
            f"there is no table {unknown[0]} that the mirror writes",
            hint=tables_like(unknown[0], ours, "none yet"),
        )
    return sorted(ours[name] for name in (tables or ours))


def is_ours(engine: MirrorEngine, path: str) -> bool:
    """Whether the table at a path is one of the mirror, which it may write."""
    try:
        progress = engine.progress(path)
    except (TableError, UnsafePath):
        return False
    return bool(progress.generation) and not progress.unsupported


def _compacted(step: Compact, outcome: Outcome | None) -> MaintenanceStep:
    table = str(step.table)
    act = MaintenanceAct.CLUSTER if step.clusters else MaintenanceAct.COMPACT
    match outcome:
        case Applied(version):
            return MaintenanceStep(table, act, step.files, version)
        case Failed(error):
            return MaintenanceStep(table, act, error.what, error=error)
        case Conflicted(reason) | Unknown(reason):
            return MaintenanceStep(table, act, f"left: {reason}")
        case AlreadyApplied() | None:
            return MaintenanceStep(table, act, "nothing was left to join")
        case _:
            assert_never(outcome)


def _vacuumed(table: str, outcome: VacuumOutcome) -> MaintenanceStep:
    held, error = outcome.held_by, outcome.error
    if error is not None:
        return MaintenanceStep(table, MaintenanceAct.VACUUM, error.what, error=error)
    detail = "files that only older versions need"
    if held is None:
        detail = "left, because the readers of the table are unknown"
    elif held:
        detail = "left, because readers need what it would remove"
    return MaintenanceStep(table, MaintenanceAct.VACUUM, detail, held_by=held or ())
