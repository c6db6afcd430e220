"""Following the change feed of a table as commits come, without a JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.errors import FeedError
from mirrorlake.feed.bounds import AtVersion, FeedRequest
from mirrorlake.feed.reader import Feed
from mirrorlake.feed.reasons import FeedReason
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.urls import is_url

POLL, POLL_OBJECTS = 0.1, 0.5
"""Seconds between two looks at the log: a file, or an object, where each look is a request."""


def follow(
    request: FeedRequest, wait: Callable[[float], bool], options: ObjectOptions | None = None
) -> Iterator[Feed]:
    """The range that is there now, and then each new one; no version is left out or repeated.

    wait: waits for so many seconds, and says whether to stop. Raises FeedError, also when another
    table was made in the place of this one: its versions do not continue those before.
    """
    log = TableLog(request.table, options)
    feed = Feed(request, options, log=log)
    table_id, seconds = feed.plan.table_id, POLL_OBJECTS if is_url(request.table) else POLL
    yield feed
    while not wait(seconds):
        try:
            snapshot = log.snapshot()
        except FileNotFoundError:
            raise _is_another(request) from None
        if snapshot.metadata.get("id") != table_id:
            raise _is_another(request)
        if snapshot.version > feed.plan.latest:
            if feed.first <= feed.last:
                request = replace(request, start=AtVersion(feed.last + 1))
            feed = Feed(request, options, log=log)
            yield feed


def _is_another(request: FeedRequest) -> FeedError:
    return request.refused(
        "the table was removed or made anew while it was followed",
        FeedReason.OTHER,
        hint="Follow it from the beginning: its versions count anew.",
    )
