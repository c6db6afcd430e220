"""The description of a table and of a publisher: `_metadata.json` and `_partnerEvents.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Self

from mirrorlake.errors import UsageError
from mirrorlake.landing import layout, metadata
from mirrorlake.landing.metadata import BY_TIME, SEQUENTIAL, Metadata, OurMetadata
from mirrorlake.landing.text.format import DeclaredColumn, TextFormat
from mirrorlake.model.table import TableId
from mirrorlake.model.types import DataType
from mirrorlake.publisher.encoding.types import TEXT_TYPES, text_type
from mirrorlake.storage.store import Store

MANY_KEYS = 5
"""Number of key columns from which finding a row is slow (LZ-057)."""


class Layout(StrEnum):
    """The published version of the specification that the files follow (LZ-072, LZ-073)."""

    V2 = "v2"
    V1 = "v1"


@dataclass(frozen=True, slots=True)
class Description:
    """How a table is landed, from its first file on.

    generation: a UUID, new whenever the table is loaded again; key: () for a table without a key;
    text: None for Parquet; by_time: files may arrive independently and have any names (LZ-122,
    LZ-128); upsert_default: a row without a marker is an upsert (LZ-048).
    """

    table: TableId
    generation: str
    key: tuple[str, ...] = ()
    layout: Layout = Layout.V2
    text: TextFormat | None = None
    by_time: bool = False
    upsert_default: bool = False

    @property
    def extension(self) -> str:
        return self.text.extension if self.text else "parquet"

    def file_name(self, number: int) -> str:
        """The name of a data file (LZ-112). In timestamp mode the name is never used again
        (LZ-123), but still sorts by number (LZ-125)."""
        apart = f"-{self.generation}" if self.by_time else ""
        return f"{number:020d}{apart}.{self.extension}"

    def as_record(self) -> dict[str, Any]:
        return {
            "table": self.table.name,
            "schema": self.table.schema,
            "generation": self.generation,
            "key": list(self.key),
            "layout": str(self.layout),
            "text": asdict(self.text) if self.text else None,
            "by_time": self.by_time,
            "upsert_default": self.upsert_default,
        }

    @classmethod
    def parse(cls, record: Mapping[str, Any]) -> Self:
        """Raises KeyError, TypeError, ValueError."""
        text = record["text"]
        return cls(
            table=TableId(record["schema"], record["table"]),
            generation=record["generation"],
            key=tuple(record["key"]),
            layout=Layout(record["layout"]),
            text=TextFormat(**text) if text else None,
            by_time=bool(record["by_time"]),
            upsert_default=bool(record["upsert_default"]),
        )


def metadata_of(description: Description, columns: Mapping[str, DataType]) -> bytes:
    """`_metadata.json` as strict JSON (LZ-053); for text with the declared columns (LZ-168)."""
    text = description.text
    return metadata.encode(
        Metadata(
            key_columns=description.key,
            detection=BY_TIME if description.by_time else SEQUENTIAL,
            upsert_default=description.upsert_default,
            text=replace(text, columns=declared(columns)) if text else None,
            ours=OurMetadata(
                generation=description.generation,
                table=description.table.name,
                source={"schema": description.table.schema, "type": "publisher"},
            ),
        )
    )


def declared(columns: Mapping[str, DataType]) -> tuple[DeclaredColumn, ...]:
    """The columns of a text table as entries of `SchemaDefinition`."""
    return tuple(
        DeclaredColumn(name, TEXT_TYPES[text_type(kind).name], nullable=True)
        for name, kind in columns.items()
    )


@dataclass(frozen=True, slots=True)
class Partner:
    """The publisher and its source (LZ-063). `name` is the same in all landing zones (LZ-066)."""

    name: str = "mirrorlake"
    source_type: str = "Files"
    source_version: str = ""
    additional: Mapping[str, Any] = field(default_factory=dict)

    def as_record(self) -> dict[str, Any]:
        return {
            "partnerName": self.name,
            "sourceInfo": {
                "sourceType": self.source_type,
                "sourceVersion": self.source_version,
                "additionalInformation": dict(self.additional),
            },
        }


def introduce(store: Store, zone: str, partner: Partner | None) -> None:
    """Write `_partnerEvents.json` of the landing zone (LZ-060, LZ-062).

    partner: None keeps an existing file, and writes a default one if there is none. Raises
    UsageError if the landing zone belongs to a partner of another name (LZ-066).
    """
    record = introduction(store, zone, partner)
    if record is not None:
        content = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
        store.replace(f"{zone}/{layout.PARTNER}", content.encode())


def introduction(store: Store, zone: str, partner: Partner | None) -> Mapping[str, Any] | None:
    """The record that `introduce` would write; None if it exists already. Raises UsageError."""
    path = f"{zone}/{layout.PARTNER}"
    try:
        found = json.loads(store.read(path))
        name = found.get("partnerName") if isinstance(found, dict) else None
    except FileNotFoundError:
        found, name = None, None
    except ValueError:
        found, name = {}, None
    if partner is None and found is not None:
        return None
    record = (partner or Partner()).as_record()
    if name is not None and name != record["partnerName"]:
        raise UsageError(
            f"the landing zone belongs to the partner {name!r}, not {record['partnerName']!r} "
            "(LZ-066)",
            where=store.location(path),
            hint="Publish under the same partner name, or delete the file.",
        )
    return None if found == record else record
