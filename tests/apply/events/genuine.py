"""Changes in the forms that genuine files have."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import fastavro

SECOND = 1_737_457_695_000


def change(
    number: int, payload: Mapping[str, Any], kind: str = "UPDATE-INSERT", **changed: Any
) -> dict[str, Any]:
    """A change of MySQL at a position of its log. changed: fields of the event or the metadata."""
    head = {
        "uuid": f"u{number}{kind}",
        "read_timestamp": SECOND,
        "source_timestamp": SECOND,
        "object": "shop_orders",
        "read_method": "mysql-cdc-binlog",
        "stream_name": "projects/0/locations/us-central1/streams/s",
    }
    metadata = {
        "table": "orders",
        "database": "shop",
        "primary_keys": ["id"],
        "log_file": "mysql-bin.000459",
        "log_position": number,
        "change_type": kind,
        "is_deleted": kind in {"DELETE", "UPDATE-DELETE"},
    }
    own = {name: changed.pop(name) for name in [*head, "sort_keys"] if name in changed}
    return {**head, **own, "source_metadata": metadata | changed, "payload": dict(payload)}


def backfill(payload: Mapping[str, Any], **changed: Any) -> dict[str, Any]:
    read = {"read_method": "mysql-backfill-fulldump", "log_file": "", "log_position": 0}
    return change(0, payload, "INSERT", **(read | changed))


def oracle(
    scn: int, payload: Mapping[str, Any], kind: str | None = "UPDATE-INSERT", **changed: Any
) -> dict[str, Any]:
    """A change of Oracle as files of 2021 have it: `sort_keys` at the end, blanks around `rs_id`,
    `tx_id` in base64, the name of the archived log. changed: as for `change`."""
    record = f" 0x000155.{scn:08x}.0010 "
    found = {
        "uuid": f"o{scn}{kind}{sorted(payload.items())}",
        "read_timestamp": SECOND,
        "source_timestamp": SECOND,
        "object": "SHOP_ORDERS",
        "read_method": "oracle-cdc-logminer",
        "stream_name": "projects/0/locations/us-central1/streams/s",
        "schema_key": "5" * 40,
        "source_metadata": {
            "log_file": "ora_log/arch1_341_1054990283.arc",
            "scn": scn,
            "row_id": "AAAR3sAAEAAAACXAAA",
            "is_deleted": kind in {"DELETE", "UPDATE-DELETE"},
            "database": "XE",
            "schema": "SHOP",
            "table": "ORDERS",
            "change_type": kind,
            "tx_id": "CgAQAHMCAAA=",
            "rs_id": record,
            "ssn": 0,
            "primary_keys": ["ID"],
        },
        "payload": dict(payload),
        "sort_keys": [SECOND, scn, record, 0],
    }
    own = {name: value for name, value in changed.items() if name in found}
    found["source_metadata"] |= {n: v for n, v in changed.items() if n not in found}
    return found | own


def avro(events: Sequence[Mapping[str, Any]], **kinds: Any) -> bytes:
    """The events as fastavro writes them, with the fields of the first one in its order. kinds:
    Avro types of columns."""
    columns = {"type": "record", "name": "payload", "fields": [
        {"name": name, "type": _optional(kinds.get(name) or _kind([one["payload"].get(name)
                                                                   for one in events])[-1])}
        for name in events[0]["payload"]]}  # fmt: skip
    fields = [
        {"name": "payload", "type": columns} if name == "payload" else
        {"name": name, "type": _record(name, [one[name] for one in events])
         if isinstance(value, dict) else _kind([one[name] for one in events])[-1]}
        for name, value in events[0].items()
    ]  # fmt: skip
    file = io.BytesIO()
    told = fastavro.parse_schema({"type": "record", "name": "event", "fields": fields})
    fastavro.writer(file, told, events)
    return file.getvalue()


def _optional(kind: Any) -> Any:
    """Avro has no union of null and null."""
    return kind if isinstance(kind, dict) and kind["type"] == "null" else ["null", kind]


def _record(name: str, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    fields = [{"name": one, "type": _kind([r[one] for r in records])} for one in records[0]]
    return {"type": "record", "name": name, "fields": fields}


def _kind(values: Sequence[Any]) -> list[Any]:
    """The optional type of some values."""
    found: Any = "string"
    for value in values:
        match value:
            case bool():
                found = "boolean"
            case int():
                found = "long"
            case list():
                found = {"type": "array", "items": ["string", "long"]}
    return ["null", found]
