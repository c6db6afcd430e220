"""The protocol and metaData actions of tables that are created without Spark."""

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
MAPPING_FEATURE, WIDENING_FEATURE = "columnMapping", "typeWidening"
PROPERTIES = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}
MODE, LAST_ID = "delta.columnMapping.mode", "delta.columnMapping.maxColumnId"
ID, PHYSICAL = "delta.columnMapping.id", "delta.columnMapping.physicalName"


def with_type_widening(protocol: Mapping[str, Any]) -> dict[str, Any] | None:
    """The protocol of a table that begins to widen types; None when it allows that already. Only
    for protocols that list features, as those of all tables with deletion vectors.

    Delta protocol, "Type Widening" and "Table Features".
    """
    wider = dict(protocol)
    for features in ("readerFeatures", "writerFeatures"):
        if WIDENING_FEATURE not in (found := protocol[features]):
            wider[features] = [*found, WIDENING_FEATURE]
    return None if wider == dict(protocol) else wider


def with_mapping(protocol: Mapping[str, Any]) -> dict[str, Any] | None:
    """The protocol of a table that begins to map columns; None when it allows that already.

    Delta Lake protocol, "Column Mapping" and "Table Features".
    """
    wider = dict(protocol)
    for features, version, least, listed in (
        ("readerFeatures", "minReaderVersion", 2, 3),
        ("writerFeatures", "minWriterVersion", 5, 7),
    ):
        if protocol.get(version, 1) < listed:
            wider[version] = max(protocol.get(version, 1), least)
        elif MAPPING_FEATURE not in (found := protocol.get(features, ())):
            wider[features] = [*found, MAPPING_FEATURE]
    return None if wider == dict(protocol) else wider


def metadata(
    schema: Schema,
    *,
    mapped: bool = False,
    partitions: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The metaData action of a table with this schema. mapped: use column mapping by name."""
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
    metadata_: Mapping[str, Any], new: Sequence[Column], *, mapped: bool = False
) -> dict[str, Any]:
    """A metaData action with additional columns. Existing columns keep their names in files.

    mapped: enable column mapping if the table does not have it yet.
    """
    fields, known = json.loads(metadata_["schemaString"])["fields"], metadata_["configuration"]
    is_mapped = mapped or MODE in known
    if is_mapped:
        for number, field in enumerate(fields, 1):
            field["metadata"] = {ID: number, PHYSICAL: field["name"], **field["metadata"]}
    first = int(known.get(LAST_ID, len(fields))) + 1
    fields += [_field(c, n if is_mapped else None, uuid.uuid4()) for n, c in enumerate(new, first)]
    mapping = {MODE: "name", LAST_ID: str(first + len(new) - 1)} if is_mapped else {}
    return {
        **metadata_,
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "configuration": {**known, **mapping},
    }


def _field(column: Column, number: int | None, name: object | None = None) -> dict[str, Any]:
    physical = {} if number is None else {ID: number, PHYSICAL: f"col-{name or number}"}
    return {
        "name": column.name,
        "type": column.type.as_delta(),
        "nullable": column.nullable,
        "metadata": physical,
    }
