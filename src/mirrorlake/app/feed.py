"""`read_feed`: the change feed of a table, as Arrow or as a Spark frame."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Unpack, overload

from mirrorlake.app.stores import store_of
from mirrorlake.config import Project
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.delta.tables import delta_tables
from mirrorlake.errors import UsageError, tables_like
from mirrorlake.feed.bounds import FeedArguments, FeedRequest
from mirrorlake.feed.reader import Feed
from mirrorlake.model.table import TableId, is_printed, named
from mirrorlake.root import delta_path, earlier_path, table_at
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.store import UnsafePath
from mirrorlake.storage.urls import is_url

if TYPE_CHECKING:
    from mirrorlake.spark.feed import Frame, Session


@overload
def read_feed(
    table: str | Path,
    *,
    spark: None = None,
    options: ObjectOptions | None = None,
    **request: Unpack[FeedArguments],
) -> Feed: ...


@overload
def read_feed(
    table: str | Path,
    *,
    spark: Session,
    options: ObjectOptions | None = None,
    **request: Unpack[FeedArguments],
) -> Frame: ...


def read_feed(
    table: str | Path,
    *,
    spark: Session | None = None,
    options: ObjectOptions | None = None,
    **request: Unpack[FeedArguments],
) -> Feed | Frame:
    """A range of the change feed of the Delta table in a folder or at a URL, both ends included.

    spark: a session with Delta, which reads the rows of the same range as a DataFrame; nothing in
    it is changed. options: how a URL is reached. One start is needed: from_version, from_time,
    from_position, from_source_time or from_beginning; the end is the latest version, or one of
    to_version, to_time, to_position and to_source_time. beyond_latest: `clip` or `error`; on_gap:
    `error` or `report`; on_schema_change: `pieces`, `unite` or `error`; pair_updates,
    skip_unchanged, sort: rearrange the rows of each commit by their key, which is that of the table
    unless `key` names columns. The range is fixed now; rows are read when the result is used.
    Raises FeedError.
    """
    feed = Feed(FeedRequest.of(str(table), **request), options)
    if spark is None:
        return feed
    from mirrorlake.spark.feed import frame

    return frame(feed, spark)


def location_of(settings: Callable[[], Project], table: str) -> tuple[str, ObjectOptions | None]:
    """Where the table of a name is, and how it is reached; a folder or URL is one itself.

    settings: of the project, read when they are needed. Raises UsageError.
    """
    if is_url(table):
        return table, None
    with suppress(NotADirectoryError):  # a file may have the name of a table
        if TableLog(table).versions():
            return table, None
    return table_named(settings(), table)


def table_named(project: Project, table: str) -> tuple[str, ObjectOptions | None]:
    """Where the table of a name is, and how it is reached. Raises UsageError for anything else than
    the name of a table that there is."""
    store, schema = store_of(project), project.mirror.default_schema
    known: dict[str, str] | None = None
    if not is_printed(table):  # of which there may be several
        known = {str(table_at(path)): path for path in delta_tables(store)}
        table = named(table, known, where=project.name)
    found = TableId.parse(table)
    for path in dict.fromkeys([delta_path(found, schema), earlier_path(found, schema)]):
        with suppress(UnsafePath):
            if TableLog.below(store, path).versions():
                return store.location(path), store.options(path)
    if known is None:
        known = {str(table_at(path)): path for path in delta_tables(store)}
    raise UsageError(
        f"there is no table {table}",
        where=project.name,
        hint=tables_like(table, known, "none yet"),
    )
