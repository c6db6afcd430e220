"""Row markers and the names we reserve."""

from __future__ import annotations

from enum import IntEnum

MARKER_COLUMN = "__rowMarker__"
"""The column of the marker (LZ-069); never stored in the table (LZ-087)."""

UNCHANGED_COLUMN = "__mirrorlake_unchanged__"
"""Binary; bit i of byte i/8, least significant first, is data column i of the file: the source did
not send its value, because it did not change."""

FEED_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")
"""The columns of the change feed, which no table may have itself (CF-092)."""


class Marker(IntEnum):
    """What a row of a landed file does (LZ-075)."""

    INSERT = 0
    UPDATE = 1
    DELETE = 2
    UPSERT = 4
