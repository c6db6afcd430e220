"""The schema of a Delta table, as parsed from its log."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from mirrorlake.model.arrow import arrow_type
from mirrorlake.model.table import Column, Schema
from mirrorlake.model.types import DataType, is_wider

OF_EVENTS = "mirrorlake.events"
"""The property of tables that are built from events; only these, and what is built from their
feeds, may have nested columns."""

BUILT_FROM = "mirrorlake.builtFrom"
"""The property of a table that is built from the feed of another one, with that one and the
settings."""

FEED, _FEED_ALIAS = "delta.enableChangeDataFeed", "delta.enableChangeDataCapture"
APPLY = "mirrorlake.apply"

MAPPING = "delta.columnMapping.mode"
VECTORS = "delta.enableDeletionVectors"
TYPE_WIDENING = "delta.enableTypeWidening"
STATISTICS_COLUMNS = "delta.dataSkippingStatsColumns"
_WITHOUT_ZONE = re.compile(r"[^ T]+(?:[ T][0-9:.]+)?")
"""A timestamp in a partition column as delta-rs writes it, in UTC."""

_TYPE_CHANGES = "delta.typeChanges"
_WHOLE = frozenset({"byte", "short", "integer", "long"})
_ID, _PHYSICAL = "delta.columnMapping.id", "delta.columnMapping.physicalName"


class UnknownColumnType(ValueError):
    """A column has a type that our tables cannot have."""

    def __init__(self, column: str, kind: object) -> None:
        super().__init__(f"{column} of type {kind}")
        self.column = column


class FeedMode(StrEnum):
    """What the commits to a table record for its change feed."""

    IMAGES = "images"  # of an update the row before and after it, in change files (CF-144)
    REPLACE = "replace"  # no change files: readers find which rows left and which came (CF-145)
    OFF = "off"

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> FeedMode:
        """That of a table with these properties."""
        if not has_feed(properties):
            return cls.OFF
        return cls.REPLACE if properties.get(APPLY) == cls.REPLACE else cls.IMAGES

    @property
    def properties(self) -> dict[str, str]:
        """The properties of a table with this mode."""
        if self is FeedMode.OFF:
            return {FEED: "false"}
        return {FEED: "true", APPLY: str(self)}


def has_feed(properties: Mapping[str, str]) -> bool:
    """Whether the changes of a table with these properties are recorded."""
    return any(str(properties.get(name)).lower() == "true" for name in (FEED, _FEED_ALIAS))


def is_mapped(properties: Mapping[str, str]) -> bool:
    """Whether the columns of a table with these properties have other names in data files."""
    return properties.get(MAPPING, "none") != "none"


def type_changes(field: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The types that data files have in a column besides its present one, from the first."""
    return (field.get("metadata") or {}).get(_TYPE_CHANGES) or ()


