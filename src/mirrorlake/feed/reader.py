"""Reads a range of the change feed of a table, without a JVM.

The range is resolved when the feed is opened: reading the same feed again gives the same rows, and
its versions are known. Rows are returned by whole commits, in version order.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Never

import pyarrow as pa

from mirrorlake.delta.deletion_vectors import BrokenVector
from mirrorlake.delta.log.table_log import BrokenLog, TableLog, TableSnapshot
from mirrorlake.delta.schema import TableSchema, UnknownColumnType
from mirrorlake.delta.workspace import LostFile, OutsideTable, Unreachable, open_workspace
from mirrorlake.errors import FeedError, Unavailable
from mirrorlake.feed import rows as by_key
from mirrorlake.feed.bounds import FeedRequest, OnSchemaChange
from mirrorlake.feed.change_files import (
    METADATA_FIELDS,
    ChangeReader,
    CommitOf,
    DamagedFile,
    UnfitRows,
    with_commits,
)
from mirrorlake.feed.commits.history import CommitHistory
from mirrorlake.feed.commits.position_map import PositionMap
from mirrorlake.feed.ranges import FeedGap, FeedPlan, SchemaRange, plan
from mirrorlake.feed.reading_ahead import READERS, READERS_OF_OBJECTS, FileRead, Steps, in_order
from mirrorlake.feed.reasons import FeedReason
from mirrorlake.feed.widening import conform, names_in
from mirrorlake.mirror.table.progress import key_columns
from mirrorlake.model.arrow import arrow_schema
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.urls import is_url

FEATURES = frozenset(
    {
        "deletionVectors",
        "columnMapping",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "typeWidening",
        "typeWidening-preview",
        "timestampNtz",
        "variantType",
        "variantType-preview",
    }
)
"""Reader features that do not affect this reader. A column of an unknown type is refused by
name."""

FILES_TOGETHER = 64
"""Number of files whose rows get the versions and times of their commits at once."""

_VACUUMED = (
    "A VACUUM of another program may remove files earlier than "
    "delta.deletedFileRetentionDuration says."
)


@dataclass(frozen=True, slots=True)
class FeedCommit:
    """All changes of one version of a table. rows: its columns and the three of the feed."""

    version: int
    time: datetime
    rows: pa.Table


class Feed:
    """A fixed range of the change feed of a table.

    Iterating gives the commits that changed rows; every read may raise FeedError and Unavailable.

    first, last: the versions, both inclusive; none when `last` is smaller.
    is_clipped: whether a bound of the request was after the latest version (CF-162).
    ranges: the versions to read, by their columns; gaps: the missing ones.
    history: the commits of the table.
    """

    def __init__(
        self,
        request: FeedRequest,
        options: ObjectOptions | None = None,
        now: datetime | None = None,
        log: TableLog | None = None,
    ) -> None:
        """Resolve the range. log: of the table, if it is already being followed. Raises
        FeedError."""
        self.request, self._options = request, options
        with as_feed_error(request):
            log = log or TableLog(request.table, options, for_feed=True)
            snapshot = readable_snapshot(request, log)
            self.history = CommitHistory(log, PositionMap.of(request.table, options))
            self.plan: FeedPlan = plan(request, self.history, now or datetime.now(UTC))
            properties = snapshot.properties
        self._key = request.key
        if self._key is None:
            self._key = key_columns(properties)
        self._named = self._schema_with(self._key)
        self._check_key()

    @property
    def first(self) -> int:
        return self.plan.first

    @property
    def last(self) -> int:
        return self.plan.last

    @property
    def is_clipped(self) -> bool:
        return self.plan.is_clipped

    @property
    def ranges(self) -> tuple[SchemaRange, ...]:
        return self.plan.ranges

    @property
    def gaps(self) -> tuple[FeedGap, ...]:
        return self.plan.gaps

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row; empty without a key."""
        return self._key or ()

    def schema(self, part: SchemaRange | None = None) -> pa.Schema:
        """The columns of a range; by default of the last one."""
        return pa.schema([*arrow_schema(self._schema(part).schema), *METADATA_FIELDS])

    def commits(self, part: SchemaRange) -> Iterator[FeedCommit]:
        """The commits of one range that changed rows, ascending, each with all its rows."""
        with as_feed_error(self.request), closing(self._found(part)) as found:
            for commit, tables in found:
                rows = with_commits([(commit, rows) for rows in tables])
                if (rows := self._arranged(rows, part)).num_rows:
                    moment = datetime.fromtimestamp(commit.moment / 1000, UTC)
                    yield FeedCommit(commit.version, moment, rows)

    def _found(self, part: SchemaRange) -> Generator[tuple[CommitOf, list[pa.Table]], None, None]:
        """The commits of a range that changed rows, and what their files contain."""
        with (
            as_feed_error(self.request),
            open_workspace(self.request.table, self._options) as workspace,
        ):
            reader = ChangeReader(workspace, part.schema)
            readers = READERS_OF_OBJECTS if is_url(self.request.table) else READERS
            # Closed here: an error that is kept would keep its threads.
            with closing(in_order(self._files(reader, part), readers)) as files:
                for commit, read in groupby(files, itemgetter(0)):
                    with as_feed_error(self.request, commit.version):
                        found = [rows for _commit, of_file in read for rows in of_file()]
                    if found:
                        yield commit, found

    def _files(
        self, reader: ChangeReader, part: SchemaRange
    ) -> Iterator[FileRead[CommitOf, list[pa.Table]]]:
        """The files of the commits of a range. The error of a commit is that of a file of it, so
        that those before it are returned first."""
        for version in range(part.first, part.last + 1):
            # Later commits of a range change neither types nor partition columns.
            metadata_at = self.history.metadata_at if version == part.first else None
            try:
                yield from reader.files(version, self.history.changes(version), metadata_at)
            except (OSError, BrokenLog, UnfitRows) as error:
                yield FileRead(CommitOf(version, 0), 0, partial(_refuse, error))
                return

    def __iter__(self) -> Iterator[FeedCommit]:
        for part in self.ranges:
            yield from self.commits(part)

    def batches(
        self, keep: Callable[[pa.Table], pa.Table] = lambda rows: rows
    ) -> Iterator[pa.RecordBatch]:
        """All rows, in version order. keep: a filter, applied to the rows of each commit."""
        for commit in self:
            yield from keep(commit.rows).to_batches()

    def to_arrow(self) -> pa.Table:
        """All rows in one table. Raises FeedError `schema_changed` when their columns differ."""
        schema = self.one_schema()
        parts = (rows for part in self.ranges for rows in self._tables(part))
        return pa.concat_tables([schema.empty_table(), *parts])

    def _tables(self, part: SchemaRange) -> Iterator[pa.Table]:
        """All rows of a range, in version order."""
        if self._is_arranged(part):
            yield from (commit.rows for commit in self.commits(part))
            return
        with closing(self._found(part)) as found:
            files = ((commit, rows) for commit, tables in found for rows in tables)
            # In portions: what is added to the first ones is computed while others are read.
            while portion := list(islice(files, FILES_TOGETHER)):
                yield with_commits(portion)

    def one_schema(self) -> pa.Schema:
        """The columns of all rows. Raises FeedError as `to_arrow` does."""
        schema = self.schema()
        for part in self.ranges:
            if self.request.on_schema_change is not OnSchemaChange.UNITE and (
                self.schema(part) != schema
            ):
                raise self.request.refused(
                    f"the columns of versions {part.first} to {part.last} are not those of version "
                    f"{self.ranges[-1].last}, so the rows do not fit into one table",
                    FeedReason.SCHEMA_CHANGED,
                    hint="Read feed.commits(range) for each of feed.ranges, or pass "
                    "on_schema_change='unite' (--on-schema-change unite).",
                )
        return schema

    def reader(
        self, keep: Callable[[pa.Table], pa.Table] = lambda rows: rows
    ) -> pa.RecordBatchReader:
        """All rows as a stream with one schema. Raises FeedError as `to_arrow` does.

        keep: a filter, applied to the rows of each commit.
        """
        schema = self.one_schema()
        return pa.RecordBatchReader.from_batches(schema, self.batches(keep))

    def facts(self) -> dict[str, Any]:
        """The range as plain data."""
        return {
            "table": self.request.table,
            "first": self.first,
            "last": self.last,
            "clipped": self.is_clipped,
            "ranges": [[part.first, part.last] for part in self.ranges],
            "gaps": [[gap.first, gap.last, str(gap.reason)] for gap in self.gaps],
        }

    def _schema(self, part: SchemaRange | None) -> TableSchema:
        if self.ranges and (part is None or self.request.on_schema_change is OnSchemaChange.UNITE):
            return self.ranges[-1].schema
        return part.schema if part else self.history.schema()

    def _is_arranged(self, part: SchemaRange) -> bool:
        """Whether the rows of a range are returned otherwise than they are stored."""
        request = self.request
        return (
            request.pair_updates
            or request.skip_unchanged
            or request.is_sorted
            or self._schema(part) is not part.schema
        )

    def _arranged(self, rows: pa.Table, part: SchemaRange) -> pa.Table:
        schema = self._schema(part)
        if schema is not part.schema:
            rows = conform(rows, part.schema, schema)
        key = self._key_in(schema)
        if self.request.pair_updates:
            rows = by_key.paired(rows, key)
        if self.request.skip_unchanged:
            rows = by_key.without_unchanged(rows, key)
        if self.request.is_sorted:
            rows = by_key.in_key_order(rows, key)
        return rows

    def _schema_with(self, key: Sequence[str]) -> TableSchema | None:
        """The newest columns that have the names of a key; None when there are none."""
        schemas = [part.schema for part in self.ranges]
        with suppress(UnknownColumnType):
            schemas.append(self.history.schema())
        return next((one for one in reversed(schemas) if {*key} <= {*one.schema.names}), None)

    def _key_in(self, schema: TableSchema) -> tuple[str, ...]:
        """The names of the key columns in a range."""
        return names_in(schema, self.key, self._named or schema)

    def _check_key(self) -> None:
        request = self.request
        options = {
            "pair_updates": request.pair_updates,
            "skip_unchanged": request.skip_unchanged,
            "sort": request.is_sorted,
        }
        for name in (name for name, is_chosen in options.items() if is_chosen):
            if not self.key:
                raise request.refused(
                    f"{name} needs a key, and the table has none",
                    FeedReason.INVALID_ARGUMENT,
                    hint="Pass key=[...], the columns that identify a row.",
                )
            for part in self.ranges:
                schema = self._schema(part)
                if absent := set(self._key_in(schema)) - set(schema.schema.names):
                    raise request.refused(
                        f"key names {sorted(absent)[0]}, which is no column of versions "
                        f"{part.first} to {part.last}",
                        FeedReason.INVALID_ARGUMENT,
                    )


