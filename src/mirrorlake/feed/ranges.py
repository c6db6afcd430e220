"""Resolves a request to versions: those to read, with their columns, and those that are missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise

from mirrorlake.delta.schema import TableSchema, parse
from mirrorlake.feed.bounds import (
    AtPosition,
    AtSourceTime,
    AtTime,
    AtVersion,
    Beginning,
    BeyondLatest,
    End,
    FeedRequest,
    OnGap,
    OnSchemaChange,
)
from mirrorlake.feed.commits.history import CommitHistory
from mirrorlake.feed.reasons import FeedReason
from mirrorlake.feed.widening import fits, obstacle, share_files
from mirrorlake.model.position import Position


@dataclass(frozen=True, slots=True)
class FeedGap:
    """Versions of a range that cannot be read, and why."""

    first: int
    last: int
    reason: FeedReason


@dataclass(frozen=True, slots=True)
class SchemaRange:
    """Versions that are read with one set of columns: those of the last of them (CF-173)."""

    first: int
    last: int
    schema: TableSchema


@dataclass(frozen=True, slots=True)
class FeedPlan:
    """The versions `first` to `last` of a table; none when `last` is smaller.

    latest: version of the table when the range was resolved.
    is_clipped: whether a bound of the request was after it.
    ranges: the versions to read, ascending; gaps: the others.
    table_id: of Delta, which identifies a recreated table.
    """

    first: int
    last: int
    latest: int
    is_clipped: bool
    ranges: tuple[SchemaRange, ...]
    gaps: tuple[FeedGap, ...]
    table_id: str


def plan(request: FeedRequest, history: CommitHistory, now: datetime) -> FeedPlan:
    """Resolve a request. Raises FeedError, FileNotFoundError, BrokenLog, UnknownColumnType."""
    return _Planner(request, history, now).plan()


class _Planner:
    def __init__(self, request: FeedRequest, history: CommitHistory, now: datetime) -> None:
        self._request, self._history = request, history
        self._fresh_since = now - history.keeps.readable

    def plan(self) -> FeedPlan:
        history, request = self._history, self._request
        first, late_start = self._start()
        if isinstance(request.start, Beginning) and first > history.latest:
            self._check_recorded()
        last, late_end = self._end()
        if (late_start or late_end) and request.beyond_latest is BeyondLatest.ERROR:
            raise self._refused(
                f"the range ends after the latest version, which is {history.latest}",
                FeedReason.BEYOND_LATEST,
            )
        if last + 1 < first and not late_start and type(request.start) is not type(request.end):
            raise self._refused(
                f"the end, version {last}, is before the start, version {first}",
                FeedReason.INVALID_RANGE,
            )
        gaps, covered = self._coverage(first, last)
        if gaps and request.on_gap is OnGap.ERROR:
            raise self._gap_error(gaps)
        ranges = [part for begin, end in covered for part in self._ranges(begin, end)]
        return FeedPlan(
            first,
            last,
            history.latest,
            late_start or late_end,
            self._united(ranges),
            tuple(gaps),
            history.table_id,
        )

    # -- bounds -----------------------------------------------------------------------------------

    def _start(self) -> tuple[int, bool]:
        """The version of the start, and whether it is after the latest."""
        latest = self._history.latest
        match self._request.start:
            case AtVersion(version):
                return version, version > latest
            case Beginning():
                return self._readable_since(), False
            case AtTime(moment):
                first = self._history.first_at(moment)
                if first == self._history.oldest > 0 and self._history.time(first) > moment:
                    first = 0  # which of the earlier commits it means is no longer in the log
                return first, first > latest
            case AtPosition() | AtSourceTime() as bound:
                return self._first_beyond(bound), False

    def _end(self) -> tuple[int, bool]:
        latest = self._history.latest
        match self._request.end:
            case None:
                return latest, False
            case AtVersion(version):
                return min(version, latest), version > latest
            case AtTime(moment):
                last = self._history.first_after(moment) - 1
                return last, last == latest and self._history.time(latest) < moment
            case AtPosition() | AtSourceTime() as bound:
                return self._first_beyond(bound) - 1, False

    def _first_beyond(self, bound: AtPosition | AtSourceTime) -> int:
        """The first version with changes of the source after the bound (CF-160); `latest` + 1 if
        the newest batch ends exactly at the bound."""
        covers = self._by_position(bound) if isinstance(bound, AtPosition) else _by_time(bound)
        found, known = self._history.latest + 1, []
        for batch in self._history.batches():
            text = batch.position if isinstance(bound, AtPosition) else batch.source_time
            if text is None:
                continue
            known.append(str(text))
            is_covered, is_same = covers(str(text))
            if is_covered and len(known) == 1 and not is_same:
                raise self._unknown(bound, known, FeedReason.BEYOND_LATEST)
            if is_covered:
                return found
            found = batch.version
        if not known:
            raise self._unknown(bound, known, FeedReason.INVALID_ARGUMENT)
        if self._history.known_since() > 0:
            raise self._unknown(bound, known, FeedReason.EXPIRED)
        return found

    def _by_position(self, bound: AtPosition) -> Callable[[str], tuple[bool, bool]]:
        def covers(text: str) -> tuple[bool, bool]:
            try:
                position = Position.parse(text, type(bound.position.point).parse)  # type: ignore[attr-defined]
            except ValueError:
                raise self._refused(
                    f"{bound.text} is no position of this table, whose positions look like {text}",
                    FeedReason.INVALID_ARGUMENT,
                ) from None
            is_covered = bound.position.covers(position)
            return is_covered, position.point.covers(bound.position.point)

        return covers

    def _unknown(self, bound: End, known: list[str], reason: FeedReason) -> Exception:
        if not known:
            return self._refused(
                f"the commits of this table name no source, so that {bound} is not known", reason
            )
        return self._refused(
            f"{bound} is not known: the commits of this table reach from {known[-1]} to {known[0]}",
            reason,
        )

    # -- coverage ---------------------------------------------------------------------------------

    def _readable_since(self) -> int:
        """The first version of the readable range; `latest` + 1 for none (CF-170)."""
        return self._history.covered_since(self._history.first_at(self._fresh_since))

    def _coverage(self, first: int, last: int) -> tuple[list[FeedGap], list[tuple[int, int]]]:
        """The versions of a range that cannot be read, and runs of those that can."""
        if first > last:
            return [], []
        kept = self._history.readable_from(first)
        if kept <= last and self._history.time(kept) < self._fresh_since:
            kept = max(kept, self._history.first_at(self._fresh_since))
        gaps: list[FeedGap] = []
        covered: list[tuple[int, int]] = []
        if kept > first:
            gaps.append(FeedGap(first, min(kept - 1, last), FeedReason.EXPIRED))
        if kept > last:
            return gaps, []
        known = self._history.metadata(kept, last)
        ends = [known_version.version - 1 for known_version in known[1:]] + [last]
        for known_version, end in zip(known, ends, strict=True):
            if known_version.has_feed:
                is_next = covered and covered[-1][1] == known_version.version - 1
                begin = covered.pop()[0] if is_next else known_version.version
                covered.append((begin, end))
            else:
                gaps.append(FeedGap(known_version.version, end, FeedReason.NOT_RECORDED))
        return gaps, covered

    def _check_recorded(self) -> None:
        """Refuse to begin with the first readable version of a table that records no changes:
        there is none, which is no empty range."""
        latest = self._history.latest
        if self._request.on_gap is not OnGap.ERROR:
            return
        if not self._history.metadata(latest, latest)[-1].has_feed:
            raise self._refused(
                "the changes of the table are not recorded", FeedReason.NOT_RECORDED
            )

    def _gap_error(self, gaps: list[FeedGap]) -> Exception:
        gap = gaps[0]
        named = f"version {gap.first}" + (f" to {gap.last}" if gap.last > gap.first else "")
        if gap.reason is FeedReason.EXPIRED:
            return self._refused(f"the changes of {named} are no longer kept", gap.reason)
        return self._refused(f"the changes of {named} were not recorded", gap.reason)

    def _refused(self, what: str, reason: FeedReason) -> Exception:
        since, latest = self._readable_since(), self._history.latest
        return self._request.refused(what, reason, (since, latest) if since <= latest else None)

    # -- columns ----------------------------------------------------------------------------------

    def _ranges(self, first: int, last: int) -> Iterator[SchemaRange]:
        """A covered range, split where old rows do not fit the new columns, and where the
        partition columns change."""
        current: SchemaRange | None = None
        for change in self._history.metadata(first, last):
            schema = parse(change.metadata)
            if current is not None and not share_files(current.schema, schema):
                yield replace(current, last=change.version - 1)
                current = None
            begin = current.first if current else change.version
            current = SchemaRange(begin, last, schema)
        assert current is not None
        yield current

    def _united(self, ranges: list[SchemaRange]) -> tuple[SchemaRange, ...]:
        policy = self._request.on_schema_change
        for earlier, later in pairwise(ranges):
            if policy is OnSchemaChange.ERROR and not fits(earlier.schema, later.schema):
                raise self._refused(
                    f"version {later.first} changed the columns of the table",
                    FeedReason.SCHEMA_CHANGED,
                )
        for part in ranges if policy is OnSchemaChange.UNITE else []:
            if (column := obstacle(part.schema, ranges[-1].schema)) is not None:
                raise self._refused(
                    f"column {column} of versions {part.first} to {part.last} does not fit "
                    f"into the columns of version {ranges[-1].last}",
                    FeedReason.SCHEMA_CHANGED,
                )
        return tuple(ranges)


def _by_time(bound: AtSourceTime) -> Callable[[str], tuple[bool, bool]]:
    def covers(text: str) -> tuple[bool, bool]:
        moment = datetime.fromisoformat(text)
        return moment <= bound.time, moment == bound.time

    return covers
