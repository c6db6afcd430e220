"""The reasons why a feed cannot be read, one for each condition of Delta and Spark (CF-166)."""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType


class FeedReason(StrEnum):
    """The values of `FeedError.reason`."""

    NOT_RECORDED = "not_recorded"
    START_MISSING = "start_missing"
    BEYOND_LATEST = "beyond_latest"
    EXPIRED = "expired"
    INVALID_RANGE = "invalid_range"
    INVALID_ARGUMENT = "invalid_argument"
    SCHEMA_CHANGED = "schema_changed"
    RESTART_NEEDED = "restart_needed"
    RESERVED_COLUMN = "reserved_column"
    OTHER = "other"


NOT_FOUND = "DELTA_VERSION_NOT_FOUND"
"""Before the oldest version or after the latest (CF-168)."""

_CONDITIONS = {
    FeedReason.NOT_RECORDED: ["DELTA_MISSING_CHANGE_DATA"],
    FeedReason.START_MISSING: ["DELTA_NO_START_FOR_CDC_READ"],
    FeedReason.BEYOND_LATEST: [
        "DELTA_CDC_START_VERSION_AFTER_LATEST",
        "DELTA_TIMESTAMP_GREATER_THAN_COMMIT",
    ],
    FeedReason.EXPIRED: [
        "DELTA_LOG_FILE_NOT_FOUND",
        "DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION_DURATION",
        "FAILED_READ_FILE.FILE_NOT_EXIST",
        "DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE",
        "DELTA_MISSING_FILES_UNEXPECTED_VERSION",
        "DELTA_STREAMING_TRAILING_COMMIT_MISSING",
    ],
    FeedReason.INVALID_RANGE: ["DELTA_INVALID_CDC_RANGE"],
    FeedReason.INVALID_ARGUMENT: [
        "DELTA_TIMESTAMP_INVALID",
        "DELTA_VERSION_INVALID",
        "DELTA_MULTIPLE_CDC_BOUNDARY",
        "DELTA_STARTING_VERSION_AND_TIMESTAMP_BOTH_SET",
        "DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS",
        "INCORRECT_NUMBER_OF_ARGUMENTS",
        "DELTA_CDC_NON_CONSTANT_ARGUMENT",
        "DELTA_CDC_READ_NULL_RANGE_BOUNDARY",
    ],
    FeedReason.SCHEMA_CHANGED: [
        "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE",
        "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA",
        "DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE_USE_SCHEMA_LOG",
    ],
    FeedReason.RESTART_NEEDED: ["DELTA_STREAMING_METADATA_EVOLUTION"],
    FeedReason.RESERVED_COLUMN: [
        "DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS",
        "RESERVED_CDC_COLUMNS_ON_WRITE",
    ],
}

REASONS = MappingProxyType({name: why for why, names in _CONDITIONS.items() for name in names})
"""The reason by name of the condition."""


def reason_of(condition: str, *, is_before_oldest: bool = False) -> FeedReason:
    """The reason for a condition; `other` for an unknown one."""
    if condition == NOT_FOUND:
        return FeedReason.EXPIRED if is_before_oldest else FeedReason.BEYOND_LATEST
    return REASONS.get(condition, FeedReason.OTHER)


HINTS = MappingProxyType(
    {
        FeedReason.NOT_RECORDED: "Start at a readable version, or pass on_gap='report'. "
        "delta.enableChangeDataFeed = true records the changes of later versions.",
        FeedReason.START_MISSING: "Pass one of from_version, from_time, from_position, "
        "from_source_time and from_beginning.",
        FeedReason.BEYOND_LATEST: "Wait until the table has it, or pass beyond_latest='clip'.",
        FeedReason.EXPIRED: "Start at a readable version, or pass on_gap='report'. "
        "delta.deletedFileRetentionDuration and delta.logRetentionDuration say how long changes "
        "are kept.",
        FeedReason.INVALID_RANGE: "Swap the bounds: both are inclusive, and the start comes first.",
        FeedReason.INVALID_ARGUMENT: "docs/how-to/read-the-changes.md lists the arguments.",
        FeedReason.SCHEMA_CHANGED: "Pass on_schema_change='pieces' and read each range by itself, "
        "or choose a range without the change.",
        FeedReason.RESTART_NEEDED: "Start the stream again.",
        FeedReason.RESERVED_COLUMN: "Rename the column, or switch the feed of this table off.",
        FeedReason.OTHER: "The cause has the message of the reader.",
    }
)
"""The default hint for each reason."""
