"""Folders and names within a landing zone (LZ-007 to LZ-025)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from mirrorlake.landing.names import folder_name
from mirrorlake.model.landed import DEFAULT_STREAM
from mirrorlake.model.table import TableId
from mirrorlake.root import LANDING, LANDING_V1
from mirrorlake.storage.store import Store
from mirrorlake.storage.tree import Lister

SCHEMA_SUFFIX = ".schema"
METADATA = "_metadata.json"
PARTNER = "_partnerEvents.json"
CLEANUP = "_FilesReadyToDelete"
CLEANUP_INFO = "_FilesReadyToDeleteInfo.json"
CUTS = "cuts"
_STREAM = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


def stream_folder(zone: str, stream_id: str = DEFAULT_STREAM) -> str:
    """The folder of the records and cuts of a stream. Raises ValueError."""
    if stream_id == DEFAULT_STREAM:
        return f"{zone}/_mirrorlake"
    if not _STREAM.fullmatch(stream_id):
        raise ValueError(f"not a stream id: {stream_id!r}")
    return f"{zone}/_mirrorlake/streams/{stream_id}"


@dataclass(frozen=True, order=True, slots=True)
class TableFolder:
    """A table folder of the landing zone. `path` is relative to the root."""

    table: TableId
    path: str


def landing_zones(store: Store) -> list[str]:
    """The existing landing zones, in either form; the one that is used comes first (LZ-009)."""
    found = [LANDING] if "LandingZone" in store.list("Files").folders else []
    return [*found, LANDING_V1] if LANDING_V1 in store.list("").folders else found


def table_folders(store: Lister, zone: str) -> Iterator[TableFolder]:
    """The table folders of the landing zone, those outside any schema first.

    A folder whose name begins with an underscore is not a table (LZ-021, LZ-022), nor is one whose
    name ends in `.schema` (LZ-016).
    """
    folders = [name for name in store.list(zone).folders if not name.startswith("_")]
    for name in folders:
        if not name.endswith(SCHEMA_SUFFIX):
            yield TableFolder(TableId("", name), f"{zone}/{name}")
    for name in folders:
        schema = name.removesuffix(SCHEMA_SUFFIX)
        if name.endswith(SCHEMA_SUFFIX) and schema:
            for table in store.list(f"{zone}/{name}").folders:
                if not table.startswith("_") and not table.endswith(SCHEMA_SUFFIX):
                    yield TableFolder(TableId(schema, table), f"{zone}/{name}/{table}")


def folder_of(zone: str, table: TableId, taken: frozenset[str] = frozenset()) -> str:
    """The folder in which our capture and publisher land `table` (LZ-006, LZ-013)."""
    name = folder_name(table.name, apart_from=taken)
    if not table.schema:
        return f"{zone}/{name}"
    return f"{zone}/{folder_name(table.schema)}{SCHEMA_SUFFIX}/{name}"
