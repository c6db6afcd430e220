"""Event files of the payments of the bench: a backfill, and changes with duplicates of keys."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from bench.zone import NUMBER, payment
from mirrorlake.events import types
from mirrorlake.events.encode.container import container
from mirrorlake.events.envelope import EventSource, ReadKind, ReadMethod
from mirrorlake.events.rows import EventObject, EventRows, payload_type
from mirrorlake.events.types import EventColumn

OBJECT = EventObject(
    "projects/0/streams/bench",
    "public_payments",
    EventSource.POSTGRESQL,
    (
        EventColumn("id", types.LONG),
        EventColumn("account", types.LONG),
        EventColumn("reference", types.STRING),
        EventColumn("amount", types.decimal(12, 2)),
        EventColumn("rate", types.DOUBLE),
        EventColumn("settled", types.BOOLEAN),
        EventColumn("status", types.INTEGER),
        EventColumn("booked_on", types.DATE),
        EventColumn("created_at", types.TIMESTAMP_WITH_TIME_ZONE),
        EventColumn("details", types.JSON),
        EventColumn("note", types.STRING),
    ),
)
BEGAN = 1_795_392_000_000
"""Milliseconds: when the backfill began."""
_PER_FILE = 100_000
_FOLDER = "public_payments/2026/11/23/00"


def backfill(bucket: Path, count: int) -> None:
    """The rows 1..count."""
    for number, first in enumerate(range(1, count + 1, _PER_FILE)):
        keys = np.arange(first, min(first + _PER_FILE, count + 1))
        rows = _payments(keys, 0)
        when = np.full(len(keys), BEGAN)
        _write(bucket / _FOLDER / f"00/{number}.avro", f"{number:08x}b", rows, when, None, None)


def changes(
    bucket: Path, present: int, count: int, *, salt: int, keys: int | None = None
) -> list[Path]:
    """Changes to the rows 1..present in files of their own: of as many keys as there are changes,
    or of `keys`, of which 18 % are new. 2 % of them are deletions. In no order. Returns the files.
    """
    random = np.random.default_rng(salt)
    some = keys or count
    new = some * 18 // 100
    touched = random.choice(present, some - new, replace=False) + 1
    pool = np.concatenate((touched, present + salt * count + np.arange(new)))
    key = pool if keys is None else pool[random.integers(0, some, count)]
    deleted = np.isin(key, touched[: some * 2 // 100])
    place = random.permutation(count)
    files = []
    for number, first in enumerate(range(0, count, _PER_FILE)):
        part = slice(first, first + _PER_FILE)
        path = bucket / _FOLDER / f"{salt:02}/{salt}-{number}.avro"
        when = BEGAN + 3_600_000 * salt + place[part] // 100
        lsn = (salt << 32) + place[part] * 64
        rows = _payments(key[part], salt)
        _write(path, f"{number:06x}{salt:02x}c", rows, when, lsn, deleted[part])
        files.append(path)
    return files


def _payments(keys: np.ndarray, salt: int) -> pa.Table:
    connection = duckdb.connect()
    connection.execute("set TimeZone = 'UTC'")
    connection.register("keys", pa.table({"g": keys, "seq": np.arange(len(keys))}))
    query = f"select {payment(NUMBER, salt)} from keys order by seq"
    return connection.sql(query).to_arrow_table().combine_chunks()


def _write(
    path: Path,
    batch: str,
    rows: pa.Table,
    when: np.ndarray,
    lsn: np.ndarray | None,
    deleted: np.ndarray | None,
) -> None:
    told = None if lsn is None else pa.array([f"{n >> 32:X}/{n & 0xFFFFFFFF:X}" for n in lsn])
    events = EventRows(
        ReadMethod(EventSource.POSTGRESQL, ReadKind.BACKFILL if lsn is None else ReadKind.CDC),
        pa.array([f"{batch}-{n:010}" for n in range(len(when))]),
        BEGAN,
        when,
        {
            "schema": "public",
            "table": "payments",
            "primary_keys": ["id"],
            "is_deleted": False if deleted is None else pa.array(deleted),
            "change_type": "INSERT"
            if deleted is None
            else pa.array(np.where(deleted, "DELETE", "UPDATE").tolist()),
            "tx_id": None if lsn is None else "7",
            "lsn": told,
        },
        [pa.array(when), "" if told is None else told],
        [_payload(rows.column(one.name).chunk(0), one) for one in OBJECT.columns],
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(container(OBJECT, events)))


def _payload(values: pa.Array, column: EventColumn) -> pa.Array:
    target = payload_type(column.type)
    if not pa.types.is_struct(target):
        return values.cast(target)
    moment = values.cast(pa.timestamp("us"))
    zero = pa.repeat(pa.scalar(0, target.field(1).type), len(values))
    return pa.StructArray.from_arrays(
        [moment.cast(target.field(0).type), zero], fields=list(target)
    )
