"""Where everything lies below the root of a mirror (LZ-007 to LZ-019): names only, no I/O.

Files/LandingZone/     what publishers land
Files/Mirrorlake/      our state: leases, side records, dropped tables
Files/Monitoring/      status files for others
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
"""Tables that were taken out of the mirror, below their paths."""
SUBSCRIPTIONS = f"{STATE}/subscriptions"
"""Where each named reader of a table stands."""
POSITIONS = f"{STATE}/positions"
"""What the versions of tables applied, below their paths."""
MONITORING = "Files/Monitoring"
LANDED = (LANDING, LANDING_V1, f"{LEASES}/capture", f"{LEASES}/publisher")
"""What lies together wherever the landing zone lies: itself, and the leases to write into it."""
MIRRORED = (
    TABLES,
    DROPPED,
    f"{LEASES}/mirror",
    SUBSCRIPTIONS,
    f"{LEASES}/subscription",
    POSITIONS,
)
"""What lies together wherever the tables lie: themselves, the lease to write them, their readers
with a lease each, and what their versions applied."""


_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f/\\%~]|^[_.]")
_ESCAPED = re.compile(r"(?:~[0-9A-F]{2})+")


def delta_path(table: TableId, default_schema: str | None) -> str:
    """Where the table of a folder is written (LZ-017, LZ-018, LZ-019).

    Names are escaped without `%`: DuckDB and delta-rs decode a path once more than it was encoded.
    """
    schema = table.schema or default_schema
    return "/".join(filter(None, [TABLES, escaped(schema or ""), escaped(table.name)]))


def earlier_path(table: TableId, default_schema: str | None) -> str:
    """Where earlier releases wrote it: under its name as it is."""
    schema = table.schema or default_schema
    return "/".join(filter(None, [TABLES, schema, table.name]))


def escaped(name: str) -> str:
    """The name of a folder below `Tables` for a schema or a table; another one for each name.

    `.` and `..` stay: they are refused, as in the landing zone.
    """
    if name in {".", ".."}:
        return name
    return _UNSAFE.sub(lambda found: "".join(f"~{b:02X}" for b in found[0].encode()), name)


def true_name(folder: str) -> str:
    """The name that was escaped."""
    return _ESCAPED.sub(
        lambda found: bytes.fromhex(found[0].replace("~", "")).decode(errors="replace"), folder
    )
