"""The version of a table from which on every change can be written to another format."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import unquote

from mirrorlake.app.changes.followed_columns import FollowedColumns
from mirrorlake.app.changes.landed_changes import repeats
from mirrorlake.app.landed_files import LandedFiles, NotLanded
from mirrorlake.delta.log.files import FOLDER as LOG_FOLDER
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.delta.schema import TableSchema
from mirrorlake.errors import FeedError
from mirrorlake.feed.bounds import FeedRequest
from mirrorlake.feed.commits.position_map import batches_in
from mirrorlake.feed.reader import Feed
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.store import Store


def first_version(
    table: str,
    log: TableLog,
    key: tuple[str, ...],
    landed: LandedFiles,
    present: Collection[str],
    options: ObjectOptions | None = None,
) -> int:
    """The earliest version whose later changes are all there: in the feed, and with a key in the
    landed files too. It has the initial load, the present key, and the present types of columns,
    and no name of a column became that of another one since. -1 if the first commit changed some
    keys several times. The newest version if a file was removed before its time.

    table: folder or URL; key: by the names in the newest version; present: the files of the table,
    as of `files_below`. Raises FeedError and BrokenLog.
    """
    feed = Feed(FeedRequest.of(table, from_beginning=True), options, log=log)
    latest = feed.plan.latest
    try:
        there = landed.look()
    except NotLanded:
        there = set()
    first: int | None = None
    followed, schema = FollowedColumns(table, log, key, ""), None
    for version in range(min(feed.first, latest), latest + 1):
        try:
            followed.go_on(version)
        except FeedError:
            first, followed = None, FollowedColumns(table, log, key, "")
            followed.go_on(version)
        before, schema = schema, followed.schema
        batches = batches_in(version, log.actions(version))
        numbers = {
            number
            for one in batches
            if not one.is_backfill  # of which the feed has everything
            for number in range(one.first, one.last + 1)
        }
        if (
            any(one.loading for one in batches)
            or not followed.has_present_key
            or _are_retyped(before, schema)
        ):
            first = None
        elif batches and key and not numbers <= there:
            first = version
        elif batches and first is None:
            has_before = version == 0 or version > feed.first
            is_carried = bool(key) and has_before and any(map(repeats, batches))
            first = version - 1 if is_carried else version
    if first is None or not needed_files(log, first, latest) <= set(present):
        return latest
    return first


def _are_retyped(before: TableSchema | None, now: TableSchema | None) -> bool:
    """Whether a column has another type than in the version before."""
    if before is None or now is None or before == now:
        return False
    kinds = {column.name: column.type for column in before.schema}
    return any(kinds.get(column.name, column.type) != column.type for column in now.schema)


def files_below(store: Store, folder: str) -> set[str]:
    """The paths of the data and change files of a table, below its folder."""
    found, waiting = set[str](), [""]
    while waiting:
        inner = waiting.pop()
        listing = store.list("/".join(filter(None, [folder, inner])))
        found |= {f"{inner}/{file.name}" if inner else file.name for file in listing.files}
        waiting += [
            f"{inner}/{name}" if inner else name for name in listing.folders if name != LOG_FOLDER
        ]
    return found


def needed_files(log: TableLog, first: int, latest: int) -> set[str]:
    """The files of a table that its rows as of a version, and all later changes, are read from, but
    for those that lie elsewhere."""
    adds = list(log.snapshot_at(first).files.values()) if first >= 0 else []
    needed = {add["path"] for add in adds}
    for version in range(first + 1, latest + 1):
        actions = log.actions(version)
        changes = {action["cdc"]["path"] for action in actions if "cdc" in action}
        needed |= changes or {
            action[kind]["path"]
            for action in actions
            for kind in ("add", "remove")
            if kind in action and action[kind].get("dataChange", True)
        }
    return {unquote(path) for path in needed if ":" not in path}
