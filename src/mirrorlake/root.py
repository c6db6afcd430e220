"""Where everything lies below the root of a mirror (LZ-007 to LZ-019): names only, no I/O.

Files/LandingZone/     what publishers land
Files/Mirrorlake/      our state: leases, side records, dropped tables
Files/Monitoring/      status files for others
Tables/                the Delta tables
"""

from __future__ import annotations

from mirrorlake.model.table import TableId

LANDING = "Files/LandingZone"
LANDING_V1 = "LandingZone"
TABLES = "Tables"
STATE = "Files/Mirrorlake"
LEASES = f"{STATE}/leases"
DROPPED = f"{STATE}/dropped"
"""Tables that were taken out of the mirror, below their paths."""
MONITORING = "Files/Monitoring"
LANDED = (LANDING, LANDING_V1, f"{LEASES}/capture", f"{LEASES}/publisher")
"""What lies together wherever the landing zone lies: itself, and the leases to write into it."""
MIRRORED = (TABLES, DROPPED, f"{LEASES}/mirror")
"""What lies together wherever the tables lie: themselves, and the lease to write them."""


def delta_path(table: TableId, default_schema: str | None) -> str:
    """Where the table of a folder is written (LZ-017, LZ-018, LZ-019)."""
    schema = table.schema or default_schema
    return f"{TABLES}/{schema}/{table.name}" if schema else f"{TABLES}/{table.name}"
