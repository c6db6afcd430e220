"""Finds where reading can go on after changes whose files are gone, or whose rows do not fit into
the columns of their version, which nothing but reading them shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from mirrorlake.errors import FeedError
from mirrorlake.feed.ranges import FeedGap
from mirrorlake.feed.reasons import FeedReason

LOST = frozenset({FeedReason.EXPIRED, FeedReason.NOT_RECORDED, FeedReason.SCHEMA_CHANGED})
"""The reasons why changes can never be read."""


@dataclass(frozen=True, slots=True)
class AcceptedGap:
    """Versions that a subscription leaves out. parts: adjacent, each with its reason, which is
    not that of the next one."""

    parts: tuple[FeedGap, ...]

    @property
    def first(self) -> int:
        return self.parts[0].first

    @property
    def last(self) -> int:
        return self.parts[-1].last

    @property
    def reason(self) -> FeedReason:
        """Of the first part, with which reading stopped."""
        return self.parts[0].reason


def is_whole(read: Callable[[int], Iterable[object]], version: int) -> bool:
    """Whether all changes of a version can be read. Raises other errors than LOST."""
    return _lost(read, version) is None


def first_whole(read: Callable[[int], Iterable[object]], first: int, latest: int) -> int:
    """The first version whose changes can all be read; `latest` + 1 for none."""
    return next((v for v in range(first, latest + 1) if is_whole(read, v)), latest + 1)


def lost_from(
    read: Callable[[int], Iterable[object]], first: int, latest: int, known: Iterable[FeedGap]
) -> AcceptedGap | None:
    """The versions from `first` up to the first one whose changes can all be read; None if that is
    `first`. known: gaps of the range, whose versions are not tried. Raises other errors than
    LOST."""
    found: list[FeedGap] = []
    for gap in _lost_runs(read, first, latest, {gap.first: gap for gap in known}):
        if found and found[-1].reason is gap.reason:
            found[-1] = replace(found[-1], last=gap.last)
        else:
            found.append(gap)
    return AcceptedGap(tuple(found)) if found else None


def _lost_runs(
    read: Callable[[int], Iterable[object]], first: int, latest: int, known: dict[int, FeedGap]
) -> Iterator[FeedGap]:
    while first <= latest:
        if (gap := known.get(first)) is None:
            if (reason := _lost(read, first)) is None:
                return
            gap = FeedGap(first, first, reason)
        yield gap
        first = gap.last + 1


def _lost(read: Callable[[int], Iterable[object]], version: int) -> FeedReason | None:
    """Why the changes of a version can never be read; None if they can."""
    try:
        for _commit in read(version):
            pass
    except FeedError as error:
        if error.reason not in LOST:
            raise
        return FeedReason(error.reason)
    return None
