"""Follows the change feed of a table as commits arrive, without a JVM."""

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
"""Seconds between two checks of the log: in a folder, and on an object store, where each is a
request."""


def follow(
    request: FeedRequest, wait: Callable[[float], bool], options: ObjectOptions | None = None
) -> Iterator[Feed]:
    """The current range, and then each new one; no version is omitted or repeated.

    wait: waits for some seconds, and returns whether to stop. Raises FeedError, also when the table
        was replaced by another one, whose versions do not continue the earlier ones.
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