def may_widen(new: DataType, old: DataType) -> bool:
    """Whether data files may keep the type `old` when their column gets the type `new`: among whole
    numbers, and among decimals with as many places.

    The protocol allows more, but readers are wrong there. The bounds of a `float` in the log have
    seven digits, and Delta leaves out files by comparing them with a `double`; DuckDB rounds what
    it looks for to the places that a file has.
    """
    if "decimal" in {new.name, old.name}:
        return new.name == old.name and new.scale == old.scale and is_wider(new, old)
    return {new.name, old.name} <= _WHOLE and is_wider(new, old)


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The columns of a table, with their names and ids in data files (column mapping).

    partitions: the partition columns, which data files do not contain. values: their values in the
    files of one partition, as in the log. feed: what commits record for the change feed.
    """

    schema: Schema
    physical: tuple[str, ...]
    ids: tuple[int | None, ...]
    partitions: tuple[str, ...] = ()
    values: tuple[str | None, ...] = ()
    feed: FeedMode = FeedMode.IMAGES

    def physical_of(self, name: str) -> str:
        """The name of a column in data files."""
        return self.physical[self.schema.names.index(name)]

    @property
    def stored(self) -> tuple[str, ...]:
        """The columns that data files contain."""
        return tuple(name for name in self.schema.names if name not in self.partitions)

    def missing_column(self, name: str, rows: int) -> pa.Array:
        """The values of a column that a file does not contain: its partition value, or NULL if the
        column was added after the file."""
        kind = arrow_type(self.schema[name].type)
        if name not in self.partitions:
            return pa.nulls(rows, kind)
        value = self.values[self.partitions.index(name)] or None  # an empty text is NULL
        text = pa.scalar(value, pa.string())
        if value and pa.types.is_timestamp(kind) and _WITHOUT_ZONE.fullmatch(value):
            text = text.cast(pa.timestamp("us"))
        return pa.repeat(text.cast(kind), rows)

    def file_schema(self) -> pa.Schema:
        """The columns of data files, with their names and ids there."""
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
    """Parse the schema of a metaData action. Raises UnknownColumnType."""
    fields = json.loads(metadata["schemaString"])["fields"]
    properties = metadata.get("configuration") or {}
    mapped = is_mapped(properties)
    may_nest = OF_EVENTS in properties or BUILT_FROM in properties
    read = DataType.of_delta if may_nest else DataType.parse
    columns, physical, ids = [], [], []
    for field in fields:
        try:
            data_type = read(field["type"])
        except (ValueError, TypeError, KeyError):
            raise UnknownColumnType(field["name"], field["type"]) from None
        columns.append(Column(field["name"], data_type, bool(field["nullable"])))
        facts = field.get("metadata") or {}
        physical.append(str(facts[_PHYSICAL]) if mapped else field["name"])
        ids.append(int(facts[_ID]) if mapped else None)
    partitions = tuple(metadata.get("partitionColumns") or ())
    mode = FeedMode.of(properties)
    return TableSchema(Schema.of(columns), tuple(physical), tuple(ids), partitions, feed=mode)


def parse_only(metadata: Mapping[str, Any], physical: Collection[str]) -> TableSchema:
    """As `parse`, with only those columns that have one of these names in data files."""
    schema = json.loads(metadata["schemaString"])
    mapped = is_mapped(metadata.get("configuration") or {})
    kept = [
        field
        for field in schema["fields"]
        if (field["metadata"][_PHYSICAL] if mapped else field["name"]) in physical
    ]
    names = {field["name"] for field in kept}
    partitions = [name for name in metadata.get("partitionColumns") or () if name in names]
    schema = json.dumps({**schema, "fields": kept})
    return parse({**metadata, "schemaString": schema, "partitionColumns": partitions})


def altered(
    metadata: Mapping[str, Any],
    types: Mapping[str, str],
    dropped: Collection[str] = (),
    properties: Mapping[str, str] = MappingProxyType({}),
    names: Mapping[str, str] = MappingProxyType({}),
    widened: Collection[str] = (),
) -> dict[str, Any]:
    """A metaData action with other types and names for some columns, without others, and with other
    values of properties. types: by column name, as in the log; names: new ones by the present ones;
    widened: columns whose data files keep their types. A column keeps its name in data files."""
    schema = json.loads(metadata["schemaString"])
    schema["fields"] = [
        {**_retyped(field, types, widened), "name": names.get(field["name"], field["name"])}
        for field in schema["fields"]
        if field["name"] not in dropped
    ]
    return {
        **metadata,
        "schemaString": json.dumps(schema),
        "partitionColumns": [names.get(n, n) for n in metadata.get("partitionColumns") or ()],
        "configuration": {**(metadata.get("configuration") or {}), **properties},
    }


def _retyped(
    field: Mapping[str, Any], types: Mapping[str, str], widened: Collection[str]
) -> Mapping[str, Any]:
    """Delta protocol, "Type Widening". A type that is not widened is that of all data files."""
    name, former = field["name"], field["type"]
    kind = types.get(name, former)
    if kind == former:
        return field
    facts = dict(field.get("metadata") or {})
    facts.pop(_TYPE_CHANGES, None)
    if name in widened:
        facts[_TYPE_CHANGES] = [*type_changes(field), {"fromType": former, "toType": kind}]
    return {**field, "type": kind, "metadata": facts}
