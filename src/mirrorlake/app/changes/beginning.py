"""The version of a table from which on every change can be written to another format."""

from __future__ import annotations

from mirrorlake.app.changes.followed_columns import FollowedColumns
from mirrorlake.app.changes.landed_changes import repeats
from mirrorlake.app.landed_files import LandedFiles, NotLanded
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.errors import FeedError
from mirrorlake.feed.bounds import FeedRequest
from mirrorlake.feed.commits.position_map import batches_in
from mirrorlake.feed.reader import Feed
from mirrorlake.storage.options import ObjectOptions


def first_version(
    table: str,
    log: TableLog,
    key: tuple[str, ...],
    landed: LandedFiles,
    options: ObjectOptions | None = None,
) -> int:
    """The earliest version whose later changes are all there: in the feed, and with a key in the
    landed files too. It has the initial load, and the present key, and no name of a column became
    that of another one since. -1 if the first commit changed some keys several times.

    table: folder or URL; key: by the names in the newest version. Raises FeedError and BrokenLog.
    """
    request = FeedRequest.of(table, from_beginning=True)
    feed = Feed(request, options, log=log)
    latest = feed.plan.latest
    try:
        there = landed.look()
    except NotLanded:
        there = set()
    first: int | None = None
    followed = FollowedColumns(table, log, key, "")
    for version in range(min(feed.first, latest), latest + 1):
        try:
            followed.go_on(version)
        except FeedError:
            first, followed = None, FollowedColumns(table, log, key, "")
            followed.go_on(version)
        batches = batches_in(version, log.actions(version))
        numbers = {number for one in batches for number in range(one.first, one.last + 1)}
        is_there = not key or numbers <= there
        if any(one.loading for one in batches) or not followed.has_present_key:
            first = None
        elif batches and not is_there:
            first = version
        elif batches and first is None:
            has_before = version == 0 or version > feed.first
            is_carried = bool(key) and has_before and any(map(repeats, batches))
            first = version - 1 if is_carried else version
    return latest if first is None else first
