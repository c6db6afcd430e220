"""The tables of an archive: a new one starts when the source changes its columns, or when changes
are lost.

The first table has the name of the archive; the next ones append `_2`, `_3` and so on. Each starts
with the rows of the version that made it necessary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from mirrorlake.errors import FeedError, SourceColumnsChanged
from mirrorlake.feed.reader import Feed
from mirrorlake.feed.reasons import FeedReason
from mirrorlake.feed.targets.build import BuildRequest, TargetBuilder, TargetReport
from mirrorlake.feed.targets.source import FeedSource
from mirrorlake.feed.targets.target import TargetState, TargetTable
from mirrorlake.feed.whole_versions import LOST, first_whole, is_whole

ACCEPT = "Pass accept_gap=True or --accept-gap to go on after it: the gap is then recorded."


class Archive:
    """The archive at a location. table: opens the table at a location; builder: creates its
    builder."""

    def __init__(
        self,
        location: str,
        source: FeedSource,
        table: Callable[[str], TargetTable],
        builder: Callable[[TargetTable], TargetBuilder],
    ) -> None:
        self._location, self._source = location.rstrip("/"), source
        self._table, self._builder = table, builder

    def build(self, request: BuildRequest, *, accept_gap: bool = False) -> list[TargetReport]:
        """Cover all current changes of the source. Returns a report for each table that was built.

        Raises FeedError, also for a gap unless it is accepted (CF-194), FeedTargetError,
        Unavailable.
        """
        number = max((n for n, _state in self._states()), default=1)
        reports = []
        while True:
            table = self._table(part_name(self._location, number))
            try:
                reports.append(self._builder(table).build(request))
            except SourceColumnsChanged as changed:
                begin, gap = changed.version, None
            except FeedError as error:
                state = table.state()
                found = self._after_gap(state, request, error)
                if found is None:
                    raise
                begin, gap = found
                if not accept_gap:
                    error.what += f"; versions {gap[0]} to {gap[1]} are missing"
                    error.hint = ACCEPT
                    raise
                number -= state.built is None  # it is tried again, with a later version
            else:
                return reports
            if request.last is not None and begin > request.last:
                return reports
            number += 1
            request = replace(request, begin=begin, from_latest=False, gap=gap)

    def _after_gap(
        self, state: TargetState, request: BuildRequest, error: FeedError
    ) -> tuple[int, tuple[int, int]] | None:
        """The version with whose rows the next table begins, and the versions whose changes are
        missing. It begins with the first later version that can be read, or, while there is none,
        with the latest one, whose changes are then missing, too. None if the error is not a gap, or
        if it goes on because the feed is switched off."""
        if error.reason not in LOST or (state.built is None and request.gap is None):
            return None
        # Of a table that is not there yet, the rows with which it would begin are lost as well.
        known = (state.recorded + 1, state.recorded) if state.built else request.gap
        assert known is not None
        feed = self._source.feed(known[1] + 1, accept_gap=True)
        latest = feed.last
        begin = self._first_later(state, request, known[1] + 1, feed)
        if begin <= latest:
            return begin, (known[0], begin - 1)
        last = feed.gaps[-1] if feed.gaps else None
        goes_on = last and last.last == latest and last.reason is FeedReason.NOT_RECORDED
        is_tried = state.built is None and request.begin == latest
        return None if goes_on or is_tried else (latest, (known[0], latest))

    def _first_later(
        self, state: TargetState, request: BuildRequest, first: int, feed: Feed
    ) -> int:
        """The first version after a gap that can be read, the latest + 1 for none. first: that of
        the feed."""
        planned = next((gap for gap in feed.gaps if gap.first == first), None)
        if planned and state.built:
            later = (part.first for part in feed.ranges if part.first > planned.last)
            return next(later, feed.last + 1)
        if not state.built:
            assert request.begin is not None
            return first_whole(self._read, request.begin + 1, feed.last)
        lost = first
        while lost <= feed.last and is_whole(self._read, lost):
            lost += 1
        return first_whole(self._read, lost + 1, feed.last)

    def _read(self, version: int) -> Feed:
        return self._source.feed(version, version)

    def _states(self) -> Iterator[tuple[int, TargetState]]:
        number = 1
        while (state := self._table(part_name(self._location, number)).state()).built is not None:
            yield number, state
            number += 1


def part_name(archive: str, number: int) -> str:
    """The name or location of the n-th table of an archive, from 1."""
    return archive if number == 1 else f"{archive}_{number}"
