"""The format of a table's delimited text (section 9 of the specification).

`_metadata.json` describes it in `SchemaDefinition`, `FileFormat`, `FileExtension` and
`FileFormatTypeProperties`; missing members have the defaults below.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mirrorlake.model import types
from mirrorlake.model.change import MARKER_COLUMN, UNCHANGED_COLUMN
from mirrorlake.model.types import DataType

DECIMAL = "Decimal"
TYPES: Mapping[str, DataType] = {
    "Double": types.DOUBLE,
    "Single": types.FLOAT,
    "Int16": types.SHORT,
    "Int32": types.INTEGER,
    "Int64": types.LONG,
    "DateTime": types.TIMESTAMP,
    "IDate": types.DATE,
    "ITime": types.STRING,
    "String": types.STRING,
    "Boolean": types.BOOLEAN,
    "ByteArray": types.BINARY,
}
"""The declared types and their Delta types (LZ-175 to LZ-186)."""

TYPE_NAMES: Mapping[str, str] = {name.lower(): name for name in (*TYPES, DECIMAL)}
"""By lower case, because type names are matched in any case (LZ-188)."""

RESERVED = frozenset({MARKER_COLUMN.casefold(), UNCHANGED_COLUMN.casefold()})
"""Names of columns, without regard to case, that a schema may declare and that are not data
(LZ-197)."""

ROW_SEPARATORS = ("\r\n", "\n", "\r")
COLUMN_SEPARATORS = (",", ";", "|", "\t")
QUOTES = ('"', "'", "")
ESCAPES = ("\\", "/", '"', "")


@dataclass(frozen=True, slots=True)
class DeclaredColumn:
    """An entry of `SchemaDefinition.Columns` (LZ-172).

    type: one of the names of LZ-175 to LZ-187 in their own spelling; nullable: None if the entry
    has no `IsNullable` (LZ-206); precision, scale: of a `Decimal` (LZ-187).
    """

    name: str
    type: str
    nullable: bool | None = None
    precision: int | None = None
    scale: int | None = None

    @property
    def data_type(self) -> DataType:
        """The type of the column in the table."""
        if self.type == DECIMAL:
            return types.decimal(self.precision or 0, self.scale or 0)
        return TYPES[self.type]


@dataclass(frozen=True, slots=True)
class TextFormat:
    """The format of the delimited-text files of a table.

    columns: the declared schema, None if there is none (LZ-192); extension: without the leading dot
    and in lower case (LZ-189); quote, escape: a character, or empty to disable it (LZ-202); null:
    the text that means NULL, None if there is none (LZ-203). strict: our own setting, not a member
    of the metadata; it rejects line endings other than the declared ones, and NULL in columns
    without `IsNullable` (LZ-200, LZ-206).
    """

    columns: tuple[DeclaredColumn, ...] | None = None
    extension: str = "csv"
    header: bool = True
    row_separator: str = "\r\n"
    column_separator: str = ","
    quote: str = '"'
    escape: str = "\\"
    null: str | None = None
    encoding: str = "UTF-8"
    strict: bool = False
