"""What a project may say about the mirror."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from mirrorlake.mirror.batch_limits import BatchLimits
from mirrorlake.mirror.row_checks import RowChecks
from mirrorlake.mirror.strategy import Wanted
from mirrorlake.model.change import UNPROVED, SchemaChangeKind


class TableTemplate(StrEnum):
    """What tables are made with (CF-157). FAST: deletion vectors, and column mapping where a name
    needs it. COMPATIBLE: neither, for readers that know neither; Delta's MERGE writes them."""

    FAST = "fast"
    COMPATIBLE = "compatible"


@dataclass(frozen=True, slots=True)
class MirrorSettings:
    """How a landing zone becomes tables."""

    default_schema: str | None = None  # for tables outside any schema folder (LZ-018, LZ-019)
    metadata_required: bool = True  # LZ-040
    strict_text: bool = False  # LZ-200, LZ-206
    partitions: bool = False  # a sequence of files in each partition folder (LZ-059)
    limits: BatchLimits = field(default_factory=BatchLimits)
    row_checks: RowChecks = field(default_factory=RowChecks)
    strategy: Wanted = Wanted.AUTO  # by which way batches are applied
    template: TableTemplate = TableTemplate.FAST  # of tables that are made from now on
    compaction: bool = True  # files are compacted between batches (CF-156)
    poll_seconds: float = 0.1  # between two looks at the zone while changes come
    idle_seconds: float = 1.0  # the longest pause when nothing comes (LZ-027)
    look_seconds: float = 0.02  # in a pause, between two looks for the next cut, which ends it
    cleanup_seconds: float = 10.0  # applied files are moved aside in groups: it costs less
    retention: timedelta = timedelta(days=7)  # of the cleanup folder (LZ-245, LZ-252)
    drop_tables: bool = True  # whose folders were deleted (LZ-231)
    drop_after: timedelta = timedelta(minutes=1)  # as was seen elsewhere (LZ-240)
    max_tables: int | None = None  # beyond it no table is started (LZ-278)
    max_bytes_per_day: int | None = None  # landed bytes, after which it waits for the next day
    stops_at: frozenset[SchemaChangeKind] = UNPROVED  # changes of columns that stop a table
    vacuum: timedelta | None = timedelta(days=7)  # what older versions need alone goes (LZ-263)
    subscription_hold: timedelta = timedelta(days=14)  # vacuum waits for readers so long (CF-187)
    subscription_warning: float = 0.25  # part of the time left, below which status warns (CF-189)
