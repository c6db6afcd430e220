"""From a row to where its changes came from: position in the source, landed files, version."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any

from mirrorlake.app.changes.cut import asked_position
from mirrorlake.delta.feed_columns import METADATA
from mirrorlake.delta.log.history import CommittedBatch, batch_of
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.errors import FeedError, UsageError
from mirrorlake.feed.bounds import AtVersion, FeedRequest, parse_position
from mirrorlake.feed.change_files import unfit_version
from mirrorlake.feed.reader import Feed, FeedCommit
from mirrorlake.feed.rows import key_values, of_key
from mirrorlake.feed.writers import plain
from mirrorlake.model.arrow import python_rows
from mirrorlake.model.landed import format_time
from mirrorlake.storage.options import ObjectOptions

STEP = 64
"""Versions that are read at a time, from the newest back."""


@dataclass(frozen=True, slots=True)
class TracedChange:
    """A change of one row. position: in the source, up to which its version reaches; files: first
    and last landed file of the version; None in versions that the mirror did not make."""

    version: int
    time: datetime
    kind: str
    position: str | None
    files: tuple[int, int] | None
    row: dict[str, Any]

    def facts(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "time": format_time(self.time),
            "kind": self.kind,
            "position": self.position,
            "files": list(self.files) if self.files else None,
            "row": plain(self.row),
        }


@dataclass(frozen=True, slots=True)
class Traced:
    """The last changes of a row, the newest first. since: the first version that was looked at; the
    row may have changed in earlier ones, unless it is 0. unread: versions among them whose changes
    cannot be shown, because they deleted rows with values that their columns do not have."""

    changes: list[TracedChange]
    since: int
    unread: tuple[int, ...] = ()


def trace(
    table: str, key: Sequence[str], options: ObjectOptions | None = None, most: int = 10
) -> Traced:
    """The last changes of the row with a key, at most so many.

    table: folder or URL; key: as of `key_values`, every column of the key. Raises FeedError,
    UsageError.
    """
    log = TableLog(table, options)
    whole = _whole(table, log, options)
    values = key_values(key, whole.key, whole.schema().names)
    if absent := set(whole.key) - values.keys():
        raise UsageError(
            f"column {min(absent)} of the key has no value",
            hint="Write COLUMN=VALUE for each column of the key.",
        )
    if not values:
        raise UsageError("no key was given", hint="Write COLUMN=VALUE, as often as needed.")
    unread = list[int]()
    found = list(islice(_changes(whole, log, values, options, unread), most))
    since = found[-1].version if len(found) == most else whole.first
    return Traced(found, since, tuple(version for version in unread if version >= since))


def _changes(
    whole: Feed,
    log: TableLog,
    values: dict[str, str],
    options: ObjectOptions | None,
    unread: list[int],
) -> Iterator[TracedChange]:
    """unread: takes up the versions whose changes cannot be shown."""
    for part in reversed(whole.ranges):
        for last in range(part.last, part.first - 1, -STEP):
            first = max(part.first, last - STEP + 1)
            bounds = replace(whole.request, start=AtVersion(first), end=AtVersion(last))
            for commit in reversed(list(_readable(bounds, options, log, unread))):
                if absent := values.keys() - set(commit.rows.column_names):
                    raise UsageError(
                        f"the key names {min(absent)}, which is no column of version "
                        f"{commit.version}",
                        hint="`mirrorlake feed` reads a range of versions.",
                    )
                rows = python_rows(of_key(commit.rows, values))
                batch = _batch(whole, commit.version)
                for row in sorted(rows, key=_order, reverse=True):
                    kind = row[METADATA[0]]
                    data = {name: row[name] for name in row if name not in METADATA}
                    files = (batch.first, batch.last) if batch else None
                    position = batch.position if batch else None
                    yield TracedChange(commit.version, commit.time, kind, position, files, data)


def _readable(
    bounds: FeedRequest, options: ObjectOptions | None, log: TableLog, unread: list[int]
) -> Iterator[FeedCommit]:
    """The commits of a range of one schema, of which only the first may be `unread`."""
    feed = Feed(bounds, options, log=log)
    try:
        yield from feed
    except FeedError as error:
        if (version := unfit_version(error)) is None:
            raise
        unread.append(version)
        if version < feed.last:
            rest = replace(bounds, start=AtVersion(version + 1))
            yield from _readable(rest, options, log, unread)


def _order(row: dict[str, Any]) -> bool:
    """Old rows of a version before new ones."""
    return row[METADATA[0]] in {"insert", "update_postimage"}


def _batch(whole: Feed, version: int) -> CommittedBatch | None:
    for action in whole.history.actions(version):
        if (info := action.get("commitInfo")) and (batch := batch_of(version, info)):
            return batch
    return None


def batch_with(
    table: str,
    options: ObjectOptions | None = None,
    *,
    version: int | None = None,
    file: int | None = None,
    position: str | None = None,
) -> CommittedBatch:
    """The batch of the mirror that made a version, applied a landed file, or first shows a position
    of the source. One of the three is given. Raises FeedError, UsageError when there is none."""
    whole = _whole(table, TableLog(table, options), options)
    found: CommittedBatch | None = None
    for batch in whole.history.batches():
        if position is not None and batch.position is not None:
            if not _covers(batch.position, position):
                break
            found = batch
        elif batch.version == version or (file is not None and batch.first <= file <= batch.last):
            found = batch
            break
    else:
        if whole.history.known_since() > 0:
            found = None  # a version that is not recorded may have shown the position before
    if found is None:
        asked = {"position": position, "file": file, "version": version}
        (named,) = (f"{what} {value}" for what, value in asked.items() if value is not None)
        raise UsageError(
            f"no commit of the mirror in the log or the map of positions has {named}",
            where=table,
            hint="`mirrorlake files` lists the files of a table, and `mirrorlake status` its "
            "position.",
        )
    return found


def _whole(table: str, log: TableLog, options: ObjectOptions | None) -> Feed:
    """What is readable of the feed of a table."""
    request = FeedRequest.of(table, from_beginning=True, on_gap="report")
    return Feed(request, options, log=log)


def _covers(batch: str, position: str) -> bool:
    reached, wanted = parse_position(batch), asked_position(position)
    if type(reached.point) is not type(wanted.point):
        raise UsageError(
            f"{position} is no position of this table, whose positions look like {batch}",
            where="position",
            hint="`mirrorlake status` shows the position of each table.",
        )
    return reached.covers(wanted)
