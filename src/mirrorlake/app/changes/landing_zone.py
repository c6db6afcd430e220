"""The changes of a table, published as a landing zone that any mirror can follow (CF-078).

Each commit is a batch whose name is its position, in one transaction of the publisher: what is
published says where to go on, so that each commit is landed exactly once, whatever dies.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from mirrorlake.app.changes.event_commits import EventCommits, with_every_change
from mirrorlake.app.changes.followed_columns import FollowedColumns
from mirrorlake.app.changes.table_commits import versions
from mirrorlake.app.subscribe import subscribe, with_hint
from mirrorlake.apply.events.columns import METADATA as EVENT_METADATA
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.delta.schema import TableSchema
from mirrorlake.errors import FeedError, UsageError, printable
from mirrorlake.feed.bounds import Beginning, FeedRequest
from mirrorlake.feed.change_files import METADATA_FIELDS
from mirrorlake.feed.commits.position_map import in_mirror
from mirrorlake.feed.follow import POLL, POLL_OBJECTS
from mirrorlake.feed.landing_rows import landing_rows
from mirrorlake.feed.reasons import FeedReason
from mirrorlake.feed.subscriptions.record import FeedPosition
from mirrorlake.feed.subscriptions.snapshot import SNAPSHOT, FeedSnapshot
from mirrorlake.feed.subscriptions.subscription import Delivery, Subscription
from mirrorlake.mirror.table.progress import key_columns
from mirrorlake.model.change import MARKER_COLUMN
from mirrorlake.model.crash_points import CrashHook, no_crash
from mirrorlake.model.table import TableId
from mirrorlake.model.types import is_wider
from mirrorlake.publisher import Publisher
from mirrorlake.root import true_name
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.urls import is_url

_log = structlog.get_logger()

ZONE_ANEW = "zone_table_anew"
_ANEW = "Delete the folder of the table in the landing zone, and land the table again."


@dataclass(frozen=True, slots=True)
class LandedCommit:
    """A commit that was published, or the snapshot that came first. rows: how many were landed.
    is_lossy: earlier changes of keys may be missing: of the commit, because it did not keep them;
    of a snapshot of a table of events those before it."""

    version: int
    is_snapshot: bool
    rows: int
    is_lossy: bool = False


def land(
    table: str,
    target: str | Path,
    *,
    options: ObjectOptions | None = None,
    key: Sequence[str] | None = None,
    start: str | int = SNAPSHOT,
    wait: Callable[[float], bool] = lambda _seconds: True,
    reached: CrashHook = no_crash,
) -> Iterator[LandedCommit]:
    """Publish what the landing zone below `target` does not have yet, commit by commit.

    table: folder or URL of a Delta table; it is landed under its name. target: a root, as of
    `Publisher`. key: the columns that identify a row; those of the mirrored table without. start:
    of a zone that is new, as of `subscribe`; the snapshot of a table of events is of the earliest
    version whose later changes are all there. wait: waits for so many seconds before the next look
    for commits, and says whether to stop. Raises FeedError, LeaseHeld, UsageError, TableError.
    """
    name, log = name_of(table), TableLog(table, options)
    columns = _key(log) if key is None else tuple(key)
    if _is_own(table, target):
        raise UsageError(
            "this landing zone is that of the mirror that writes the table, which would apply its "
            "own changes again",
            where=str(target),
            hint="Name another folder.",
        )
    with Publisher(target, reached=reached) as publisher:
        if publisher.last_batch(name) is None and publisher.has_batches(name):
            raise _foreign(name, target, "its batches have no names")
        commits = EventCommits(table, name, log, options)
        landing = _Landing(table, name, columns, log, options, publisher, commits)
        if start == SNAPSHOT and publisher.last_batch(name) is None:
            first = commits.first_version()
            if first is not None and first >= 0:
                yield landing.rows_of(first)
            start = 0 if first == -1 else start
        after = _checked(publisher.last_batch(name), name, target)
        subscription = subscribe(
            _subscription(name, target),
            table,
            start=start,
            after=after,
            state=None if in_mirror(table)[0] else target,
            options=options,
            reached=reached,
        )
        with subscription:
            seconds = POLL_OBJECTS if is_url(table) else POLL
            deliveries = with_hint(subscription.follow(wait, seconds), _ANEW)
            yield from landing.commits(subscription, deliveries, after)


class _Landing:
    """The landing of one table. Methods raise as `land` does."""

    def __init__(
        self,
        table: str,
        name: TableId,
        key: tuple[str, ...],
        log: TableLog,
        options: ObjectOptions | None,
        publisher: Publisher,
        commits: EventCommits,
    ) -> None:
        self._table, self._name, self._key = table, name, key
        self._log, self._options = log, options
        self._publisher, self._commits = publisher, commits

    def rows_of(self, version: int) -> LandedCommit:
        """Publish the rows of a version, as of which the changes begin."""
        return self._first_rows(self._snapshot(version))

    def _anew(self, version: int, wider: Sequence[str]) -> LandedCommit:
        """Make the folder of the table anew, with the rows of a version first: types of columns
        change in no other way there (LZ-220). If the process ends in between, the next one finds no
        folder, as before the first run. wider: which columns have wider types as of the version."""
        found = self._snapshot(version)
        _log.warning(ZONE_ANEW, table=str(self._name), version=version, columns=list(wider))
        self._publisher.drop(self._name)
        return self._first_rows(found)

    def _wider(self, schema: TableSchema | None) -> list[str]:
        """The columns of which the landing zone has a narrower type."""
        landed = self._publisher.columns(self._name)
        return [
            column.name
            for column in (schema.schema if schema else ())
            if column.name in landed and is_wider(column.type, landed[column.name])
        ]

    def _snapshot(self, version: int) -> FeedSnapshot:
        request = FeedRequest(self._table, Beginning())
        return FeedSnapshot(request, self._log, self._options, version=version)

    def _first_rows(self, found: FeedSnapshot) -> LandedCommit:
        version = found.version
        position = str(FeedPosition(found.table_id, version))
        rows = self._publish(found.schema, found.batches(), self._key, version, position)
        return LandedCommit(version, True, rows, self._commits.are_of_events)

    def commits(
        self, subscription: Subscription, deliveries: Iterable[Delivery], after: str | None
    ) -> Iterator[LandedCommit]:
        """Publish what the subscription delivers; it begins after a position."""
        followed = FollowedColumns(self._table, self._log, self._key, _ANEW)
        schema: TableSchema | None = None
        if after is not None:
            followed.go_on(FeedPosition.parse(after).version)
        first = subscription.record.next or 0
        for version, delivery in versions(subscription, first, deliveries):
            followed.go_on(version)
            before, schema = schema, followed.schema
            if schema != before and (wider := self._wider(schema)):
                yield self._anew(version, wider)
                continue
            if delivery is not None and delivery.is_snapshot:
                position = str(delivery.position)
                batches = delivery.batches()
                rows = self._publish(delivery.schema, batches, followed.key, version, position)
                yield LandedCommit(version, True, rows, self._commits.are_of_events)
            elif done := self._landed(
                version, delivery, followed.key, subscription.record.table_id
            ):
                yield done

    def _landed(
        self, version: int, delivery: Delivery | None, key: tuple[str, ...], table_id: str
    ) -> LandedCommit | None:
        """Publish a commit; None if there is nothing of it."""
        every = self._commits.every_change(version) if key else None
        is_lossy = bool(key) and every is None and self._commits.is_lossy(version)
        position = str(FeedPosition(table_id, version))
        if delivery is not None:
            net = delivery.rows
            rows = self._publish(net.schema, [net], key, version, position, every)
        elif every is not None:  # changes that cancel each other
            own = every.drop_columns([MARKER_COLUMN]).schema
            schema = pa.schema([*own, *METADATA_FIELDS])
            rows = self._publish(schema, [schema.empty_table()], key, version, position, every)
        elif is_lossy:
            rows = 0
        else:
            return None
        return LandedCommit(version, is_snapshot=False, rows=rows, is_lossy=is_lossy)

    def _publish(
        self,
        schema: pa.Schema,
        rows: Iterable[pa.Table | pa.RecordBatch],
        key: tuple[str, ...],
        version: int,
        position: str,
        every: pa.Table | None = None,
    ) -> int:
        """Publish rows of the feed, with every change of some keys, as one batch."""
        plain = landable(schema.empty_table(), key)
        if lost := self._publisher.columns(self._name).keys() - set(plain.column_names):
            raise FeedError(
                f"column {min(lost)} was removed or renamed by version {version}, which a landing "
                "zone cannot express",
                reason=FeedReason.SCHEMA_CHANGED,
                table=self._table,
                hint=_ANEW,
            )

        def to_land(found: pa.Table) -> pa.Table:
            net = landable(found, key)
            landed = landing_rows(net, key, self._table)
            return landed if every is None else with_every_change(landed, net, every, key)

        tables = (
            to_land(pa.Table.from_batches([one]) if isinstance(one, pa.RecordBatch) else one)
            for one in rows
        )
        reader = pa.RecordBatchReader.from_batches(
            landing_rows(plain, key, self._table).schema,
            (batch for one in tables for batch in one.to_batches()),
        )
        done = self._publisher.publish(self._name, reader, key=key, batch=position)
        return sum(done.rows.values())


def landable(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """The rows with columns that a landing zone can have: the metadata column of a table of events
    is left out, or becomes one column per member if every event is a row."""
    if EVENT_METADATA not in rows.column_names:
        return rows
    metadata, found = rows.column(EVENT_METADATA), rows.drop_columns([EVENT_METADATA])
    for field in () if key else metadata.type:
        values = pc.struct_field(metadata, field.name)
        if pa.types.is_list(field.type):
            values = pa.chunked_array([pa.array(map(_json, values.to_pylist()), pa.string())])
        found = found.append_column(f"{EVENT_METADATA}_{field.name}", values)
    return found


def _json(values: Sequence[str | None] | None) -> str | None:
    return None if values is None else json.dumps(values)


def name_of(table: str) -> TableId:
    """The name of a table by its folder or URL."""
    parts = in_mirror(table)[1] or table.rstrip("/").rpartition("/")[2]
    schema, _, name = parts.rpartition("/")
    return TableId("/".join(map(true_name, schema.split("/"))), true_name(name))


def _key(log: TableLog) -> tuple[str, ...]:
    return key_columns(log.snapshot().properties)


def _subscription(name: TableId, target: str | Path) -> str:
    """One for each table and zone."""
    where = str(target).rstrip("/") if is_url(target) else Path(target).absolute().as_posix()
    mark = hashlib.sha256(f"{name} {where}".encode()).hexdigest()[:12]
    return f"landing zone {mark}"


def _checked(after: str | None, name: TableId, target: str | Path) -> str | None:
    try:
        return None if after is None else str(FeedPosition.parse(after))
    except ValueError:
        raise _foreign(name, target, f"its last batch is {printable(after)}") from None


def _foreign(name: TableId, target: str | Path, why: str) -> UsageError:
    return UsageError(
        f"table {printable(name)} was landed there by something else: {why}",
        where=str(target),
        hint="Name another folder.",
    )


def _is_own(table: str, target: str | Path) -> bool:
    """Whether the table is below the root that it would be landed in."""
    root = in_mirror(table)[0]
    if is_url(table) or is_url(target):
        return root == str(target).rstrip("/")
    return bool(root) and Path(root).resolve() == Path(target).resolve()
