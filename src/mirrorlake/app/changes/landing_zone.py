"""The changes of a table, published as a landing zone that any mirror can follow (CF-078).

Each commit is a batch whose name is its position, in one transaction of the publisher: what is
published says where to go on, so that each commit is landed exactly once, whatever dies.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.app.changes.followed_columns import FollowedColumns
from mirrorlake.app.subscribe import subscribe, with_hint
from mirrorlake.apply.events.columns import METADATA as EVENT_METADATA
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.errors import FeedError, UsageError, printable
from mirrorlake.feed.commits.position_map import in_mirror
from mirrorlake.feed.follow import POLL, POLL_OBJECTS
from mirrorlake.feed.landing_rows import landing_rows
from mirrorlake.feed.reasons import FeedReason
from mirrorlake.feed.subscriptions.record import FeedPosition
from mirrorlake.feed.subscriptions.snapshot import SNAPSHOT
from mirrorlake.feed.subscriptions.subscription import Delivery
from mirrorlake.mirror.table.progress import key_columns
from mirrorlake.model.crash_points import CrashHook, no_crash
from mirrorlake.model.table import TableId
from mirrorlake.publisher import Publisher
from mirrorlake.root import true_name
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.urls import is_url

_ANEW = "Delete the folder of the table in the landing zone, and land the table again."


@dataclass(frozen=True, slots=True)
class LandedCommit:
    """A commit that was published, or the snapshot that came first. rows: how many were landed."""

    version: int
    is_snapshot: bool
    rows: int


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
    of a zone that is new, as of `subscribe`. wait: waits for so many seconds before the next look
    for commits, and says whether to stop. Raises FeedError, LeaseHeld, UsageError, TableError.
    """
    name = name_of(table)
    columns = _key(table, options) if key is None else tuple(key)
    if _is_own(table, target):
        raise UsageError(
            "this landing zone is that of the mirror that writes the table, which would apply its "
            "own changes again",
            where=str(target),
            hint="Name another folder.",
        )
    with Publisher(target, reached=reached) as publisher:
        after = publisher.last_batch(name)
        if after is None and publisher.has_batches(name):
            raise _foreign(name, target, "its batches have no names")
        subscription = subscribe(
            _subscription(name, target),
            table,
            start=start,
            after=_checked(after, name, target),
            state=None if in_mirror(table)[0] else target,
            options=options,
            reached=reached,
        )
        followed = FollowedColumns(table, TableLog(table, options), columns, _ANEW)
        if after is not None:
            followed.go_on(FeedPosition.parse(after).version)
        with subscription:
            seconds = POLL_OBJECTS if is_url(table) else POLL
            for delivery in with_hint(subscription.follow(wait, seconds), _ANEW):
                followed.go_on(delivery.version)
                yield _landed(publisher, name, followed.key, delivery, table)


def _landed(
    publisher: Publisher, name: TableId, key: tuple[str, ...], delivery: Delivery, table: str
) -> LandedCommit:
    plain = landable(delivery.schema.empty_table(), key)
    if lost := publisher.columns(name).keys() - set(plain.column_names):
        raise FeedError(
            f"column {min(lost)} was removed or renamed by version {delivery.version}, which a "
            "landing zone cannot express",
            reason=FeedReason.SCHEMA_CHANGED,
            table=table,
            hint=_ANEW,
        )
    batches = (pa.Table.from_batches([one]) for one in delivery.batches())
    rows = batches if delivery.is_snapshot else iter([delivery.rows])
    found = (landing_rows(landable(one, key), key, table) for one in rows)
    schema = landing_rows(plain, key, table).schema
    reader = pa.RecordBatchReader.from_batches(
        schema, (batch for one in found for batch in one.to_batches())
    )
    done = publisher.publish(name, reader, key=key, batch=str(delivery.position))
    return LandedCommit(delivery.version, delivery.is_snapshot, sum(done.rows.values()))


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


def _key(table: str, options: ObjectOptions | None) -> tuple[str, ...]:
    return key_columns(TableLog(table, options).snapshot().properties)


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
