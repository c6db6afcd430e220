"""The settings of the mirror."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from mirrorlake.delta.schema import FeedMode
from mirrorlake.mirror.batch_limits import BatchLimits
from mirrorlake.mirror.row_checks import RowChecks
from mirrorlake.mirror.strategy import StrategySetting
from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.model.table import TableId, of_table


class TableTemplate(StrEnum):
    """The Delta features of new tables (CF-157). FAST: deletion vectors, and column mapping if a
    name needs it. COMPATIBLE: neither, for readers that do not support them; such tables are
    written by Delta's MERGE."""

    FAST = "fast"
    COMPATIBLE = "compatible"


@dataclass(frozen=True, slots=True)
class TableOptions:
    """What a project says of a table. feed: what its commits record; suppress_unchanged: updates
    that change no value are left out (CF-147)."""

    feed: FeedMode = FeedMode.IMAGES
    suppress_unchanged: bool = False

    @property
    def has_feed(self) -> bool:
        return self.feed is not FeedMode.OFF


@dataclass(frozen=True, slots=True)
class MirrorSettings:
    """How a landing zone is applied to tables."""

    default_schema: str | None = None  # for tables outside any schema folder (LZ-018, LZ-019)
    metadata_required: bool = True  # LZ-040
    strict_text: bool = False  # LZ-200, LZ-206
    partitions: bool = False  # a sequence of files in each partition folder (LZ-059)
    limits: BatchLimits = field(default_factory=BatchLimits)
    row_checks: RowChecks = field(default_factory=RowChecks)
    soft_deletes: bool = False  # deleted rows stay in the table, marked as deleted
    strategy: StrategySetting = StrategySetting.AUTO  # how batches are written
    template: TableTemplate = TableTemplate.FAST  # of new tables
    compaction: bool = True  # compact files between batches (CF-156)
    poll_seconds: float = 0.1  # interval of scans while files arrive
    idle_seconds: float = 1.0  # maximum interval of scans while no files arrive (LZ-027)
    look_seconds: float = 0.02  # interval of checks for the next cut, which ends a pause
    cleanup_seconds: float = 10.0  # interval of the landing cleanup
    retention: timedelta = timedelta(days=7)  # of the cleanup folder (LZ-245, LZ-252)
    drop_tables: bool = True  # drop tables whose folders were deleted (LZ-231)
    drop_after: timedelta = timedelta(minutes=1)  # as in the original service (LZ-240)
    max_tables: int | None = None  # no more tables than this are started (LZ-278)
    max_bytes_per_day: int | None = None  # landed bytes; then the mirror waits for the next day
    stops_at: frozenset[SchemaChangeKind] = frozenset()  # changes of columns that stop a table
    ignores_new_columns: bool = False
    drops_columns: bool = False  # in the table too, where its readers know column mapping
    renames_columns: bool = False  # without rewriting rows, where its readers know column mapping
    widens_types: bool = False  # without rewriting files, by type widening
    vacuum: timedelta | None = timedelta(days=7)  # retention of files of old versions (LZ-263)
    subscription_hold: timedelta = timedelta(days=14)  # how long vacuum waits for readers (CF-187)
    subscription_warning: float = 0.25  # status warns below this part of the time left (CF-189)
    options: TableOptions = field(default_factory=TableOptions)  # of tables that are not named
    tables: Mapping[str, TableOptions] = field(default_factory=dict)  # by name

    def options_of(self, table: TableId) -> TableOptions:
        return of_table(self.tables, table) or self.options
