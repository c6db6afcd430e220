"""`history`, `archive` and `replay`: tables that are built from the change feed of another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from mirrorlake.app.stores import store_of
from mirrorlake.config import Project
from mirrorlake.errors import UsageError
from mirrorlake.feed.archive.every_change import EveryChange
from mirrorlake.feed.archive.parts import Archive
from mirrorlake.feed.archive.settings import ArchiveSettings
from mirrorlake.feed.follow import POLL, POLL_OBJECTS
from mirrorlake.feed.history.every_row import EveryRow
from mirrorlake.feed.history.newest import NewestRows
from mirrorlake.feed.history.settings import HistoryArguments, HistorySettings, HistoryType
from mirrorlake.feed.targets.build import BuildRequest, TargetBuilder, TargetKind, TargetReport
from mirrorlake.feed.targets.settings import ReplaySettings
from mirrorlake.feed.targets.source import FeedSource
from mirrorlake.feed.targets.target import TargetTable
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
    `commit_time`, `source_time` or `source_position`, the unit of intervals; current: with a
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


def archive(
    table: str | Path,
    target: str | Path,
    *,
    names: Mapping[str, str] | None = None,
    accept_gap: bool = False,
    from_version: int | None = None,
    from_latest: bool = False,
    to_version: int | None = None,
    options: ObjectOptions | None = None,
    target_options: ObjectOptions | None = None,
    reached: CrashHook = no_crash,
) -> list[TargetReport]:
    """Copy every change of a Delta table into an archive that only grows, or go on with it.

    names: other names for columns of the archive, by their usual ones: `change_type`,
    `commit_version`, `commit_timestamp`, `origin`, `source_id`. accept_gap: go on after versions
    whose changes are lost, in another table. The other arguments are those of `history`. Returns a
    report for each table that was built: a new one begins, with `_2` at its end and so on, where
    the source changed its columns otherwise than by adding some. Raises FeedError, FeedTargetError,
    UsageError, Unavailable.
    """
    found = archive_of(
        TargetLocation(str(table), options),
        TargetLocation(str(target), target_options),
        ArchiveSettings.of(names),
        reached,
    )
    request = BuildRequest(from_version, from_latest, to_version)
    return found.build(request, accept_gap=accept_gap)


def replay(
    table: str | Path,
    target: str | Path,
    *,
    key: Sequence[str] | None = None,
    from_version: int | None = None,
    from_latest: bool = False,
    to_version: int | None = None,
    options: ObjectOptions | None = None,
    target_options: ObjectOptions | None = None,
    reached: CrashHook = no_crash,
) -> TargetReport:
    """Apply the change feed of a Delta table to another one, commit by commit, or go on with it.

    After each commit the target is equal to its source as of that version, and its own feed has
    the same changes. The arguments are those of `history`. Raises FeedError, FeedTargetError,
    UsageError, Unavailable.
    """
    builder = builder_of(
        TargetLocation(str(table), options),
        TargetLocation(str(target), target_options),
        ReplaySettings(None if key is None else tuple(key)),
        reached,
    )
    return builder.build(BuildRequest(from_version, from_latest, to_version))


def builder_of(
    source: TargetLocation,
    target: TargetLocation,
    asked: HistorySettings | ReplaySettings,
    reached: CrashHook,
) -> TargetBuilder:
    """What builds a target of one table as it is asked for. Raises UsageError."""
    _check_apart(source.location, target.location)
    kind: TargetKind
    if isinstance(asked, ReplaySettings):
        newest = HistorySettings(HistoryType.NEWEST, asked.key)
        # Every commit of the source is one of the copy, so that both feeds have the same (CF-214).
        kind = NewestRows(newest, kind="a copy", portion_rows=1)
    elif asked.type is HistoryType.NEWEST:
        kind = NewestRows(asked)
    else:
        kind = EveryRow(asked)
    return TargetBuilder(
        FeedSource(source.location, asked.key, source.options),
        TargetTable(target.location, target.options, reached),
        kind,
    )


def _check_apart(source: str, target: str) -> None:
    """Refuse tables of which one lies inside the other: VACUUM of the outer one would delete the
    files of the inner one. Raises UsageError."""
    one, other = (
        f"{location if is_url(location) else Path(location).absolute()}".rstrip("/") + "/"
        for location in (source, target)
    )
    if one != other and (one.startswith(other) or other.startswith(one)):
        raise UsageError(
            "a table that is built from another cannot lie inside it, or contain it",
            where=target,
            hint="Name another place for it.",
        )


def archive_of(
    source: TargetLocation, target: TargetLocation, asked: ArchiveSettings, reached: CrashHook
) -> Archive:
    """What builds the tables of an archive. Raises UsageError."""
    _check_apart(source.location, target.location)
    feed = FeedSource(source.location, None, source.options)

    def table(location: str) -> TargetTable:
        return TargetTable(location, target.options, reached)

    def builder(part: TargetTable) -> TargetBuilder:
        return TargetBuilder(feed, part, EveryChange(asked))

    return Archive(target.location, feed, table, builder)


def build_of(
    source: TargetLocation,
    target: TargetLocation,
    asked: HistorySettings | ArchiveSettings | ReplaySettings,
    reached: CrashHook,
) -> Callable[[BuildRequest], list[TargetReport]]:
    """What brings a target up to date, one or several tables."""
    if isinstance(asked, ArchiveSettings):
        return archive_of(source, target, asked, reached).build
    builder = builder_of(source, target, asked, reached)
    return lambda request: [builder.build(request)]


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
    build: Callable[[], list[TargetReport]], wait: Callable[[float], bool], location: str
) -> Iterator[TargetReport]:
    """What is done now, and then each time that the source has changed. wait: for so many seconds,
    and says whether to stop."""
    yield from build()
    while not wait(POLL_OBJECTS if is_url(location) else POLL):
        yield from (report for report in build() if report.commits)
