"""The events that are drawn for the order rules, as lines of JSON, and the table that they make."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import pyarrow as pa

from mirrorlake.apply.events.reading import FileEvents, TableEvents, event_parts
from mirrorlake.apply.events.settings import EventInput
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.delta.lookup.key_lookup import live_rows
from mirrorlake.delta.schema import parse
from mirrorlake.events import types
from mirrorlake.events.types import UnifiedKind, UnifiedType
from mirrorlake.model.row_hashes import content_of
from tests.mirror.event_order.model import GUARD, Event

METHODS = {
    "mysql": ("mysql-cdc-binlog", "mysql-backfill-fulldump"),
    "oracle": ("oracle-cdc-logminer", "oracle-backfill"),
    "oracle-strict": ("oracle-cdc-logminer", "oracle-backfill"),
    "postgresql": ("postgres-cdc-wal", "postgresql-backfill"),
    "sqlserver": ("sqlserver-cdc", "sqlserver-backfill"),
    "salesforce": ("salesforce-cdc", "salesforce-backfill"),
    "mongodb": ("mongodb-cdc", "mongodb-backfill"),
}
PLACES = {
    "mysql": {"database": "shop", "table": "orders"},
    "oracle": {"schema": "shop", "table": "orders"},
    "oracle-strict": {"schema": "shop", "table": "orders"},
    "postgresql": {"schema": "shop", "table": "orders"},
    "sqlserver": {"schema": "shop", "table": "orders"},
    "salesforce": {"domain": "shop", "object_name": "orders"},
    "mongodb": {"database": "shop", "collection": "orders"},
}


class Kinds(NamedTuple):
    """The types of the columns of an Avro file."""

    id: UnifiedType
    v: UnifiedType


LONGS = Kinds(types.LONG, types.LONG)
_EXACT = [types.decimal(12, 0), types.decimal(14, 2), types.decimal(20, 3)]
AVRO: Mapping[UnifiedType, Any] = {
    types.INTEGER: "int",
    types.LONG: "long",
    types.FLOAT: "float",
    types.DOUBLE: "double",
    **{
        kind: {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": kind.precision,
            "scale": kind.scale,
        }
        for kind in _EXACT
    },
}
"""Types of columns as fastavro has them."""
CAST: Mapping[UnifiedKind, Any] = {
    UnifiedKind.DECIMAL: Decimal,
    UnifiedKind.FLOAT: float,
    UnifiedKind.DOUBLE: float,
}
OWN = ("log_file", "log_position", "scn", "rs_id", "ssn", "lsn", "tx_id", "row_id")
NUMBERS = {"log_position", "scn", "ssn"}


def settings(source: str, location: Path = Path(), **changed: Any) -> EventInput:
    return EventInput(
        location,
        guard=timedelta(milliseconds=GUARD),
        strict_oracle=source == "oracle-strict",
        **changed,
    )


def line(source: str, event: Event, key: Sequence[str] = ("id",)) -> str:
    """The event as a file has it."""
    return json.dumps(as_event(source, event, key))


def as_event(
    source: str, event: Event, key: Sequence[str] = ("id",), table: str = "orders"
) -> dict[str, Any]:
    named = {name: event[name] for name in OWN if event.get(name) is not None}
    payload: dict[str, Any] = {"v": event["payload"]}
    change = "DELETE" if event["deletion"] else "INSERT"
    if event.get("truncation"):
        change, payload = "TRUNCATE", {"id": None, "v": None}
    elif event["key"] is not None:
        payload = {"id": event["key"], **payload}
    place = {name: table if told == "orders" else told for name, told in PLACES[source].items()}
    return {
        "uuid": event["uuid"],
        "read_timestamp": event["read_timestamp"],
        "source_timestamp": event["source_timestamp"],
        "object": f"shop_{table}",
        "read_method": _read_method(source, event),
        "stream_name": "s",
        **({"sort_keys": event["sort_keys"]} if event.get("sort_keys") else {}),
        "source_metadata": {
            **place,
            **named,
            ("replication_index" if source == "sqlserver" else "primary_keys"): list(key),
            "change_type": change,
            "is_deleted": event["deletion"],
        },
        "payload": payload,
    }


@cache
def _avro_schema(source: str, kinds: Kinds) -> Any:
    """Of all that an event of a source may have."""

    def record(name: str, **fields: Any) -> dict[str, Any]:
        optional = [{"name": one, "type": ["null", kind]} for one, kind in fields.items()]
        return {"type": "record", "name": name, "fields": optional}

    texts = {"type": "array", "items": "string"}
    named = {name: "long" if name in NUMBERS else "string" for name in (*PLACES[source], *OWN)}
    keys = dict.fromkeys(("primary_keys", "replication_index"), texts)
    metadata = record("metadata", **named, **keys, change_type="string", is_deleted="boolean")
    event = record(
        "event",
        uuid="string",
        read_timestamp="long",
        source_timestamp="long",
        object="string",
        read_method="string",
        stream_name="string",
        sort_keys=texts,
        source_metadata=metadata,
        payload=record("payload", **{name: AVRO[kind] for name, kind in kinds._asdict().items()}),
    )
    return fastavro.parse_schema(event)


def content(
    source: str, events: Sequence[Mapping[str, Any]], form: str, kinds: Kinds = LONGS
) -> bytes:
    """A file of events (`as_event`). form: the end of its name. kinds: of the columns, which files
    of JSON do not tell."""
    if form == "avro":
        file = io.BytesIO()
        fastavro.writer(file, _avro_schema(source, kinds), [_typed(one, kinds) for one in events])
        return file.getvalue()
    lines = "".join(f"{json.dumps(one)}\n" for one in events).encode()
    return gzip.compress(lines, 1) if form.endswith(".gz") else lines


def _typed(event: Mapping[str, Any], kinds: Kinds) -> dict[str, Any]:
    """The event with the values as fastavro writes them."""
    payload = {
        name: None if value is None else CAST.get(getattr(kinds, name).kind, int)(value)
        for name, value in event["payload"].items()
    }
    return {**event, "payload": payload}


def _read_method(source: str, event: Event) -> str:
    """One in four rows of Oracle was read after a rollback, which orders like a change (ST-231)."""
    cdc, backfill = METHODS[source]
    if event["backfill"]:
        return backfill
    is_row = not event["deletion"] and not event.get("truncation")
    if source.startswith("oracle") and is_row and event["payload"] % 4 == 3:
        return "oracle-supplementation"
    return cdc


def read(
    source: str, batch: Sequence[Event], key: Sequence[str] = ("id",), **changed: Any
) -> list[TableEvents]:
    """The events of a batch, as out of one file."""
    text = "\n".join(line(source, event, key) for event in batch)
    file = io.BytesIO(text.encode())
    found = FileEvents.together([*event_parts(file, "file", settings(source, **changed))])
    assert not found.letters
    return list(found.tables)


def as_written(events: Sequence[Event]) -> list[Event]:
    """The events with the content that theirs have in files, whatever the types are there."""
    keys = pa.array([event["key"] for event in events], pa.int64())
    payload = pa.array([event["payload"] for event in events], pa.int64())
    content = content_of(pa.table({"id": keys, "v": payload})).tolist()
    return [{**event, "content": of_event} for event, of_event in zip(events, content, strict=True)]


def rows_of(location: str | Path) -> list[dict[str, Any]]:
    """The rows of a table."""
    snapshot = TableLog(str(location)).snapshot()
    if not snapshot.exists:
        return []
    schema = parse(snapshot.metadata)
    parts = [live_rows(Path(location), add, schema) for add in snapshot.files.values()]
    return [row for part in parts for row in part.to_pylist()]
