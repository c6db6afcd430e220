"""What a project may say about capture."""

from __future__ import annotations

from dataclasses import dataclass

from mirrorlake.model.change import UNPROVED, SchemaChangeKind

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """When files close, and how often we look at the source."""

    roll_bytes: int = 64 * MIB  # one Spark task reads a file whole
    roll_seconds: float = 1.0  # between publications while changes keep coming: bounds freshness
    debounce_seconds: float = 0.2  # until changes that come after a pause are published
    load_bytes: int = 256 * MIB  # of rows in memory per file of a load
    heartbeat_seconds: float = 10.0  # an idle database is acknowledged this often
    watch_seconds: float = 30.0  # how often we look for what would be lost silently
    strict: bool = False  # a zone that any other engine can read
    load_workers: int = 2  # pieces that are loaded at the same time
    stops_where_rows_differ: bool = False  # an append-only table, once it does
    stops_at: frozenset[SchemaChangeKind] = UNPROVED  # changes of columns that stop a table
