"""What files say of changes: row markers, the names we reserve, what became of columns."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Self

import pyarrow as pa

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


class SchemaChangeKind(StrEnum):
    """Kinds of changes of a table at its source that a project may decide about."""

    COLUMN_ADDED = "column_added"
    COLUMN_DROPPED = "column_dropped"
    COLUMN_RENAMED = "column_renamed"
    TYPE_WIDENED = "type_widened"
    TABLE_RECREATED = "table_recreated"
    PARTITION_CHANGED = "partition_changed"


UNPROVED = frozenset({SchemaChangeKind.TYPE_WIDENED})
"""What stops a table unless the project says otherwise: the log does not tell a type that was
widened from one that was changed by an expression (`USING`)."""


@dataclass(frozen=True, slots=True)
class Alteration:
    """A change of columns, which stands before the row that first has them.

    copied: for a column the one whose values its earlier rows get, both by the names that they have
    in the mirror; all copies are made at once, so two columns may exchange their values. filled:
    one row, with the values that earlier rows get in columns that were added; NULL where these may
    have something else from an earlier column of the name. changes: each kind, and what happened,
    in words; only told, never stored.
    """

    copied: Mapping[str, str] = field(default_factory=dict)
    filled: pa.RecordBatch | None = None
    changes: tuple[tuple[SchemaChangeKind, str], ...] = field(default=(), compare=False)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that get values."""
        filled = () if self.filled is None else self.filled.schema.names
        return (*self.copied, *filled)

    def encode(self) -> str:
        """As JSON, version 1: `copied`, and `filled` as a stream of Arrow's in base 64."""
        record: dict[str, object] = {"copied": dict(self.copied)}
        if self.filled is not None:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, self.filled.schema) as writer:
                writer.write_batch(self.filled)
            record["filled"] = base64.b64encode(sink.getvalue()).decode()
        return json.dumps(record, sort_keys=True)

    @classmethod
    def decode(cls, text: str) -> Self:
        """Read it again. Raises ValueError."""
        try:
            record = json.loads(text)
            copied = {str(name): str(source) for name, source in record["copied"].items()}
            filled = None
            if "filled" in record:
                (filled,) = pa.ipc.open_stream(base64.b64decode(record["filled"], validate=True))
                filled.validate(full=True)
        except (pa.ArrowException, OSError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"an alteration of columns cannot be read: {error}") from error
        if filled is not None and filled.num_rows != 1:
            raise ValueError("an alteration of columns fills with more than one value")
        return cls(copied, filled)
