"""The layout below the root of a mirror (LZ-007 to LZ-019): names only, no I/O.

Files/LandingZone/     the files that publishers land
Files/Mirrorlake/      our state: leases, side records, dropped tables
Files/Monitoring/      status files for other programs
Tables/                the Delta tables
"""

from __future__ import annotations

import re

from mirrorlake.model.table import TableId

LANDING = "Files/LandingZone"
LANDING_V1 = "LandingZone"
TABLES = "Tables"
STATE = "Files/Mirrorlake"
LEASES = f"{STATE}/leases"
DROPPED = f"{STATE}/dropped"
"""Tables that were removed from the mirror, at their paths below `TABLES`."""
SUBSCRIPTIONS = f"{STATE}/subscriptions"
"""The position of each subscription."""
POSITIONS = f"{STATE}/positions"
"""The source positions of table versions, at the paths of the tables below `TABLES`."""
MONITORING = "Files/Monitoring"
LANDED = (LANDING, LANDING_V1, f"{LEASES}/capture", f"{LEASES}/publisher")
"""The folders that are on the storage of the landing zone: itself and the leases of its writers."""
MIRRORED = (
    TABLES,
    DROPPED,
    f"{LEASES}/mirror",
    SUBSCRIPTIONS,
    f"{LEASES}/subscription",
    POSITIONS,
)
"""The folders that are on the storage of the tables: themselves, the lease of their writer, the
subscriptions with their leases, and the positions of their versions."""


_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f/\\%~]|^[_.]")
_ESCAPED = re.compile(r"(?:~[0-9A-F]{2})+")


def delta_path(table: TableId, default_schema: str | None) -> str:
    """The path of the Delta table of a landing-zone folder (LZ-017, LZ-018, LZ-019).

    Names are escaped without `%`, because DuckDB and delta-rs decode a path twice.
    """
    schema = table.schema or default_schema
    return "/".join(filter(None, [TABLES, escaped(schema or ""), escaped(table.name)]))


def table_at(path: str) -> TableId:
    """The table of a path of `delta_path`, with the default schema where that has one."""
    schema, _, name = path.removeprefix(f"{TABLES}/").rpartition("/")
    return TableId("/".join(map(true_name, schema.split("/"))), true_name(name))


def earlier_path(table: TableId, default_schema: str | None) -> str:
    """The path in earlier releases, which did not escape names."""
    schema = table.schema or default_schema
    return "/".join(filter(None, [TABLES, schema, table.name]))


def escaped(name: str) -> str:
    """The folder name below `Tables` of a schema or table; different names have different folders,
    none of which leads upwards."""
    return _UNSAFE.sub(lambda found: "".join(f"~{b:02X}" for b in found[0].encode()), name)


def true_name(folder: str) -> str:
    """The inverse of `escaped`."""
    return _ESCAPED.sub(
        lambda found: bytes.fromhex(found[0].replace("~", "")).decode(errors="replace"), folder
    )
