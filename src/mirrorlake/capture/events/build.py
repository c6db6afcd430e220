"""Events from changes and from loaded rows: metadata, sort keys, ids, payload."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.capture.events.infinities import CLAMPED, Infinities
from mirrorlake.capture.events.payload import converted, supported
from mirrorlake.capture.events.settings import EventsSettings
from mirrorlake.events.change_types import inserted
from mirrorlake.events.changes import Change, change_facts, sort_keys, source_times
from mirrorlake.events.encode.fragments import binary, fixed, joined
from mirrorlake.events.envelope import EventSource, ReadKind, ReadMethod
from mirrorlake.events.maps import unified_type
from mirrorlake.events.metadata import BACKFILL_VALUES
from mirrorlake.events.paths import object_name
from mirrorlake.events.rows import Constant, EventObject, EventRows
from mirrorlake.events.types import EventColumn
from mirrorlake.model.arrow import arrow_schema
from mirrorlake.sources.chunk import Changes, Truncation
from mirrorlake.sources.table import SourceTable

_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_UPPER = np.frombuffer(b"0123456789ABCDEF", np.uint8)
SOURCE = EventSource.POSTGRESQL
"""The one source whose streams become events so far."""


@dataclass(frozen=True, slots=True)
class TakenRows:
    """Changes of one table with one set of columns, whose transactions have ended.

    marker: of `Change`. changed: when each was committed, milliseconds. transaction: what the
    source calls it; lsn: uint64, where it stands in the log, None when the source does not give it.
    gone: changes that are no events, because a value was not sent and its row no longer exists;
    they are counted all the same, so that the ids of the others do not depend on when it was read.
    """

    table: SourceTable
    rows: pa.RecordBatch
    marker: np.ndarray
    changed: np.ndarray
    transaction: pa.Array
    lsn: np.ndarray | None
    gone: np.ndarray

    def __len__(self) -> int:
        return len(self.marker)

    def slice(self, start: int, stop: int) -> TakenRows:
        """The changes from one number up to another."""
        if stop - start == len(self):
            return self
        return TakenRows(
            self.table,
            self.rows.slice(start, stop - start),
            self.marker[start:stop],
            self.changed[start:stop],
            self.transaction.slice(start, stop - start),
            None if self.lsn is None else self.lsn[start:stop],
            self.gone[start:stop],
        )

    @property
    def sizes(self) -> np.ndarray:
        """Bytes of each in memory, about; float64."""
        found = np.zeros(len(self))
        for column in self.rows.columns:
            if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
                found += pc.fill_null(pc.binary_length(column), 0).to_numpy()
            else:
                found += column.nbytes / max(len(column), 1)
        return found


def emptied(part: Truncation) -> Changes:
    """A truncation as a change without values (ST-256)."""
    schema = arrow_schema(part.table.schema)
    values = [pa.nulls(1, field.type) for field in schema]
    return Changes(
        part.table,
        pa.RecordBatch.from_arrays(values, schema=schema),
        np.array([Change.TRUNCATE], np.int8),
        None,
        np.array([part.transaction], np.int32),
        np.array([part.ordinal], np.int64),
        part.metadata,
    )


def described(table: SourceTable, settings: EventsSettings) -> EventObject:
    """The object of a table, with its columns as they are now."""
    name = object_name(table.table.schema, table.table.name)
    return EventObject(settings.stream, name, SOURCE, payload_of(table), settings.switches)


def payload_of(table: SourceTable) -> tuple[EventColumn, ...]:
    """The columns of the events of a table."""
    return tuple(
        EventColumn(
            name, supported(unified_type(SOURCE, str(table.source_types.get(name, "text"))))
        )
        for name in table.schema.names
    )


def changes(
    event_object: EventObject,
    taken: TakenRows,
    batch: str,
    first: int,
    read: int,
    infinities: Infinities = CLAMPED,
) -> EventRows:
    """The events of changes. batch: what their ids begin with; first: the number of the first of
    them in the batch; read: when they were read, milliseconds. Raises BadValue."""
    lsn = None if taken.lsn is None else lsn_texts(taken.lsn)
    changed, transaction = source_times(SOURCE, taken.marker, taken.changed), taken.transaction
    if event_object.switches.long_tx_id:
        transaction = transaction.cast(pa.int64())
    facts = (
        _named(taken.table)
        | change_facts(SOURCE, taken.marker)
        | {"tx_id": transaction, "lsn": lsn}
    )
    return EventRows(
        ReadMethod(SOURCE, ReadKind.CDC),
        ids(batch, first, len(taken)),
        read,
        changed,
        facts,
        sort_keys(SOURCE, pa.array(changed), facts),
        _payload(event_object, taken.table, pa.Table.from_batches([taken.rows]), infinities),
    )


def loaded(
    event_object: EventObject,
    table: SourceTable,
    rows: pa.Table,
    batch: str,
    first: int,
    taken: int,
    read: int,
    infinities: Infinities = CLAMPED,
) -> EventRows:
    """The events of rows of a load or a backfill. taken: a moment before their snapshot was begun,
    by the clock of the source (ST-218); read: when they were read; milliseconds. Raises
    BadValue."""
    count = rows.num_rows
    positions: Mapping[str, Constant] = BACKFILL_VALUES[SOURCE]
    changed = np.full(count, taken, np.int64)
    return EventRows(
        ReadMethod(SOURCE, ReadKind.BACKFILL),
        ids(batch, first, count),
        read,
        changed,
        _named(table)
        | {"is_deleted": False, "change_type": str(inserted(SOURCE))}
        | dict(positions),
        sort_keys(SOURCE, taken, positions),
        _payload(event_object, table, rows, infinities),
    )


def batch_id(stream: str, table: SourceTable, *numbers: int) -> str:
    """What the ids of a batch of a table begin with: 16 hex digits, the same for the same batch."""
    # By its two names: `a_b` with `c` and `a` with `b_c` are one object.
    identity = "\0".join([stream, table.table.schema, table.table.name, *map(str, numbers)])
    return hashlib.sha1(identity.encode(), usedforsecurity=False).hexdigest()[:16]


def ids(batch: str, first: int, count: int) -> pa.Array:
    """One id for each event: the batch, then the number of the event in it (ST-041).

    The last eight digits are the lowest bits of the number, as consumers read them (ST-367); what
    they do not hold stands before them in hex, and so is a part of the batch for a consumer. By
    batch and row, and as texts, ids have the order of the events.
    """
    number = np.arange(first, first + count, dtype=np.uint64)
    high = _HEX[(number[:, None] >> np.arange(36, 4, -4, dtype=np.uint64)) & np.uint64(15)]
    low = _HEX[(number[:, None] >> np.arange(7, -1, -1, dtype=np.uint64)) & np.uint64(1)]
    ends = [fixed(np.ascontiguousarray(high[:, :4])), b"-"]
    ends += [fixed(np.ascontiguousarray(np.hstack((high[:, 4:], low))))]
    start = f"{batch[:8]}-{batch[8:12]}-{batch[12:]}-".encode()
    return joined([start, *ends], count).cast(pa.string())


def lsn_texts(values: np.ndarray) -> pa.Array:
    """Places in the log as PostgreSQL prints them: `16/CB002DB0`."""
    high, low = values >> np.uint64(32), values & np.uint64(0xFFFFFFFF)
    return joined([_hex(high), b"/", _hex(low)], len(values)).cast(pa.string())


def _hex(values: np.ndarray) -> pa.Array:
    """Numbers of 32 bits in hex, without zeros in front."""
    nibbles = (values[:, None] >> np.arange(28, -4, -4, dtype=np.uint64)) & np.uint64(15)
    shown = np.maximum.accumulate(nibbles > 0, axis=1)
    shown[:, -1] = True
    return binary(shown.sum(axis=1).astype(np.int64), _UPPER[nibbles][shown])


def _named(table: SourceTable) -> dict[str, pa.Array | Constant]:
    named = {"schema": table.table.schema, "table": table.table.name}
    return {**named, "primary_keys": list(table.key)}


def _payload(
    event_object: EventObject, table: SourceTable, rows: pa.Table, infinities: Infinities
) -> list[pa.Array]:
    return [
        converted(
            values.combine_chunks() if values.num_chunks != 1 else values.chunk(0),
            column.type,
            table=str(table.table),
            column=column.name,
            infinities=infinities,
            is_key=column.name in table.key,
        )
        for column, values in zip(event_object.columns, rows.columns, strict=True)
    ]
