"""The protocol and the metaData action of tables that we make ourselves."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from mirrorlake.model.table import Column, Schema

PROTOCOL = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors", "columnMapping"],
    "writerFeatures": ["deletionVectors", "columnMapping", "changeDataFeed", "appendOnly"],
}
PROPERTIES = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}
MODE, LAST_ID = "delta.columnMapping.mode", "delta.columnMapping.maxColumnId"
ID, PHYSICAL = "delta.columnMapping.id", "delta.columnMapping.physicalName"


def metadata(
    schema: Schema,
    *,
    mapped: bool = False,
    partitions: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The metaData action of a table with this schema. mapped: files have other column names."""
    fields = [_field(column, number if mapped else None) for number, column in enumerate(schema, 1)]
    mapping = {MODE: "name", LAST_ID: str(len(fields))} if mapped else {}
    return {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": list(partitions),
        "configuration": {**PROPERTIES, **(properties or {}), **mapping},
        "createdTime": 0,
    }


def widened(
    described: Mapping[str, Any], new: Sequence[Column], *, mapped: bool = False
) -> dict[str, Any]:
    """A metaData action with further columns; files keep the names that they know.

    mapped: new files have other column names, as those of a table have that is mapped already.
    """
    fields = json.loads(described["schemaString"])["fields"]
    is_mapped = mapped or MODE in described["configuration"]
    if is_mapped:
        for number, field in enumerate(fields, 1):
            field["metadata"] = {ID: number, PHYSICAL: field["name"], **field["metadata"]}
    first = len(fields) + 1
    fields += [_field(c, n if is_mapped else None, uuid.uuid4()) for n, c in enumerate(new, first)]
    mapping = {MODE: "name", LAST_ID: str(len(fields))} if is_mapped else {}
    return {
        **described,
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "configuration": {**described["configuration"], **mapping},
    }


def _field(column: Column, number: int | None, name: object | None = None) -> dict[str, Any]:
    physical = {} if number is None else {ID: number, PHYSICAL: f"col-{name or number}"}
    return {
        "name": column.name,
        "type": column.type.as_delta(),
        "nullable": column.nullable,
        "metadata": physical,
    }
