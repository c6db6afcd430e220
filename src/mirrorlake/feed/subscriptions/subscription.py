"""A subscription: delivers whole commits of one table, one after another, from a stored position.

Order of effects: the consumer receives a commit, performs its effect, and requests the next one;
only then is the position stored. A consumer that is killed in between receives the commit again:
each is delivered at least once. A consumer that stores the position of the commit together with its
effect, and starts with `after=` that position, processes each exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count
from typing import Any, Final, Self

import pyarrow as pa

from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.errors import FeedError, LeaseLost, UsageError
from mirrorlake.feed.bounds import AtVersion, FeedRequest, OnGap, start_named
from mirrorlake.feed.commits.coverage import hash_of, identity
from mirrorlake.feed.commits.history import MetadataSince
from mirrorlake.feed.reader import Feed, as_feed_error
from mirrorlake.feed.reasons import FeedReason
from mirrorlake.feed.subscriptions.record import (
    FeedPosition,
    SubscriptionRecord,
    Subscriptions,
    file_name,
)
from mirrorlake.feed.subscriptions.snapshot import SNAPSHOT, FeedSnapshot
from mirrorlake.feed.whole_versions import LOST, AcceptedGap, lost_from
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.storage.lease import RENEW, Lease, renewed
from mirrorlake.storage.options import ObjectOptions

CAP = 1_000
"""Maximum number of versions in one range (CF-175)."""

STORED: Final = "stored"
"""Continue after the position that the subscription has stored."""

LATEST = "latest"

_ANY_AGE = datetime(1970, 1, 1, tzinfo=UTC)
"""As the current time for a reader, it makes versions of any age readable: what vacuum holds for a
subscription is older than the table's retention. A missing file is an error in any case."""


