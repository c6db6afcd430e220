"""A zone with a batch that is large enough to be spread over the tasks of a session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlake.lake.log import TableLog
from mirrorlake.model.change import Marker
from mirrorlake.model.landed import FileKind, Footer
from tests.app.zones import MARKER, Zone
from tests.lake.readers import feed_by_delta_rs, rows_by_delta_rs

TABLES = ("orders", "notes")
LARGE = 300_000
"""Rows from which on a batch is surely spread."""


def fill(zone: Zone) -> None:
    """A load and large changes of a half of it, and a small table beside it."""
    zone.table("orders", "id")
    zone.table("notes", "id")
    for number in (1, 2):
        ids = range(number * LARGE, number * LARGE + LARGE)
        footer = Footer("s", FileKind.LOAD, "0/1:0", "0/1:0", complete=number == 2)
        land(zone, "orders", number, ids, "old", [Marker.INSERT] * LARGE, footer)
    ids = range(LARGE + LARGE // 2, 3 * LARGE - LARGE // 2 + 1)
    markers = [Marker.DELETE if n % 50 == 0 else Marker.UPSERT for n in ids]
    land(zone, "orders", 3, ids, "new", markers)
    land(zone, "orders", 4, range(9 * LARGE, 9 * LARGE + 500), "more", [Marker.INSERT] * 500)
    land(zone, "notes", 1, range(10), "old", [Marker.INSERT] * 10)
    land(zone, "notes", 2, range(5, 15), "new", [Marker.UPSERT] * 10)


def land(
    zone: Zone,
    table: str,
    number: int,
    ids: range,
    name: str,
    markers: list[int],
    footer: Footer | None = None,
) -> None:
    rows = pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": pa.repeat(name, len(ids)),
            MARKER: pa.array([int(marker) for marker in markers], pa.int8()),
        }
    )
    if footer:
        rows = rows.replace_schema_metadata(footer.encode())
    pq.write_table(rows, zone.folder(table) / f"{number:020d}.parquet", row_group_size=LARGE // 4)


def content(root: Path, table: str) -> tuple[Any, ...]:
    """The rows, and the feed of each version, read by delta-rs."""
    path = root / "Tables/s" / table
    return sorted(rows_by_delta_rs(path)), feed_by_delta_rs(path)


def written_by_last(root: Path) -> set[str]:
    """The data files that the last batch of the large table has written."""
    log = TableLog(root / "Tables/s/orders")
    batches = [v for v in log.versions() if any("txn" in action for action in log.actions(v))]
    adds = [action["add"] for action in log.actions(batches[-1]) if "add" in action]
    return {add["path"] for add in adds if not add.get("deletionVector")}
