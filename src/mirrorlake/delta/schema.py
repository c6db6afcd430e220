"""The schema of a Delta table, between its log and our words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from mirrorlake.model.arrow import arrow_type
from mirrorlake.model.table import Column, Schema
from mirrorlake.model.types import DataType

OF_EVENTS = "mirrorlake.events"
"""The property of a table that is built from events, which alone may have nested columns."""

_ID, _PHYSICAL = "delta.columnMapping.id", "delta.columnMapping.physicalName"


class UnknownColumnType(ValueError):
    """A column of a type that no table of ours has."""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """Columns, and their names and ids in data files (column mapping).

    partitions: the columns that stand in no data file, but in the log, once for each. values: of
    these, in the files of one partition, as the log writes them.
    """

    schema: Schema
    physical: tuple[str, ...]
    ids: tuple[int | None, ...]
    partitions: tuple[str, ...] = ()
    values: tuple[str | None, ...] = ()

    def physical_of(self, name: str) -> str:
        """The name of a column in data files."""
        return self.physical[self.schema.names.index(name)]

    @property
    def stored(self) -> tuple[str, ...]:
        """The columns that data files have."""
        return tuple(name for name in self.schema.names if name not in self.partitions)

    def absent(self, name: str, rows: int) -> pa.Array:
        """A column that files do not have: its value in their partition, or NULL, because it was
        added later."""
        kind = arrow_type(self.schema[name].type)
        if name not in self.partitions:
            return pa.nulls(rows, kind)
        value = self.values[self.partitions.index(name)]
        # The protocol writes NULL as an empty text too.
        return pa.repeat(pa.scalar(value or None, pa.string()).cast(kind), rows)

    def file_schema(self) -> pa.Schema:
        """The columns as data files hold them."""
        return pa.schema(
            [
                pa.field(
                    name,
                    arrow_type(column.type),
                    metadata={} if number is None else {"PARQUET:field_id": str(number)},
                )
                for column, name, number in zip(self.schema, self.physical, self.ids, strict=True)
                if column.name not in self.partitions
            ]
        )


def parse(metadata: Mapping[str, Any]) -> TableSchema:
    """Read the metaData action. Raises UnknownColumnType."""
    fields = json.loads(metadata["schemaString"])["fields"]
    properties = metadata.get("configuration") or {}
    mapped = properties.get("delta.columnMapping.mode", "none") != "none"
    read = DataType.of_delta if OF_EVENTS in properties else DataType.parse
    columns, physical, ids = [], [], []
    for field in fields:
        try:
            data_type = read(field["type"])
        except (ValueError, TypeError, KeyError):
            raise UnknownColumnType(f"{field['name']} of type {field['type']}") from None
        columns.append(Column(field["name"], data_type, bool(field["nullable"])))
        facts = field.get("metadata") or {}
        physical.append(str(facts[_PHYSICAL]) if mapped else field["name"])
        ids.append(int(facts[_ID]) if mapped else None)
    partitions = tuple(metadata.get("partitionColumns") or ())
    return TableSchema(Schema.of(columns), tuple(physical), tuple(ids), partitions)


def retyped(metadata: Mapping[str, Any], types: Mapping[str, str]) -> dict[str, Any]:
    """A metaData action in which some columns have other types. types: as the log has them."""
    schema = json.loads(metadata["schemaString"])
    for field in schema["fields"]:
        field["type"] = types.get(field["name"], field["type"])
    return {**metadata, "schemaString": json.dumps(schema)}
