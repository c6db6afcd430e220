"""Builds a target: reads the changes of its source since the last build, and commits them in
portions.

Order: read → write files → commit rows, progress and columns together → make the commit durable →
compact files, if that is due. A crash at any point leaves the target unchanged or one commit
further; the next process continues from what the target has recorded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import pyarrow as pa

from mirrorlake.delta.schema import TableSchema, parse
from mirrorlake.delta.workspace import TableWorkspace
from mirrorlake.delta.write.rewrite import Action
from mirrorlake.errors import UsageError
from mirrorlake.feed.bounds import FeedRequest
from mirrorlake.feed.reader import Feed, as_feed_error
from mirrorlake.feed.targets.compaction import compact_step
from mirrorlake.feed.targets.source import (
    Begin,
    FeedSource,
    Portion,
    check_columns,
    with_columns,
)
from mirrorlake.feed.targets.target import (
    BuiltFrom,
    SourceColumns,
    TargetCommit,
    TargetState,
    TargetTable,
)
from mirrorlake.model.table import Column, Schema

THREADS = min(os.cpu_count() or 1, 4)
"""Threads that look up and write rows of the target."""

ATTEMPTS = 20
"""Attempts at one portion while other writers commit first."""


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """What to cover.

    begin: for a new target, the version whose rows it starts with; for an existing one, the first
        version to apply.
    from_latest: a new target starts with the latest version.
    last: the last version to cover; by default the latest.
    gap: the versions before `begin`, or up to it, whose changes a new target skips.
    """

    begin: int | None = None
    from_latest: bool = False
    last: int | None = None
    gap: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class TargetReport:
    """The result of a build.

    covered: the last source version that the target covers.
    version: of the target.
    commits: the number of commits made.
    inserted, updated, deleted: rows of the target.
    """

    target: str
    covered: int
    version: int
    commits: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    def facts(self) -> dict[str, Any]:
        """As plain data."""
        return {"target": self.target, **self.counts()}

    def counts(self) -> dict[str, int]:
        """Everything except the name."""
        return {
            "covered": self.covered,
            "version": self.version,
            "commits": self.commits,
            "inserted": self.inserted,
            "updated": self.updated,
            "deleted": self.deleted,
        }


@dataclass(frozen=True, slots=True)
class TargetChanges:
    """The files written for one commit: the actions that add them to the target, and the numbers of
    changed rows."""

    actions: Sequence[Action] = ()
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    clock: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Basis:
    """The state to which a portion is applied.

    source_id: of Delta.
    where: the location of the target.
    schema: its columns with this commit.
    key: of the source.
    table: the workspace of its files.
    gap: the versions whose changes the target skips (CF-194).
    """

    source: FeedSource
    source_id: str
    where: str
    state: TargetState
    schema: TableSchema
    key: tuple[str, ...]
    table: TableWorkspace
    gap: tuple[int, int] | None = None


class TargetKind(Protocol):
    """The kind of a target: a history, an archive, a copy. It writes files and commits nothing."""

    @property
    def kind(self) -> str:
        """Its name in messages."""
        ...

    @property
    def portion_rows(self) -> int:
        """Approximate number of changes in one commit."""
        ...

    def settings(self, key: Sequence[str]) -> Mapping[str, Any]:
        """The settings that the target stores: a builder with other settings refuses to continue
        it."""
        ...

    @property
    def needs_key(self) -> bool:
        """Whether rows are identified by a key."""
        ...

    def properties(self, key: Sequence[str]) -> Mapping[str, str]:
        """The properties of a new table."""
        ...

    def columns(self, source: Schema, key: Sequence[str], where: str) -> Sequence[Column]:
        """The columns of the target. Raises FeedTargetError, UsageError."""
        ...

    def sought(self, key: Sequence[str]) -> list[str]:
        """The columns by which rows are found. Files have statistics of them, and are sorted by
        them when they are compacted."""
        ...

    def begin(self, basis: Basis, rows: Iterator[pa.Table], version: int) -> TargetChanges:
        """Write the rows of the initial snapshot."""
        ...

    def apply(self, basis: Basis, portion: Portion) -> TargetChanges:
        """Write the effect of a portion of changes on the target. Raises FeedTargetError."""
        ...


class TargetBuilder:
    """Builds one target from one source."""

    def __init__(self, source: FeedSource, target: TargetTable, kind: TargetKind) -> None:
        self._source, self._target, self._kind = source, target, kind
        self._report = TargetReport(target.location, -1, -1)
        self._sought: list[str] = []

    def build(self, request: BuildRequest) -> TargetReport:
        """Cover all current changes of the source. Raises FeedError, FeedTargetError, UsageError,
        Unavailable."""
        # Refuses what is no version, and an end before the begin.
        FeedRequest.of(
            self._source.location, from_version=request.begin or 0, to_version=request.last
        )
        if request.begin is not None and request.from_latest:
            raise UsageError(
                "a target begins with one version or with the latest one, and both are given",
                where=self._target.location,
                hint="Use only one of from_version and from_latest.",
            )
        self._report, self._sought = TargetReport(self._target.location, -1, -1), []
        for _attempt in range(ATTEMPTS):
            if self._build(request):
                if self._sought:
                    compact_step(self._target, self._sought)
                state = self._target.state()
                covered = -1 if state.built is None else state.recorded
                return replace(self._report, covered=covered, version=state.version)
        raise self._target.refused(
            "other writers are faster all the time", "Stop the other writer, and run it again."
        )

    def _build(self, request: BuildRequest) -> bool:
        """Whether everything is covered; False when another writer committed first."""
        state, begin = self._target.state(), None
        if state.built is not None:
            self._check_kind(state.built)
        else:
            begin = self._source.begin(request.begin, from_latest=request.from_latest)
            if begin.snapshot >= 0:
                if not self._snapshot(state, begin, request.gap):
                    return False
                state, begin = self._target.state(), None
        first = self._next(state, begin, request)
        if request.last is not None and request.last < first:
            return True
        feed = self._source.feed(first, request.last)
        if state.built is not None:
            self._source.check_same(state.built, feed.plan.table_id)
        key = self._key(feed)
        if state.built is not None:
            self._check_settings(state.built, key, feed)
        if feed.first > feed.last:
            return True
        for portion in self._portions(feed):
            state = self._target.state()
            if (state.recorded if state.built else -1) != portion.first - 1:
                return False
            if not self._apply(state, portion, key, feed.plan.table_id):
                return False
        return True

    def _portions(self, feed: Feed) -> Iterator[Portion]:
        """The portions of a feed. The columns of each range are checked before it is read: rows
        that its first commit deleted may not fit into them."""
        for part in feed.ranges:
            if (built := self._target.state().built) is not None:
                check_columns(self._target.location, built, part.schema, part.first)
            yield from self._source.portions(feed, part, self._kind.portion_rows)

    def _next(self, state: TargetState, begin: Begin | None, request: BuildRequest) -> int:
        if begin is not None:
            return begin.first
        assert state.built is not None
        if request.begin is not None and request.begin > state.recorded + 1:
            raise self._target.refused(
                f"it covers its source up to version {state.recorded}, so that version "
                f"{request.begin} would leave some out",
                f"Begin with version {state.recorded + 1}, or with none.",
            )
        return state.recorded + 1

    def _key(self, feed: Feed) -> tuple[str, ...]:
        return self._source.key(feed) if self._kind.needs_key else ()

    def _snapshot(self, state: TargetState, begin: Begin, gap: tuple[int, int] | None) -> bool:
        """Start with the rows of one version."""
        whole = self._source.at(begin.snapshot)
        # Checked first, so that a target that cannot be followed is not started.
        feed = self._source.feed(begin.first, begin.first)
        with as_feed_error(FeedRequest.of(self._source.location, from_version=begin.snapshot)):
            schema = parse(whole.metadata)
        key = self._key(feed)
        built = replace(self._built(schema, key, feed.plan.table_id, begin), gap=gap)
        return self._commit(
            state,
            built,
            key,
            (begin.snapshot, begin.snapshot),
            lambda basis: self._kind.begin(basis, self._source.rows(whole), begin.snapshot),
        )

    def _apply(
        self, state: TargetState, portion: Portion, key: tuple[str, ...], table_id: str
    ) -> bool:
        if state.built is None:
            built = self._built(portion.schema, key, table_id, Begin(-1, portion.first))
        else:
            check_columns(self._target.location, state.built, portion.schema, portion.first)
            built = with_columns(state.built, portion.schema)
        return self._commit(
            state,
            built,
            key,
            (portion.first, portion.last),
            lambda basis: self._kind.apply(basis, portion),
        )

    def _built(
        self, schema: TableSchema, key: tuple[str, ...], table_id: str, begin: Begin
    ) -> BuiltFrom:
        return BuiltFrom(
            self._kind.kind,
            table_id,
            self._kind.settings(key),
            SourceColumns.of(schema),
            begin.first if begin.snapshot < 0 else begin.snapshot,
            begin.snapshot,
        )

    def _commit(
        self,
        state: TargetState,
        built: BuiltFrom,
        key: tuple[str, ...],
        covered: tuple[int, int],
        write: Callable[[Basis], TargetChanges],
    ) -> bool:
        columns = self._kind.columns(built.columns.schema.schema, key, self._target.location)
        described = self._target.described(state, built, columns, self._kind.properties(key))
        schema = state.schema if described is None else parse(described)
        assert schema is not None
        with self._target.workspace() as table:
            where = self._target.location
            basis = Basis(
                self._source, built.source_id, where, state, schema, key, table, built.gap
            )
            done = write(basis)
            table.upload(done.actions)
        is_made = self._target.commit(
            state,
            TargetCommit(
                built,
                *covered,
                done.actions,
                described=described,
                clock=done.clock,
                details=done.details,
            ),
        )
        if is_made:
            self._sought = self._kind.sought(key)
            known = self._report
            self._report = replace(
                known,
                commits=known.commits + 1,
                inserted=known.inserted + done.inserted,
                updated=known.updated + done.updated,
                deleted=known.deleted + done.deleted,
            )
        return is_made

    def _check_kind(self, built: BuiltFrom) -> None:
        if built.kind != self._kind.kind:
            raise self._target.refused(
                f"it is {built.kind}, and not {self._kind.kind}", "Name another place for it."
            )

    def _check_settings(self, built: BuiltFrom, key: Sequence[str], feed: Feed) -> None:
        """Refuse to continue a target with other settings. Where columns of the key were renamed,
        that is said instead."""
        settings = self._kind.settings(key)
        for name, value in settings.items():
            if built.settings.get(name) != value:
                for part in feed.ranges if name == "key" else ():
                    check_columns(self._target.location, built, part.schema, part.first)
                raise self._target.refused(
                    f"it was built with {name} {built.settings.get(name)!r}, and not {value!r}",
                    f"Go on with that {name}, or build another target.",
                )
