"""Row markers, reserved column names, and changes of columns in landed files."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import Self

import pyarrow as pa

MARKER_COLUMN = "__rowMarker__"
"""The column with the row marker (LZ-069); never stored in the table (LZ-087)."""

UNCHANGED_COLUMN = "__mirrorlake_unchanged__"
"""A binary mask: bit i of byte i/8, least significant first, is set if the source did not send the
value of data column i of the file because it was unchanged."""

FEED_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")
"""The columns of the change feed, which no table may have as its own (CF-092)."""


RESERVED_PREFIX = "_mirrorlake_"
"""Prefix of the columns that a mirror adds to those of the source; compared in any case."""

ROW_POSITION = "_mirrorlake_position"
ROW_TRANSACTION = "_mirrorlake_transaction"
ROW_COMMIT_TIME = "_mirrorlake_commit_time"
METADATA_COLUMNS = (ROW_POSITION, ROW_TRANSACTION, ROW_COMMIT_TIME)
"""The log position of the last change of a row, its transaction, and the commit time. They are not
part of the row: rows that differ only in them are equal."""

ROW_DELETED = "_mirrorlake_deleted"
"""In tables with soft deletes: whether the row is deleted in the source. Never NULL."""


class Marker(IntEnum):
    """The operation of a row of a landed file (LZ-075)."""

    INSERT = 0
    UPDATE = 1
    DELETE = 2
    UPSERT = 4


class SchemaChangeKind(StrEnum):
    """Kinds of schema changes in the source for which a project can set a policy."""

    COLUMN_ADDED = "column_added"
    COLUMN_DROPPED = "column_dropped"
    COLUMN_RENAMED = "column_renamed"
    TYPE_WIDENED = "type_widened"
    TYPE_CHANGED = "type_changed"
    KEY_CHANGED = "key_changed"
    TABLE_CREATED = "table_created"
    TABLE_RECREATED = "table_recreated"
    TABLE_RENAMED = "table_renamed"
    TABLE_TRUNCATED = "table_truncated"
    TABLE_DROPPED = "table_dropped"
    PARTITION_CHANGED = "partition_changed"
    PUBLICATION_CHANGED = "publication_changed"


_LISTS = ("dropped", "emptied", "gone")


@dataclass(frozen=True, slots=True)
class Alteration:
    """A change of columns; it precedes the first row with the new columns.

    copied: maps a column to the column from which existing rows take its values, by their names in
        the mirror. All copies are made at once, so two columns can exchange their values.
    filled: one row with the values that existing rows get in added columns. NULL overwrites what an
        earlier column of the same name left there.
    changes: each kind with a description, for messages; not stored.
    saved: maps a column that gets another type, which may not fit every former value, to the name
        under which its former values stay. The column itself gets the values that can be converted,
        until the table has been read again.
    dropped: columns that are removed from the table, whose names are never used again.
    emptied: columns that become NULL in existing rows, where the table has them.
    gone: columns that the source does not have any more, which a mirror may remove; their names may
        be used again.
    key: the new key columns; None if the key stays the same.
    whole_rows: there is no key, and a deletion names all columns of one of the rows that are equal.
    """

    copied: Mapping[str, str] = field(default_factory=dict)
    filled: pa.RecordBatch | None = None
    changes: tuple[tuple[SchemaChangeKind, str], ...] = field(default=(), compare=False)
    saved: Mapping[str, str] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    emptied: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    key: tuple[str, ...] | None = None
    whole_rows: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The affected columns."""
        filled = () if self.filled is None else self.filled.schema.names
        every = (*self.copied, *filled, *self.saved, *self.dropped, *self.emptied, *self.gone)
        return tuple(dict.fromkeys(every))

    @property
    def is_stored(self) -> bool:
        """Whether a file has to record the alteration."""
        return bool(self.columns) or self.key is not None

    @property
    def is_needed(self) -> bool:
        """Whether a mirror that does not know it would be wrong."""
        return replace(self, gone=()).is_stored

    def then(self, later: Alteration) -> Alteration:
        """This alteration and a later one, combined."""
        mine, filled = self._filled(), later._filled()
        copied, emptied = dict[str, str](), {*later.emptied}
        targets = {*self.copied, *mine, *self.emptied, *later.copied} - {*filled, *later.emptied}
        for name in sorted(targets):
            source = later.copied.get(name, name)
            if source in mine:
                filled[name] = mine[source]
            elif source in self.emptied:
                emptied.add(name)
            elif (former := self.copied.get(source, source)) != name:
                copied[name] = former
        return Alteration(
            copied,
            pa.RecordBatch.from_pydict(filled) if filled else None,
            (*self.changes, *later.changes),
            {**self._saved_until(later), **later.saved},
            (*self.dropped, *later.dropped),
            tuple(sorted(emptied)),
            tuple(dict.fromkeys((*self.gone, *later.gone))),
            self.key if later.key is None else later.key,
            self.whole_rows if later.key is None else later.whole_rows,
        )

    def _saved_until(self, later: Alteration) -> dict[str, str]:
        """`saved`, by the names that the columns have after a later alteration."""
        found = dict[str, str]()
        for name, saved in self.saved.items():
            renamed = [new for new, former in later.copied.items() if former == name]
            if renamed or name not in later.copied:  # otherwise another column has its name
                found |= dict.fromkeys(renamed or [name], saved)
        return found

    def _filled(self) -> dict[str, pa.Array]:
        found = self.filled
        return {} if found is None else dict(zip(found.schema.names, found.columns, strict=True))

    def encode(self) -> str:
        """As JSON, version 1: `copied`, and `filled` as an Arrow IPC stream in base64."""
        record: dict[str, object] = {"copied": dict(self.copied)}
        if self.saved:
            record["saved"] = dict(self.saved)
        for member in _LISTS:
            if names := getattr(self, member):
                record[member] = list(names)
        if self.key is not None:
            record |= {"key": list(self.key), "whole_rows": self.whole_rows}
        if self.filled is not None:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, self.filled.schema) as writer:
                writer.write_batch(self.filled)
            record["filled"] = base64.b64encode(sink.getvalue()).decode()
        return json.dumps(record, sort_keys=True)

    @classmethod
    def decode(cls, text: str) -> Self:
        """The inverse of `encode`. Raises ValueError."""
        try:
            record = {"saved": {}, **dict.fromkeys(_LISTS, ()), "key": None, **json.loads(text)}
            copied, saved = (
                {str(name): str(other) for name, other in record[member].items()}
                for member in ("copied", "saved")
            )
            dropped, emptied, gone = (tuple(map(str, record[member])) for member in _LISTS)
            key = None if record["key"] is None else tuple(map(str, record["key"]))
            is_whole = bool(record.get("whole_rows"))
            filled = None
            if "filled" in record:
                (filled,) = pa.ipc.open_stream(base64.b64decode(record["filled"], validate=True))
                filled.validate(full=True)
        except (pa.ArrowException, OSError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"an alteration of columns cannot be read: {error}") from error
        if filled is not None and filled.num_rows != 1:
            raise ValueError("an alteration of columns fills with more than one value")
        return cls(
            copied,
            filled,
            saved=saved,
            dropped=dropped,
            emptied=emptied,
            gone=gone,
            key=key,
            whole_rows=is_whole,
        )
