"""The settings of capture."""

from __future__ import annotations

from dataclasses import dataclass

from mirrorlake.capture.watch.append_only import UncapturedPolicy
from mirrorlake.capture.watch.retention import RetentionPolicy
from mirrorlake.model.change import SchemaChangeKind

MIB = 1 << 20
LOAD_BESIDE = 10 << 30
"""`load_beside` of a project, and of the streams of the API."""


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """When files close, and how often we look at the source."""

    roll_bytes: int = 64 * MIB  # one Spark task reads a file whole
    roll_seconds: float = 1.0  # between publications while changes keep coming: bounds freshness
    debounce_seconds: float = 0.2  # until changes that come after a pause are published
    load_bytes: int = 256 * MIB  # of rows in memory per file of a load
    heartbeat_seconds: float = 10.0  # an idle database is acknowledged this often
    watch_seconds: float = 30.0  # how often we look for what would be lost silently
    metadata_columns: bool = False  # rows have the position and time of their change
    soft_deletes: bool = False  # rows stay in the tables when they are deleted
    strict: bool = False  # a zone that any other engine can read
    retained_limit: int | None = None  # bytes of its log that the source may keep for us
    retained_policy: RetentionPolicy = RetentionPolicy.WARN  # what happens when it keeps more
    load: tuple[str, ...] = ("*.*",)  # tables whose rows are loaded, as patterns
    load_joining: bool = True  # whether those of a table that joins the stream later are loaded
    load_beside: int | None = None  # bytes of all tables from which others are read beside changes
    joining_beside: int = 256 * MIB  # the same of tables that join the stream later, if less
    load_workers: int = 2  # pieces that are loaded at the same time
    one_thread: bool = False  # nothing is read beside the stream; for simulations
    parts_on_spark: bool = False  # large tables are loaded by tasks of the mirror's Spark
    spark_connections: int = 8  # of such tasks that run at the same time
    drop_after_seconds: float = 60.0  # until what is landed of a dropped table is deleted
    uncaptured: UncapturedPolicy = UncapturedPolicy.MARK  # what an append-only table does
    stops_at: frozenset[SchemaChangeKind] = frozenset()  # changes that stop a table
    ignores: frozenset[SchemaChangeKind] = frozenset()  # changes that it does not follow

    @property
    def loads_all(self) -> bool:
        return self.load == ("*.*",) and self.load_joining

    @property
    def ignores_columns(self) -> bool:
        """Whether the tables lack columns that were added."""
        return SchemaChangeKind.COLUMN_ADDED in self.ignores
