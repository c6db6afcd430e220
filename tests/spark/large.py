"""A zone with a batch that is large enough to be spread over the tasks of a session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.model.change import Marker
from mirrorlake.model.landed import FileKind, Footer
from tests.app.zones import MARKER, Zone

TABLES = ("orders", "notes")
LARGE = 300_000
"""Rows from which on a batch is surely spread."""


def fill(zone: Zone) -> None:
    """A load and large changes of a half of it, and a small table beside it."""
    zone.table("orders", "id")
    for number in (1, 2):
        ids = range(number * LARGE, number * LARGE + LARGE)
        footer = Footer("s", FileKind.LOAD, "0/1:0", "0/1:0", complete=number == 2)
        land(zone, "orders", number, ids, "old", [Marker.INSERT] * LARGE, footer)
    ids = range(LARGE + LARGE // 2, 3 * LARGE - LARGE // 2 + 1)
    markers = [Marker.DELETE if n % 50 == 0 else Marker.UPSERT for n in ids]
    land(zone, "orders", 3, ids, "new", markers)
    land(zone, "orders", 4, range(9 * LARGE, 9 * LARGE + 500), "more", [Marker.INSERT] * 500)
    fill_notes(zone)


def fill_notes(zone: Zone) -> None:
    """The small table alone."""
    zone.table("notes", "id")
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
    """Of the rows, and of each kind of change in each version, as delta-rs reads them: how many,
    and the sum of their hashes."""
    path = root / "Tables/s" / table
    return rows_of(path), _summed(_feed_of(path), "_commit_version", "_change_type")


def changes_of(path: Path) -> list[tuple[Any, ...]]:
    """The changes of each kind, whatever their versions."""
    return _summed(_feed_of(path), "_change_type")


def rows_of(path: Path) -> list[tuple[Any, ...]]:
    """The rows alone, as `content` tells of them."""
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(path)))
    return _summed(query.execute("select * from t").read_all())


def _feed_of(path: Path) -> Any:
    return deltalake.DeltaTable(str(path)).load_cdf(starting_version=0).read_all()


def _summed(rows: Any, *by: str) -> list[tuple[Any, ...]]:
    connection = duckdb.connect(config={"threads": 1})
    connection.register("rows", pa.table(rows))
    named = ", ".join([*by, "count(*)", "sum(hash(id, name)::hugeint)"])
    return connection.execute(f"select {named} from rows group by all order by all").fetchall()


def written_by_last(root: Path) -> set[str]:
    """The data files that the last batch of the large table has written."""
    log = TableLog(root / "Tables/s/orders")
    batches = [v for v in log.versions() if any("txn" in action for action in log.actions(v))]
    adds = [action["add"] for action in log.actions(batches[-1]) if "add" in action]
    return {add["path"] for add in adds if not add.get("deletionVector")}
