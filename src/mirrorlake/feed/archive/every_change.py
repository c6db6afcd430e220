"""Archives: append-only tables of the rows of the feed (CF-064).

Invariant (CF-196): the rows of the archive's initial snapshot, if any, and the later changes up to
a version together give the table as of that version.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa

from mirrorlake.delta.statistics import records
from mirrorlake.delta.write.append import append
from mirrorlake.errors import FeedError
from mirrorlake.feed.archive.settings import (
    CHANGE,
    COLUMNS,
    ORIGIN,
    SNAPSHOT,
    SOURCE_ID,
    ArchiveSettings,
)
from mirrorlake.feed.reader import Feed, FeedCommit
from mirrorlake.feed.reasons import FeedReason
from mirrorlake.feed.rows import INSERT
from mirrorlake.feed.targets.build import Basis, TargetChanges
from mirrorlake.feed.targets.rows import own_columns, target_columns
from mirrorlake.feed.targets.source import PORTION_ROWS, Portion
from mirrorlake.model.table import Column, Schema

KIND = "an archive"


@dataclass(frozen=True, slots=True)
class EveryChange:
    """A `TargetKind`. Each row contains the Delta id of its source (CF-192)."""

    options: ArchiveSettings
    kind: str = KIND
    portion_rows: int = PORTION_ROWS
    needs_key: bool = False

    def settings(self, key: Sequence[str]) -> Mapping[str, Any]:  # noqa: ARG002  (of the contract)
        return {"names": dict(self.options.names)}

    def properties(self, key: Sequence[str]) -> Mapping[str, str]:  # noqa: ARG002  (of the contract)
        return {}

    def columns(self, source: Schema, key: Sequence[str], where: str) -> Sequence[Column]:
        hint = "Give the column of the archive another name: --name COLUMN=NAME, names={...}."
        return target_columns(source, self.options.columns, key, where, hint)

    def sought(self, key: Sequence[str]) -> list[str]:  # noqa: ARG002  (of the contract)
        return [self.options.name("commit_version")]

    def begin(self, basis: Basis, rows: Iterator[pa.Table], version: int) -> TargetChanges:
        """Write the rows as of a version, and the changes of that version, which no later portion
        contains, unless they are older than changes are kept, in the gap that was accepted, or do
        not fit into the columns of that version."""
        values: dict[str, Any] = {
            "change_type": INSERT,
            "commit_version": version,
            "commit_timestamp": basis.source.time(version),
            ORIGIN: SNAPSHOT,
        }
        blocks = (own_columns(some, basis.schema, self._own(basis, values)) for some in rows)
        commits: Iterable[FeedCommit] = ()
        try:
            if basis.gap is None or basis.gap[1] < version:
                commits = _fitting(basis.source.feed(version, version))
        except FeedError as error:
            if error.reason != FeedReason.EXPIRED:
                raise
        changes = (self._changes(basis, commit.rows) for commit in commits)
        return self._appended(basis, chain(blocks, changes))

    def apply(self, basis: Basis, portion: Portion) -> TargetChanges:
        changes = (self._changes(basis, commit.rows) for commit in portion.commits)
        return self._appended(basis, changes)

    def _changes(self, basis: Basis, rows: pa.Table) -> pa.Table:
        values = {
            usual: rows[feed].combine_chunks() for usual, (feed, _kind) in COLUMNS.items() if feed
        }
        return own_columns(rows, basis.schema, self._own(basis, {**values, ORIGIN: CHANGE}))

    def _own(self, basis: Basis, feed_values: Mapping[str, Any]) -> dict[str, Any]:
        """The values of the archive's own columns, by name in the archive."""
        values = {SOURCE_ID: basis.source_id, **feed_values}
        return {self.options.name(usual): value for usual, value in values.items()}

    def _appended(self, basis: Basis, blocks: Iterable[pa.Table]) -> TargetChanges:
        actions = append(basis.table.folder, basis.schema, blocks, self.sought(basis.key))
        return TargetChanges(actions, sum(records(action["add"]) or 0 for action in actions))


def _fitting(feed: Feed) -> Iterator[FeedCommit]:
    """The commit of one version, unless its rows do not fit into its columns."""
    try:
        yield from feed
    except FeedError as error:
        if error.reason != FeedReason.SCHEMA_CHANGED:
            raise
