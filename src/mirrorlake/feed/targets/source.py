"""The source table of a target: where a target starts, and the changes in portions of whole
commits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from mirrorlake.delta.log.history import commit_time
from mirrorlake.delta.log.table_log import TableLog, TableSnapshot
from mirrorlake.delta.lookup.key_lookup import live_rows
from mirrorlake.delta.schema import TableSchema, parse
from mirrorlake.delta.workspace import open_workspace
from mirrorlake.errors import FeedError, FeedTargetError, SourceColumnsChanged, UsageError
from mirrorlake.feed.bounds import FeedRequest
from mirrorlake.feed.ranges import SchemaRange
from mirrorlake.feed.reader import Feed, FeedCommit, as_feed_error
from mirrorlake.feed.reasons import FeedReason
from mirrorlake.feed.targets.target import BuiltFrom, SourceColumns
from mirrorlake.feed.widening import unfit_column
from mirrorlake.storage.options import ObjectOptions

PORTION_ROWS, PORTION_BYTES = 500_000, 256 << 20
"""Size of changes at which a portion ends: they are held in memory and committed together."""


@dataclass(frozen=True, slots=True)
class Begin:
    """The start of a target: the rows as of version `snapshot`, -1 for none, and the changes from
    `first` on."""

    snapshot: int
    first: int


@dataclass(frozen=True, slots=True)
class Portion:
    """The changes of the versions `first` to `last`, with one set of columns, in whole commits."""

    first: int
    last: int
    schema: TableSchema
    commits: tuple[FeedCommit, ...]


class FeedSource:
    """The Delta table at a location, a folder or a URL. key: columns that identify a row, instead
    of those of a mirrored table. Methods raise FeedError and Unavailable."""

    def __init__(
        self,
        location: str | Path,
        key: Sequence[str] | None = None,
        options: ObjectOptions | None = None,
    ) -> None:
        self.location = str(location)
        self._given, self._options = key, options
        self._log = TableLog(self.location, options)

    def feed(self, first: int, last: int | None = None, *, accept_gap: bool = False) -> Feed:
        """The changes from version `first` to `last` or the latest."""
        request = FeedRequest.of(
            self.location,
            from_version=first,
            to_version=last,
            key=self._given,
            on_gap="report" if accept_gap else "error",
        )
        return Feed(request, self._options, log=self._log)

    def portions(self, feed: Feed, part: SchemaRange, rows: int) -> Iterator[Portion]:
        """A range of a feed in portions, each for one commit of a target. rows: of a portion,
        about."""
        return portions(feed, part, rows)

    def begin(self, version: int | None = None, *, from_latest: bool = False) -> Begin:
        """The start of a new target: a version, the latest version, or the whole feed.

        It starts without rows only if the feed covers every row since version 0, and with those of
        the latest version if that is older than changes are kept.
        """
        request = FeedRequest.of(self.location, from_beginning=True)
        feed = Feed(request, self._options, log=self._log)
        latest, is_quiet = feed.plan.latest, feed.first > feed.plan.latest
        if version is not None and version > latest:
            raise request.refused(
                f"version {version} is after the latest, which is {latest}",
                FeedReason.BEYOND_LATEST,
                (feed.first, latest),
                hint="Begin with a version that the table has, or with the latest one.",
            )
        if version is not None and not (is_quiet and version == latest):
            self.feed(version, version)  # raises if it is no longer readable
        if version is None and not from_latest and feed.first == 0:
            return Begin(-1, 0)
        if version is None:
            version = latest if from_latest or is_quiet else feed.first
        return Begin(version, version + 1)

    def at(self, version: int) -> TableSnapshot:
        """The table as of a version."""
        with as_feed_error(self._request(version)):
            return self._log.snapshot_at(version)

    def rows(self, snapshot: TableSnapshot) -> Iterator[pa.Table]:
        """The rows as of a version, file by file."""
        with (
            as_feed_error(self._request(snapshot.version)),
            open_workspace(self.location, self._options) as workspace,
        ):
            schema = parse(snapshot.metadata)
            for add in snapshot.files.values():
                workspace.fetch([add])
                yield live_rows(workspace.folder, add, schema)

    def commit_info(self, version: int) -> dict[str, Any]:
        """The commitInfo of a version."""
        with as_feed_error(self._request(version)):
            found = [a["commitInfo"] for a in self._log.actions(version) if "commitInfo" in a]
        return found[0] if found else {}

    def time(self, version: int) -> datetime:
        """The commit time of a version."""
        with as_feed_error(self._request(version)):
            return datetime.fromtimestamp(
                commit_time(version, self._log.actions(version)) / 1000, UTC
            )

    def key(self, feed: Feed) -> tuple[str, ...]:
        """The columns that identify a row. Raises UsageError when there are none (CF-200), or when
        the table lacks one."""
        key = feed.key
        if not key:
            raise UsageError(
                "the table has no key",
                where=self.location,
                hint="Name the columns that identify a row: --key COLUMN, key=[...].",
            )
        if absent := sorted(set(key) - set(feed.schema().names)):
            raise UsageError(
                f"the key names {absent[0]}, which is no column of the table", where=self.location
            )
        return key

    def check_same(self, built: BuiltFrom, table_id: str) -> None:
        """Refuse a recreated table: its versions start again."""
        if built.source_id != table_id:
            raise FeedTargetError(
                "its source was removed and made anew, so that its versions do not continue those "
                "that are covered",
                where=self.location,
                hint="Build another target from it.",
            )

    def _request(self, version: int) -> FeedRequest:
        return FeedRequest.of(self.location, from_version=version)


def portions(feed: Feed, part: SchemaRange, rows: int = PORTION_ROWS) -> Iterator[Portion]:
    """A range of a feed in portions of whole commits, none of them much larger than `rows`.
    Versions without changes are included, so that they count as covered. Commits before one that
    cannot be read come before its error."""
    first, held = part.first, list[FeedCommit]()
    count = size = 0
    try:
        for commit in feed.commits(part):
            held.append(commit)
            count, size = count + commit.rows.num_rows, size + commit.rows.nbytes
            if count >= rows or size >= PORTION_BYTES:
                yield Portion(first, commit.version, part.schema, tuple(held))
                first, held, count, size = commit.version + 1, [], 0, 0
    except FeedError:
        if held:
            yield Portion(first, held[-1].version, part.schema, tuple(held))
        raise
    if first <= part.last:
        yield Portion(first, part.last, part.schema, tuple(held))


def check_columns(target: str, built: BuiltFrom, schema: TableSchema, version: int) -> None:
    """Refuse columns that change those known to the target, rather than only adding some
    (CF-210)."""
    if (column := unfit_column(built.columns.schema, schema)) is not None:
        raise SourceColumnsChanged(
            f"version {version} of its source changed column {column}: it was renamed, dropped, or "
            "has another type",
            version=version,
            where=target,
            hint="Build another target, which begins at this version.",
        )


def with_columns(built: BuiltFrom, schema: TableSchema) -> BuiltFrom:
    """With the current columns of the source."""
    return replace(built, columns=SourceColumns.of(schema))
