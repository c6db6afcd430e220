"""`stream_feed` and `recover`: a query of Structured Streaming over the feed of a table, which has
a name, and goes on with a new checkpoint when its own is damaged (CF-183, CF-184)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrorlake.app.stores import store_of
from mirrorlake.app.subscribe import known, lease_of, store_of_table
from mirrorlake.config import Project
from mirrorlake.delta.log.table_log import BrokenLog, TableLog
from mirrorlake.errors import UsageError, printable
from mirrorlake.feed.bounds import Beginning, FeedRequest
from mirrorlake.feed.commits.position_map import in_mirror
from mirrorlake.feed.reasons import FeedReason
from mirrorlake.feed.subscriptions.record import Subscriptions
from mirrorlake.feed.subscriptions.snapshot import SNAPSHOT
from mirrorlake.feed.subscriptions.stream import FeedStreamRecord, FeedStreamRecords, last_recorded
from mirrorlake.feed.subscriptions.subscription import Subscription
from mirrorlake.root import TABLES
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.urls import is_url

if TYPE_CHECKING:
    from mirrorlake.spark.feed_stream import FeedStream, Frame, Session, StreamBatch


def stream_feed(
    name: str,
    table: str | Path,
    spark: Session,
    write: Callable[[Frame, StreamBatch], None],
    *,
    start: str | int = SNAPSHOT,
    target: str | Path | None = None,
    options: ObjectOptions | None = None,
    max_files: int | None = None,
    max_bytes: str | None = None,
    seconds: float = 0.0,
    accept_schema_change: int | None = None,
) -> FeedStream:
    """A query of Structured Streaming over the change feed of a mirrored table, in a folder or at a
    URL: `write` gets batches of rows.

    Its checkpoint lies below the root of the mirror, and how far it is stands in a subscription of
    its name. start: where a new one begins, as of `subscribe`; the rows of a snapshot come as
    inserts. target: the Delta table that `write` appends to with `StreamBatch.options`, from which
    `mirrorlake recover` sees how far it is. options: how a URL is reached; the session needs its
    own. max_files, max_bytes: of one batch, about. seconds: from one batch to the next.
    accept_schema_change: the version of a rename, drop or change of type that the target is ready
    for. One process runs it at a time.

    Raises LeaseHeld, FeedError, UsageError.
    """
    from mirrorlake.spark.feed_stream import FeedStream, StreamLimits

    location = _absolute(table)  # the JVM may have another working folder
    if not in_mirror(location)[0]:
        raise UsageError(
            f"the table does not lie below {TABLES} of a mirror, which would store the checkpoint",
            where=location,
            hint="Read it with session.readStream alone.",
        )
    store, path = store_of_table(location, None, options)
    records, subscriptions = FeedStreamRecords(store), Subscriptions(store)
    record, subscribed = records.read(name), subscriptions.read(name)
    if record is None and subscribed is not None and subscribed.delivered >= 0:
        raise UsageError(
            f"{printable(name)} is a subscription, and no stream",
            where="stream_feed",
            hint="Use another name.",
        )
    wanted = "" if target is None else _absolute(target)
    if record is not None and record.target != wanted:
        raise UsageError(
            f"stream {printable(name)} writes {record.target or 'no Delta table'}, and not "
            f"{wanted or 'something else'}",
            where="stream_feed",
            hint="Pass the same target, or use another name.",
        )
    request = FeedRequest(location, Beginning())
    lease, log = lease_of(store, name), TableLog(location, options)
    subscription = Subscription(
        name, request, subscriptions, lease, table=path, start=start, options=options
    )
    try:
        if record is None:
            record = FeedStreamRecord(1, subscription.record.next, wanted)
            records.write(name, record)
    except BaseException:
        subscription.close()
        raise
    limits = StreamLimits(max_files, max_bytes, seconds, accept_schema_change)
    return FeedStream(subscription, spark, write, records, record, request, log, limits)


@dataclass(frozen=True, slots=True)
class RecoveredStream:
    """first: the version that it goes on with, None for the snapshot; checkpoint: the new one."""

    stream: str
    first: int | None
    checkpoint: str

    def facts(self) -> dict[str, Any]:
        return {"stream": self.stream, "first": self.first, "checkpoint": self.checkpoint}


def recover(
    project: Project,
    name: str,
    from_version: int | None = None,
    accept_gap: tuple[int, int] | None = None,
) -> RecoveredStream:
    """Let a stream go on with a new checkpoint, with a version, or with the one behind the last one
    that its target has recorded. The old checkpoint stays as it is.

    accept_gap: the versions that are left out. Raises LeaseHeld while the stream runs, FeedError
    where the version cannot be read, UsageError.
    """
    store = store_of(project)
    records = FeedStreamRecords(store)
    stream = records.read(name)
    if stream is None:
        raise UsageError(
            f"there is no stream {printable(name)}",
            where="recover",
            hint="`mirrorlake subscriptions` lists names; streams are those of stream_feed.",
        )
    with known(project, name, is_stream=True) as one:
        latest = one.latest()
        seen = _seen(one, name, stream, store.options(one.record.table))
        following = stream.start if seen is None else seen + 1
        first = following if from_version is None else from_version
        if first is not None:
            _check_gap(name, following or 0, first, accept_gap)
            if first <= latest:
                one.check_readable(first)
            elif first > latest + 1:
                raise one.refused(
                    f"version {first} is after the latest, which is {latest}",
                    FeedReason.BEYOND_LATEST,
                )
        number = stream.number + 1
        records.write(name, replace(stream, number=number, start=first))
        if first is not None:
            one.begin_at(first)
    return RecoveredStream(name, first, records.checkpoint(name, number))


def _seen(
    one: Subscription, name: str, stream: FeedStreamRecord, options: ObjectOptions | None
) -> int | None:
    """The last version that the target has; None where it has none yet."""
    if stream.target:
        try:
            position = last_recorded(name, stream.target, options)
        except (BrokenLog, OSError) as error:
            raise UsageError(
                f"the target cannot be read: {type(error).__name__}", where=stream.target
            ) from error
        if position is not None and position.table_id == one.record.table_id:
            return position.version
    return None if one.record.next is None else one.record.next - 1


def _check_gap(name: str, following: int, first: int, accepted: tuple[int, int] | None) -> None:
    gap = (following, first - 1) if first > following else None
    if gap == accepted:
        return
    if gap is None:
        raise UsageError(
            "a gap is accepted, and no version is left out", where="recover", hint="Leave it out."
        )
    raise UsageError(
        f"to begin with version {first} leaves out versions {gap[0]} to {gap[1]}, which the target "
        f"of stream {printable(name)} has not seen",
        where="recover",
        hint=f"Begin with version {following}, or accept it: --accept-gap {gap[0]}-{gap[1]}.",
    )


def _absolute(location: str | Path) -> str:
    return str(location) if is_url(location) else Path(location).absolute().as_posix()
