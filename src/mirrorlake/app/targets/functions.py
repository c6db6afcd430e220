"""`history`, `archive` and `replay`: tables that are built from the change feed of another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from mirrorlake.app.stores import store_of
from mirrorlake.config import Project
from mirrorlake.feed.follow import POLL, POLL_OBJECTS
from mirrorlake.feed.history.every_row import EveryRow
from mirrorlake.feed.history.newest import NewestRows
from mirrorlake.feed.history.settings import HistoryArguments, HistorySettings, HistoryType
from mirrorlake.feed.targets.build import BuildRequest, TargetBuilder, TargetKind, TargetReport
from mirrorlake.feed.targets.source import FeedSource
from mirrorlake.feed.targets.target import FEED, TargetTable
from mirrorlake.model.crash_points import CrashHook, no_crash
from mirrorlake.model.table import TableId
from mirrorlake.root import delta_path
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.urls import is_url


def history(
    table: str | Path,
    target: str | Path,
    *,
    from_version: int | None = None,
    from_latest: bool = False,
    to_version: int | None = None,
    options: ObjectOptions | None = None,
    target_options: ObjectOptions | None = None,
    reached: CrashHook = no_crash,
    **asked: Unpack[HistoryArguments],
) -> TargetReport:
    """Build the history of a Delta table, or go on with it, up to its latest version.

    table, target: folders or URLs. type: 2 for every row with its interval, 1 for the newest row of
    each key; key: columns that identify a row, instead of those of a mirrored table. Of type 2:
    track, the columns whose change opens an interval, all without; bounds: `version`,
    `commit_time`, `source_time` or `source_position`, what intervals are told in; current: with a
    column that is true for the current row. Of type 1: deletes: `remove` or `flag`. A new history
    begins with all that the feed of the table has, or with the rows of `from_version`, or of the
    latest version. to_version: the last version to be covered. options, target_options: how URLs
    are reached.

    What is covered already is not applied again, wherever a process died before. Raises FeedError,
    FeedTargetError, UsageError, Unavailable.
    """
    builder = builder_of(
        TargetLocation(str(table), options),
        TargetLocation(str(target), target_options),
        HistorySettings.of(**asked),
        reached,
    )
    return builder.build(BuildRequest(from_version, from_latest, to_version))


@dataclass(frozen=True, slots=True)
class TargetLocation:
    """Where a Delta table lies, and how it is reached."""

    location: str
    options: ObjectOptions | None = None


def builder_of(
    source: TargetLocation, target: TargetLocation, asked: HistorySettings, reached: CrashHook
) -> TargetBuilder:
    """What builds a target as it is asked for."""
    kind: TargetKind
    if asked.type is HistoryType.NEWEST:
        kind, properties = NewestRows(asked), dict[str, str]()
    else:
        kind, properties = EveryRow(asked), {FEED: "false"}
    return TargetBuilder(
        FeedSource(source.location, asked.key, source.options),
        TargetTable(target.location, target.options, reached, properties),
        kind,
    )


def location_of_target(
    settings: Callable[[], Project], table: TargetLocation, to: str | None, end: str
) -> TargetLocation:
    """Where the target of a table is: the folder or URL `to`, or the table of this name in the
    project; beside the table without one. Raises UsageError."""
    if to is None:
        return TargetLocation(table.location.rstrip("/") + end, table.options)
    if is_url(to) or "/" in to:
        return TargetLocation(to, table.options if is_url(to) else None)
    project = settings()
    store = store_of(project)
    path = delta_path(TableId.parse(to), project.mirror.default_schema)
    return TargetLocation(store.location(path), store.options(path))


def followed(
    build: Callable[[], TargetReport], wait: Callable[[float], bool], location: str
) -> Iterator[TargetReport]:
    """What is done now, and then each time that the source has changed. wait: for so many seconds,
    and says whether to stop."""
    report = build()
    yield report
    while not wait(POLL_OBJECTS if is_url(location) else POLL):
        report = build()
        if report.commits:
            yield report