@dataclass(frozen=True, slots=True)
class SubscribedRange:
    """Versions `first` to `last` of a table.

    content: their changes, or the snapshot of `last`.
    position: after them.
    schema_changes: the versions that changed the columns since the previous delivery (CF-071).
    """

    first: int
    last: int
    content: Feed | FeedSnapshot
    position: FeedPosition
    schema_changes: tuple[int, ...]
    after: SubscriptionRecord = field(repr=False)

    @property
    def is_snapshot(self) -> bool:
        return isinstance(self.content, FeedSnapshot)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One commit with all its changes, or the initial snapshot (CF-176).

    The rows of a snapshot have the `_change_type` `snapshot`.

    position: for the consumer to store together with its effect.
    schema_changes: the versions that changed the columns since the previous delivery (CF-071).
    batches: returns the rows in batches.
    """

    version: int
    time: datetime
    is_snapshot: bool
    position: FeedPosition
    schema: pa.Schema
    schema_changes: tuple[int, ...]
    batches: Callable[[], Iterator[pa.RecordBatch]] = field(repr=False)
    after: SubscriptionRecord = field(repr=False)

    @property
    def rows(self) -> pa.Table:
        """All rows at once. Raises FeedError and Unavailable."""
        return pa.Table.from_batches(self.batches(), self.schema)


class Subscription:
    """A named reader of one table. Iterate it for the available commits, or `follow` it.

    Iterating raises FeedError, Unavailable, LeaseLost when another process reads with the same
    name, and UsageError after it was closed. After a FeedError with `reseed` in its hint, continue
    with `reseed` or `accept_gap`.
    """

    def __init__(
        self,
        name: str,
        request: FeedRequest,
        records: Subscriptions,
        lease: Lease,
        *,
        table: str,
        start: str | int = SNAPSHOT,
        after: str | None = STORED,
        options: ObjectOptions | None = None,
        reached: CrashHook = no_crash,
    ) -> None:
        """Take the lease of the name, and determine the position.

        request: the table, and how rows are rearranged; its bounds are ignored.
        table: its path in the records.
        start: where a new subscription starts: `snapshot`, `latest`, a version, or a value of
            `mirrorlake feed --from`.
        after: the position that the consumer has stored; None if it has none yet, which starts at
            `start` again.

        Raises LeaseHeld, FeedError, UsageError.
        """
        self.name, self._request, self._table = name, request, table
        self._records, self._lease, self._options = records, lease, options
        self._reached, self._log = reached, TableLog(request.table, options)
        self._is_closed = False
        file_name(name)
        lease.take()
        try:
            self._record = self._opened(start, after)
        except BaseException:
            lease.release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the name for other processes."""
        self._is_closed = True
        self._lease.release()

    @property
    def record(self) -> SubscriptionRecord:
        """The current record."""
        return self._record

    # -- reading ----------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Delivery]:
        """The snapshot, if it comes first, and the commits up to the newest one. The position after
        each is stored when the next one is requested."""
        for part in self._ranges(CAP):
            deliveries = _deliveries(part)
            with renewed(self._lease):
                while True:
                    with self._gap_hints():
                        delivery = next(deliveries, None)
                    if delivery is None:
                        break
                    yield delivery
                    self.acknowledge(delivery)
            self._pass(part)

    def follow(self, wait: Callable[[float], bool], seconds: float) -> Iterator[Delivery]:
        """Like iterating, and then new commits as they arrive.

        wait: waits for some seconds, and returns whether to stop.
        """
        rounds = max(int(RENEW.total_seconds() / seconds), 1)
        for look in count(1):
            yield from self
            if wait(seconds):
                return
            if look % rounds == 0:
                self.check()

    def ranges(self, versions: int) -> Iterator[SubscribedRange]:
        """Like iterating, in ranges of at most this many versions (CF-175)."""
        for part in self._ranges(versions):
            with renewed(self._lease):
                yield part
            self.acknowledge(part)

    def acknowledge(self, done: Delivery | SubscribedRange) -> None:
        """Store the position after a delivery. Raises LeaseLost."""
        known, after = self._record, done.after
        is_done = known.next is not None and (after.next or 0) <= known.next
        if not is_done or known.table_id != after.table_id:
            self._store(after)

    def _pass(self, part: SubscribedRange) -> None:
        """Continue after a range whose last versions changed no rows."""
        known = self._record
        if known.next is not None and known.next <= part.last:
            left = tuple(v for v in part.schema_changes if v > known.delivered)
            self._store(replace(part.after, delivered=known.delivered, schema_changes=left))

    def _ranges(self, versions: int) -> Iterator[SubscribedRange]:
        self._check_open()
        with self._gap_hints():
            latest = self._latest()
            if self._record.next is None:
                found = FeedSnapshot(self._request, self._log, self._options)
                latest = found.version
                yield self._of_snapshot(found)
            while (first := self._record.next) is not None and first <= latest:
                yield self._of_changes(first, min(first + versions - 1, latest))

    def _of_snapshot(self, found: FeedSnapshot) -> SubscribedRange:
        position = FeedPosition(found.table_id, found.version)
        after = replace(
            self._record,
            table_id=found.table_id,
            next=found.version + 1,
            delivered=found.version,
            commit=identity(self._log.actions(found.version)),
            columns=_columns(found.metadata),
            schema_changes=(),
        )
        return SubscribedRange(found.version, found.version, found, position, (), after)

    def _of_changes(self, first: int, last: int) -> SubscribedRange:
        request = replace(
            self._request, start=AtVersion(first), end=AtVersion(last), on_gap=OnGap.REPORT
        )
        feed = self._feed(request)
        if feed.gaps and feed.gaps[0].first == first:
            self._feed(replace(request, on_gap=OnGap.ERROR))  # raises
        if feed.plan.table_id != self._record.table_id:
            raise self._is_another()
        if feed.ranges[0].last < last:  # ends at a schema change or a gap
            return self._of_changes(first, feed.ranges[0].last)
        columns, changes = self._record.columns, list(self._record.schema_changes)
        for change in feed.history.metadata(first, last):
            if (now := _columns(change.metadata)) != columns:
                changes += [change.version] if columns else []
                columns = now
        after = replace(
            self._record,
            next=last + 1,
            delivered=last,
            commit=identity(feed.history.actions(last)),
            columns=columns,
            schema_changes=(),
        )
        position = FeedPosition(self._record.table_id, last)
        return SubscribedRange(first, last, feed, position, tuple(changes), after)

    # -- read by somebody else --------------------------------------------------------------------

    def renewing(self) -> AbstractContextManager[None]:
        """Renew the lease of the name meanwhile."""
        return renewed(self._lease)

    def check(self) -> None:
        """Raises LeaseLost when another process has the name, and UsageError when the subscription
        is closed."""
        self._check_open()
        try:
            self._lease.check()
        except LeaseLost:
            self._check_open()  # another thread has closed it meanwhile
            raise

    def _check_open(self) -> None:
        if self._is_closed:
            raise UsageError(
                f"subscription {self.name} is closed",
                where=self._request.table,
                hint="Subscribe again with this name.",
            )

    def latest(self) -> int:
        """The newest version of the table. Raises FeedError when another table has replaced it."""
        with self._gap_hints():
            return self._latest()

    def check_readable(self, version: int) -> None:
        """Raises FeedError when the changes of a version cannot be read."""
        with as_feed_error(self._request):
            self._read(version)

    def refused(self, what: str, reason: FeedReason) -> FeedError:
        """An error of this table."""
        return self._request.refused(what, reason)

    def passed(self, version: int) -> None:
        """Store that another reader has delivered everything up to a version. Raises LeaseLost."""
        if self._record.next is None or version >= self._record.next:
            self._store(self._behind_version(version))

    def begin_at(self, version: int) -> None:
        """Store that another reader continues at a version, which may be an earlier one."""
        self._store(self._behind_version(version - 1))

    def _behind_version(self, version: int) -> SubscriptionRecord:
        return replace(
            self._record,
            next=version + 1,
            delivered=version,
            commit="",
            columns="",
            schema_changes=(),
        )

    # -- after a gap ------------------------------------------------------------------------------

    def reseed(self) -> None:
        """Start again with a snapshot of the current table (CF-182)."""
        self._log.forget()
        self._store(self._begun("", None))

    def accept_gap(self) -> AcceptedGap | None:
        """Continue with the first readable version. Returns what is skipped, None if nothing.
        Raises FeedError for another table, which can only be started with a snapshot."""
        self._check_open()
        with self._gap_hints():
            latest, first = self._latest(), self._record.next
            if first is None or first > latest:
                return None
            request = replace(
                self._request,
                start=AtVersion(first),
                end=AtVersion(latest),
                on_gap=OnGap.REPORT,
            )
            gap = lost_from(self._read, first, latest, self._feed(request).gaps)
            if gap is not None:
                self._store(replace(self._record, next=gap.last + 1, delivered=gap.last, commit=""))
            return gap

    def _read(self, version: int) -> Feed:
        return self._feed(replace(self._request, start=AtVersion(version), end=AtVersion(version)))

    def _feed(self, request: FeedRequest) -> Feed:
        return Feed(request, self._options, _ANY_AGE, self._log)

    # -- where it stands --------------------------------------------------------------------------

    def _opened(self, start: str | int, after: str | None) -> SubscriptionRecord:
        known = self._records.read(self.name)
        if known is not None and known.table != self._table:
            raise self._request.refused(
                f"subscription {self.name} reads another table, {known.table}",
                FeedReason.INVALID_ARGUMENT,
                hint="Use another name, or remove it with `mirrorlake subscriptions --remove "
                f"{self.name}`.",
            )
        if after is None or (after == STORED and known is None):
            self._record = self._at(start)
        elif after == STORED:
            assert known is not None
            self._record = known
        else:
            self._record = self._behind(self._parsed(after), known)
        if self._record != known:
            self._store(self._record)
        return self._record

    def _parsed(self, after: str) -> FeedPosition:
        try:
            return FeedPosition.parse(after)
        except (ValueError, AttributeError):
            raise self._request.refused(
                f"after is {after!r}, which is no position of a subscription",
                FeedReason.INVALID_ARGUMENT,
                hint="Pass str(delivery.position), or None when there is none yet.",
            ) from None

    def _behind(self, after: FeedPosition, known: SubscriptionRecord | None) -> SubscriptionRecord:
        """The record for the position of a consumer, which takes precedence over ours."""
        if known is None or known.table_id != after.table_id or known.next is None:
            begun = self._begun(after.table_id, after.version + 1)
            return replace(begun, delivered=after.version)
        if known.delivered == after.version:
            return known
        if after.version > known.delivered:
            ahead = max(known.next, after.version + 1)
            is_same = ahead == known.next
            return replace(
                known,
                next=ahead,
                delivered=after.version,
                commit=known.commit if is_same else "",
                columns=known.columns if is_same else "",
            )
        begun = self._begun(after.table_id, after.version + 1)
        return replace(begun, delivered=after.version)

    def _at(self, start: str | int) -> SubscriptionRecord:
        """The record of a new subscription."""
        if start in {SNAPSHOT, LATEST}:
            found = FeedSnapshot(self._request, self._log, self._options)
            if not MetadataSince(found.version, found.metadata).has_feed:
                raise self._request.refused(
                    "the changes of the table are not recorded", FeedReason.NOT_RECORDED
                )
            first = None if start == SNAPSHOT else found.version + 1
            return self._begun(found.table_id, first)
        given = FeedRequest.of(self._request.table, **start_named(str(start)))
        feed = Feed(given, self._options, log=self._log)
        if feed.first > feed.plan.latest + 1:
            raise given.refused(
                f"the start is after the latest version, which is {feed.plan.latest}",
                FeedReason.BEYOND_LATEST,
                hint="Begin at `latest`, which gives what is committed from now on.",
            )
        return self._begun(feed.plan.table_id, feed.first)

    def _begun(self, table_id: str, first: int | None) -> SubscriptionRecord:
        return SubscriptionRecord(self.name, self._table, table_id, first)

    def _store(self, record: SubscriptionRecord) -> None:
        self.check()
        self._reached(CrashPoint.SUBSCRIPTION_READ)
        self._records.write(record)
        self._record = record
        self._reached(CrashPoint.SUBSCRIPTION_STORED)

    def _latest(self) -> int:
        """The newest version of the table, after checking that it is the same table as before."""
        record = self._record
        try:
            snapshot = self._log.snapshot()
        except FileNotFoundError:
            raise self._is_another() from None
        if record.next is None:
            return snapshot.version
        if snapshot.metadata.get("id") != record.table_id or snapshot.version < record.next - 1:
            raise self._is_another()
        last = record.next - 1
        is_known = snapshot.version > last and record.commit and self._log.has(last)
        if is_known and identity(self._log.actions(last)) != record.commit:
            raise self._is_another()
        return snapshot.version

    def _is_another(self) -> FeedError:
        return self._request.refused(
            f"subscription {self.name} cannot go on: the table was removed, made anew, or replaced "
            "by a copy, so that its versions do not continue those that were read",
            FeedReason.OTHER,
            hint=self._reseed_hint(),
        )

    def _reseed_hint(self) -> str:
        return (
            "subscription.reseed(), or `mirrorlake subscriptions --reseed "
            f"{self.name}`, begins again with a snapshot of the table."
        )

    @contextmanager
    def _gap_hints(self) -> Iterator[None]:
        """Adds to the error of a gap how to continue (CF-053)."""
        try:
            with as_feed_error(self._request):
                yield
        except FeedError as error:
            if error.reason not in LOST:
                raise
            error.hint = (
                f"{self._reseed_hint()} subscription.accept_gap(), or `--accept-gap {self.name}`, "
                "leaves out what cannot be read."
            )
            error.what = f"subscription {self.name}: {error.what}"
            raise


