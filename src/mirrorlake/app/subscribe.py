"""`subscribe`: a named reader of the change feed of a table, which goes on where it was."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

from mirrorlake.app.stores import store_of
from mirrorlake.config import Project
from mirrorlake.delta.log.table_log import BrokenLog, TableLog
from mirrorlake.errors import FeedError, UsageError, names_like, printable
from mirrorlake.feed.bounds import AtVersion, Beginning, FeedRequest
from mirrorlake.feed.commits.position_map import in_mirror
from mirrorlake.feed.reader import Feed
from mirrorlake.feed.subscriptions.record import (
    SubscriptionRecord,
    Subscriptions,
    file_name,
)
from mirrorlake.feed.subscriptions.retention import (
    FeedReader,
    NeededVersion,
    Retention,
    needed_versions,
)
from mirrorlake.feed.subscriptions.snapshot import SNAPSHOT
from mirrorlake.feed.subscriptions.stream import FeedStreamRecords
from mirrorlake.feed.subscriptions.subscription import STORED, Delivery, Subscription
from mirrorlake.model.clock import WallClock
from mirrorlake.model.crash_points import CrashHook, no_crash
from mirrorlake.root import TABLES
from mirrorlake.storage.lease import SUBSCRIPTION, Lease
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.store import Store, UnsafePath
from mirrorlake.storage.urls import is_url, open_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrorlake.spark.subscription import Session, SparkSubscription


class SubscriptionArguments(TypedDict, total=False):
    """How a subscription begins, and how its rows are arranged."""

    start: str | int
    after: str | None
    state: str | Path | None
    options: ObjectOptions | None
    pair_updates: bool
    skip_unchanged: bool
    sort: bool
    key: Sequence[str] | None
    reached: CrashHook


@overload
def subscribe(
    name: str,
    table: str | Path,
    *,
    spark: None = None,
    **arguments: Unpack[SubscriptionArguments],
) -> Subscription: ...


@overload
def subscribe(
    name: str,
    table: str | Path,
    *,
    spark: Session,
    **arguments: Unpack[SubscriptionArguments],
) -> SparkSubscription: ...


def subscribe(
    name: str,
    table: str | Path,
    *,
    spark: Session | None = None,
    **arguments: Unpack[SubscriptionArguments],
) -> Subscription | SparkSubscription:
    """A named reader of the change feed of the Delta table in a folder or at a URL.

    Its position is stored below the root of the mirror that the table lies in, or in the folder or
    at the URL `state`. start: where a new subscription begins: `snapshot` (all rows of the table
    first, then its changes), `latest`, a version, or a start as `mirrorlake feed --from` takes it.
    after: the position that the consumer stored with its effect, None while it has none; without it
    the stored position counts. spark: a session with Delta, which reads ranges of versions as
    DataFrames; nothing in it is changed. options: how a URL is reached. pair_updates,
    skip_unchanged, sort, key: as of `read_feed`. One process reads under a name at a time.

    Raises LeaseHeld, FeedError, UsageError.
    """
    if unknown := arguments.keys() - SubscriptionArguments.__annotations__.keys():
        raise UsageError(
            f"{min(unknown)} is no argument",
            where="subscribe",
            hint=f"The arguments are {', '.join(SubscriptionArguments.__annotations__)}.",
        )
    options = arguments.get("options")
    store, path = store_of_table(table, arguments.get("state"), options)
    _check_kind(store, name, is_stream=False)
    request = FeedRequest.of(
        str(table),
        from_beginning=True,
        pair_updates=arguments.get("pair_updates", False),
        skip_unchanged=arguments.get("skip_unchanged", False),
        sort=arguments.get("sort", False),
        key=arguments.get("key"),
    )
    subscription = Subscription(
        name,
        request,
        Subscriptions(store),
        lease_of(store, name),
        table=path,
        start=arguments.get("start", SNAPSHOT),
        after=arguments.get("after", STORED),
        options=options,
        reached=arguments.get("reached", no_crash),
    )
    if spark is None:
        return subscription
    from mirrorlake.spark.subscription import SparkSubscription

    return SparkSubscription(subscription, spark)


def with_hint(deliveries: Iterator[Delivery], hint: str) -> Iterator[Delivery]:
    """For a subscription whose position its consumer stores: what to do if it cannot go on, instead
    of `reseed`, which only changes the stored position."""
    try:
        yield from deliveries
    except FeedError as error:
        if "reseed" in error.hint:
            error.hint = hint
        raise


def store_of_table(
    table: str | Path, state: str | Path | None, options: ObjectOptions | None
) -> tuple[Store, str]:
    """The store of the subscriptions of a table, and the path of the table in it. Raises
    UsageError."""
    if state is not None:
        location = str(table) if is_url(table) else Path(table).absolute().as_posix()
        return open_store(state, options if is_url(state) else None), location
    base, inside = in_mirror(table)
    if not base:
        raise UsageError(
            f"the table does not lie below {TABLES} of a mirror, which would store the position",
            where=str(table),
            hint="Pass state=, a folder or URL for the positions of your subscriptions.",
        )
    return open_store(base, options), f"{TABLES}/{inside}"


@dataclass(frozen=True, slots=True)
class SubscriptionState:
    """How far a subscription is. next: the first version that it has not read, None before its
    snapshot; latest: the newest of the table; behind: how many versions it has not read; problem:
    why it cannot go on, empty when it can. None where it is not known.

    left_seconds: until its next version is no longer kept, None where nothing waits for it;
    is_late: little of that time is left (CF-189).
    """

    name: str
    table: str
    next: int | None
    latest: int | None
    behind: int | None
    problem: str
    left_seconds: float | None = None
    is_late: bool = False

    def facts(self) -> dict[str, Any]:
        return asdict(self)


def states(project: Project, now: datetime | None = None) -> list[SubscriptionState]:
    """The subscriptions below the root of a project."""
    store, moment = store_of(project), now or datetime.now(UTC)
    retention = retention_of(project)
    return [_state(store, one, retention, moment) for one in Subscriptions(store).each()]


def retention_of(project: Project) -> Retention:
    settings = project.mirror
    return Retention(settings.vacuum, settings.subscription_hold, settings.subscription_warning)


def _state(
    store: Store, record: SubscriptionRecord | UsageError, retention: Retention, now: datetime
) -> SubscriptionState:
    if isinstance(record, UsageError):
        return SubscriptionState(record.where, "", None, None, None, record.what)
    latest, problem = None, ""
    needed: list[NeededVersion] = []
    try:
        log = TableLog.below(store, record.table)
        found = log.snapshot()
        latest = found.version if found.exists else None
        is_same = record.next is None or found.metadata.get("id") == record.table_id
        if latest is None or not is_same:
            problem = "the table was removed or made anew: use --reseed"
        elif record.next is not None and record.next <= latest:
            needed = needed_versions(log, [FeedReader.of(record)], retention)
            request = FeedRequest(store.location(record.table), AtVersion(record.next))
            Feed(request, store.options(record.table), now - retention.hold, log)
    except FeedError as error:
        problem = error.what
    except (OSError, BrokenLog, UnsafePath) as error:
        problem = f"the table cannot be read: {type(error).__name__}"
    behind = None
    if latest is not None and record.next is not None:
        behind = max(latest + 1 - record.next, 0)
    state = SubscriptionState(record.name, record.table, record.next, latest, behind, problem)
    for one in needed:
        is_late = one.is_late(now, retention.warning)
        return replace(state, left_seconds=one.seconds_left(now), is_late=is_late)
    return state


def _check_kind(store: Store, name: str, *, is_stream: bool) -> None:
    if is_stream == (FeedStreamRecords(store).read(name) is not None):
        return
    raise UsageError(
        f"{printable(name)} is {'no' if is_stream else 'a'} stream",
        where="subscribe",
        hint="" if is_stream else f"`mirrorlake recover {name}` lets it go on elsewhere.",
    )


def known(project: Project, name: str, *, is_stream: bool = False) -> Subscription:
    """A subscription that exists, opened; or that of a stream. Raises UsageError, LeaseHeld."""
    store = store_of(project)
    record = _record(store, project, name)
    _check_kind(store, name, is_stream=is_stream)
    request = FeedRequest(store.location(record.table), Beginning())
    return Subscription(
        name,
        request,
        Subscriptions(store),
        lease_of(store, name),
        table=record.table,
        options=store.options(record.table),
    )


def forget(project: Project, name: str) -> None:
    """Remove a subscription and its position, and a stream with its checkpoints. Raises UsageError,
    LeaseHeld while it reads."""
    store = store_of(project)
    _record(store, project, name)
    lease = lease_of(store, name)
    lease.take()
    FeedStreamRecords(store).remove(name)
    Subscriptions(store).remove(name)
    lease.release()


def _record(store: Store, project: Project, name: str) -> SubscriptionRecord:
    records = Subscriptions(store)
    record = records.read(name)
    if record is None:
        names = names_like(name, (one.name for one in records.all()), "none yet")
        raise UsageError(
            f"there is no subscription {printable(name)}",
            where=project.name,
            hint=f"The subscriptions are: {names}.",
        )
    return record


def lease_of(store: Store, name: str) -> Lease:
    """That of the one process that reads under a name."""
    return Lease(store, f"{SUBSCRIPTION}/{file_name(name)}", WallClock())
