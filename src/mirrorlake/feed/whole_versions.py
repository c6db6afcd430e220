"""Finds where reading can go on after changes whose files are gone, which nothing but reading them
shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mirrorlake.errors import FeedError
from mirrorlake.feed.reasons import FeedReason

LOST = frozenset({FeedReason.EXPIRED, FeedReason.NOT_RECORDED})
"""The reasons why changes can never be read."""


def is_whole(read: Callable[[int], Iterable[object]], version: int) -> bool:
    """Whether all changes of a version can be read. Raises other errors than LOST."""
    try:
        for _commit in read(version):
            pass
    except FeedError as error:
        if error.reason not in LOST:
            raise
        return False
    return True


def first_whole(read: Callable[[int], Iterable[object]], first: int, latest: int) -> int:
    """The first version whose changes can all be read; `latest` + 1 for none."""
    return next((v for v in range(first, latest + 1) if is_whole(read, v)), latest + 1)