def _deliveries(delivered: SubscribedRange) -> Iterator[Delivery]:
    content = delivered.content
    if isinstance(content, FeedSnapshot):
        yield Delivery(
            version=delivered.last,
            time=content.time,
            is_snapshot=True,
            position=delivered.position,
            schema=content.schema,
            schema_changes=(),
            batches=content.batches,
            after=delivered.after,
        )
        return
    reported = 0
    known = content.history.metadata(delivered.first, delivered.last)
    for part in content.ranges:
        for commit in content.commits(part):
            new = tuple(v for v in delivered.schema_changes[reported:] if v <= commit.version)
            reported += len(new)
            actions = content.history.actions(commit.version)
            after = replace(
                delivered.after,
                next=commit.version + 1,
                delivered=commit.version,
                commit=identity(actions),
                columns=_columns(_at(known, commit.version)),
                schema_changes=(),
            )
            yield Delivery(
                version=commit.version,
                time=commit.time,
                is_snapshot=False,
                position=FeedPosition(delivered.after.table_id, commit.version),
                schema=commit.rows.schema,
                schema_changes=new,
                batches=commit.rows.to_batches,
                after=after,
            )


def _at(known: list[MetadataSince], version: int) -> Mapping[str, Any]:
    return next(change.metadata for change in reversed(known) if change.version <= version)


def _columns(metadata: Mapping[str, Any]) -> str:
    return hash_of(metadata.get("schemaString"))
