"""Folders and names within a landing zone (LZ-007 to LZ-025)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mirrorlake.landing.names import folder_name
from mirrorlake.model.landed import DEFAULT_STREAM
from mirrorlake.model.table import TableId, Value, is_printed
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


def printed_names(store: Lister, zone: str, text: str) -> list[str]:
    """The printed names of the tables that an earlier release called `text`: it put no part of a
    name in quotes, so that a text with several dots may be of several tables. Those of them that
    have a folder; the text itself where there is none."""
    if is_printed(text):
        return [text]
    dots = [at for at, character in enumerate(text) if character == "."]
    splits = [TableId(text[:at], text[at + 1 :]) for at in dots if 0 < at < len(text) - 1]
    splits = splits or [TableId("", text)]
    if len(splits) == 1:
        return [str(splits[0])]
    found = [table for table in splits if _has_folder(store, zone, table)]
    if not found:  # it may be deleted, but not those of its schema
        schemas = {*store.list(zone).folders}
        found = [one for one in splits if f"{folder_name(one.schema)}{SCHEMA_SUFFIX}" in schemas]
        found = found if len(found) == 1 else []
    return [str(table) for table in found] or [text]


def printed_keys(store: Lister, zone: str, tables: Mapping[str, Value]) -> dict[str, Value]:
    """What is recorded of tables, by their `printed_names`; what is recorded under such a name
    counts, where there is both."""
    found = {name: one for name, one in tables.items() if is_printed(name)}
    for former in tables.keys() - found.keys():
        for name in printed_names(store, zone, former):
            found.setdefault(name, tables[former])
    return found


def _has_folder(store: Lister, zone: str, table: TableId) -> bool:
    schema, _, name = folder_of(zone, table).rpartition("/")
    return name in store.list(schema).folders


def folder_of(zone: str, table: TableId, taken: frozenset[str] = frozenset()) -> str:
    """The folder in which our capture and publisher land `table` (LZ-006, LZ-013)."""
    name = folder_name(table.name, apart_from=taken)
    if not table.schema:
        return f"{zone}/{name}"
    return f"{zone}/{folder_name(table.schema)}{SCHEMA_SUFFIX}/{name}"
