"""Where things lie below the root of a mirrored database (LZ-007 to LZ-025)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from mirrorlake.landing.names import folder_name
from mirrorlake.model.table import TableId
from mirrorlake.storage.store import Store
from mirrorlake.storage.tree import Lister

LANDING = "Files/LandingZone"
LANDING_V1 = "LandingZone"
TABLES = "Tables"
STATE = "Files/Mirrorlake"
"""Leases and stored errors of ours."""
DROPPED = f"{STATE}/dropped"
"""Tables that were taken out of the mirror, below their paths."""
MERGING = f"{STATE}/merging"
"""What batches hand to Spark's own MERGE, below the paths of their tables; gone after each."""
MONITORING = "Files/Monitoring"
LANDED = (LANDING, LANDING_V1, f"{STATE}/leases/capture", f"{STATE}/leases/publisher")
"""What lies together wherever the landing zone lies: itself, and the right to write into it."""
MIRRORED = (TABLES, DROPPED, f"{STATE}/leases/mirror")
"""What lies together wherever the tables lie: themselves, and the right to write them."""

SCHEMA_SUFFIX = ".schema"
METADATA = "_metadata.json"
PARTNER = "_partnerEvents.json"
CLEANUP = "_FilesReadyToDelete"
CLEANUP_INFO = "_FilesReadyToDeleteInfo.json"
CUTS = "_mirrorlake/cuts"
STREAM = "_mirrorlake/stream.json"


@dataclass(frozen=True, order=True, slots=True)
class TableFolder:
    """A table folder of the landing zone. `path` is relative to the root."""

    table: TableId
    path: str


def landing_zones(store: Store) -> list[str]:
    """The landing zones that exist, in either form; the one that is used first (LZ-009)."""
    found = [LANDING] if "LandingZone" in store.list("Files").folders else []
    return [*found, LANDING_V1] if LANDING_V1 in store.list("").folders else found


def landing_zone(store: Store) -> str:
    """The landing zone's folder in either form; the one with `Files` wins (LZ-009)."""
    return next(iter(landing_zones(store)), LANDING)


def table_folders(store: Lister, zone: str) -> Iterator[TableFolder]:
    """The table folders of the zone, those outside any schema first.

    A folder that begins with an underscore is no table (LZ-021, LZ-022), one that ends in
    `.schema` is never one (LZ-016).
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


def delta_tables(store: Store, known: Collection[str] = ()) -> Iterator[str]:
    """The paths at which Delta tables lie, at either level below `Tables`.

    known: paths to pass over, without a look at their many files.
    """
    for path in [f"{TABLES}/{name}" for name in store.list(TABLES).folders]:
        if path in known:
            continue
        folders = store.list(path).folders
        if "_delta_log" in folders:
            yield path
            continue
        for inner in [f"{path}/{name}" for name in folders]:
            if inner not in known and "_delta_log" in store.list(inner).folders:
                yield inner


def folder_of(zone: str, table: TableId, taken: frozenset[str] = frozenset()) -> str:
    """The folder in which our publisher lands `table` (LZ-006, LZ-013)."""
    name = folder_name(table.name, apart_from=taken)
    if not table.schema:
        return f"{zone}/{name}"
    return f"{zone}/{folder_name(table.schema)}{SCHEMA_SUFFIX}/{name}"


def delta_path(folder: TableFolder, default_schema: str | None) -> str:
    """Where the table of a folder is written (LZ-017, LZ-018, LZ-019)."""
    schema = folder.table.schema or default_schema
    return f"{TABLES}/{schema}/{folder.table.name}" if schema else f"{TABLES}/{folder.table.name}"
