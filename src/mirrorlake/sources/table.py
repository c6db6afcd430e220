"""A table of a source: its selection and description."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mirrorlake.errors import TableError
from mirrorlake.model.table import Schema, TableId

KnownTables = Mapping[TableId, Mapping[str, Any]]
"""Tables with their `SourceTable.known`."""

Counted = Mapping[str, tuple[int, int]]
"""Numbers of updates and deletions, by the identity of each part of a table that has any."""


@dataclass(frozen=True, slots=True)
class Attached:
    """A thing in the source that changes no row of a table: a default, a constraint.

    label: what it is, for a person; state: changes when it does; column: the number of the column
    that it is of, negative for one that is not mirrored, 0 for none; type: the number of the type
    that it is of, which may come and go with a column, 0 for none.
    """

    label: str
    state: str
    column: int = 0
    type: int = 0


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A selected table of the source.

    key: the columns that identify its rows, empty without a key.
    whole_rows: the table has no key, and a deletion contains all columns of one of the equal rows.
    append_only: why updates and deletions cannot be captured, empty when they can.
    refused: why the table cannot be captured at all, None when it can.
    identity: distinguishes this table from a later one of the same name.
    source_types: the source's own type of each column, printable. `is_ordered` of one, if it has
        that, is False where its values have another order in the mirror.
    counted: what the source's statistics say, empty where it has none.
    selection: the selected columns and rows, as plain data.
    known: plain data by which the source recognises the table and its columns at the next start.
        Loading the table adds `loaded`, the point of the snapshot as text, if there is such data.
    attached: what it has that changes no row, by an identity that outlives its name.
    renamed: its name in the source, if the table was renamed after it was loaded.
    """

    table: TableId
    schema: Schema
    key: tuple[str, ...]
    identity: str
    source_types: Mapping[str, Any] = field(default_factory=dict)
    append_only: str = ""
    whole_rows: bool = False
    refused: TableError | None = None
    rows: int | None = None
    size: int = 0
    counted: Counted = field(default_factory=dict, compare=False)
    selection: Mapping[str, Any] = field(default_factory=dict)
    known: Mapping[str, Any] = field(default_factory=dict, compare=False)
    attached: Mapping[str, Attached] = field(default_factory=dict, compare=False)
    renamed: TableId | None = field(default=None, compare=False)

    @property
    def in_source(self) -> TableId:
        """The name of the table in the source."""
        return self.renamed or self.table


@dataclass(frozen=True, slots=True)
class SnapshotPart:
    """A part of a table that is read in one go. Only its source interprets `range`.

    is_described: reading it raises TableAltered where the columns are other ones than the stream
    has described, and SourceUnavailable where the table was altered since the snapshot, as
    `Snapshot.ordered` does.
    """

    table: SourceTable
    range: Any = None
    is_described: bool = False
