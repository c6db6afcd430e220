"""A table of a source, as it is selected and described."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mirrorlake.errors import TableError
from mirrorlake.model.table import Schema, TableId

KnownTables = Mapping[TableId, Mapping[str, Any]]
"""Tables with their `SourceTable.known`."""


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A selected table of the source.

    key: the columns that tell its rows apart, empty when it has none; whole_rows: it has none, and
    a deletion names all columns of one of the rows that are equal; append_only: why updates and
    deletions cannot be captured, empty when they can; refused: why it cannot be captured at all,
    None when it can; identity: what tells this table from a later
    one of the same name; source_types: for each column what its source says of its type, printable;
    counted: updates and deletions that the source has counted of it, 0 where it does not count;
    selection: what was selected of it, as plain data; known: by what the source recognises it and
    its columns, plain data that is given back at the next start; where there is any, whoever loads
    the table adds `loaded`, the point of the snapshot as text.
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
    counted: tuple[int, int] = field(default=(0, 0), compare=False)
    selection: Mapping[str, Any] = field(default_factory=dict)
    known: Mapping[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class SnapshotPart:
    """A part of a table that is read in one go. `range` means something to its source only."""

    table: SourceTable
    range: Any = None