def _refuse(error: Exception) -> Steps[Never]:
    yield
    raise error


def readable_snapshot(request: FeedRequest, log: TableLog) -> TableSnapshot:
    """The newest version of a table. Raises FeedError when there is none, and for features that
    this reader would misread (CF-179)."""
    snapshot = log.snapshot()
    if not snapshot.exists:
        raise request.refused(
            "there is no Delta table",
            FeedReason.INVALID_ARGUMENT,
            hint="Name the folder or URL that contains _delta_log.",
        )
    unknown = sorted(set(snapshot.protocol.get("readerFeatures") or ()) - FEATURES)
    if unknown:
        raise request.refused(
            f"the table has the feature {unknown[0]}, which this reader does not know",
            FeedReason.OTHER,
            hint="Read it with Spark: pass spark=session.",
        )
    return snapshot


@contextmanager
def as_feed_error(request: FeedRequest, version: int | None = None) -> Iterator[None]:
    """Translates errors of a table's files to errors of the feed. version: whose files are read."""
    try:
        yield
    except FeedError:
        raise
    except (FileNotFoundError, LostFile) as error:
        name = Path(str(getattr(error, "filename", None) or error)).name
        of_version = "" if version is None else f" for version {version}"
        raise request.refused(
            f"{name} is needed{of_version} and no longer there, because VACUUM or the clean-up of "
            "the log removed it",
            FeedReason.EXPIRED,
            hint="" if version is None else f"Begin after version {version}. {_VACUUMED}",
        ) from error
    except Unreachable as error:
        raise Unavailable(f"the storage does not answer: {error}", where=request.table) from error
    except UnknownColumnType as error:
        raise request.refused(
            f"this reader does not know column {error}", FeedReason.OTHER
        ) from error
    except UnfitRows as error:
        raise request.refused(
            str(error),
            FeedReason.SCHEMA_CHANGED,
            hint=f"End before version {error.version}, and begin again after it: what it left is "
            f"the table as of version {error.version}.",
        ) from error
    except (BrokenLog, BrokenVector, DamagedFile, OutsideTable) as error:
        raise request.refused(str(error), FeedReason.OTHER) from error
