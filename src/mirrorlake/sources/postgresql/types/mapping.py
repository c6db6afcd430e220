"""Types of PostgreSQL and what they become (docs/reference/postgresql-types.md).

Every value comes as the text of its type's output function, so that a type nobody foresaw is
carried exactly. COPY sends the common types in their binary format instead (`binary_values`), and
pgoutput more of them (`sent_values`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from mirrorlake.model import types
from mirrorlake.model.types import DataType


class Form(Enum):
    """How the text of a value is read."""

    TEXT = "text"  # as it is
    BOOLEAN = "boolean"  # t, f
    NUMBER = "number"  # digits that Arrow reads: integers and floating point
    DECIMAL = "decimal"
    DATE = "date"
    TIMESTAMP = "timestamp"  # without a zone: read as UTC (LZ-152)
    INSTANT = "instant"  # with +00 at the end
    BYTEA = "bytea"  # \x and hex digits
    ARRAY = "array"  # {a,b}; becomes JSON


class Element(Enum):
    """How an element of an array is written in JSON."""

    NUMBER = "number"
    BOOLEAN = "boolean"
    JSON = "json"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class PgType:
    """A column's type: its name in the source, what it becomes, and how its text is read. text: the
    oid of the type that writes the text, if the mirror has that as it is, the same for types that
    write the same bytes alike; 0 where it has something else, or that is not known. sent: the oid
    of a type with the same binary format, of an array that of its elements; 0 where that is not
    known."""

    name: str
    type: DataType
    form: Form
    element: Element = Element.TEXT
    text: int = 0
    sent: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return self.name

    @property
    def is_ordered(self) -> bool:
        """Whether a query can have the order of the values as they are in the mirror."""
        return self.form is not Form.ARRAY


Resolve = Callable[[int, int], PgType]
"""From the oid and modifier of a type to its type in the mirror; may query the database."""


@dataclass(frozen=True, slots=True)
class TypeRow:
    """A row of pg_type, as far as it matters. is_text: values are written and sent as those of
    `text`."""

    oid: int
    name: str
    kind: str  # typtype: b base, d domain, e enum, c composite, r range, m multirange
    category: str
    base: int  # typbasetype of a domain
    modifier: int  # typtypmod of a domain
    element: int  # typelem
    delimiter: str
    is_text: bool = False

    @property
    def is_builtin(self) -> bool:
        """Of the server itself; a type of an application may have the same name."""
        return self.oid < FIRST_OF_APPLICATIONS


FIRST_OF_APPLICATIONS = 16384
_VECTORS = {"int2vector", "oidvector"}  # arrays in the catalog, but written as `1 2 3`
_PLAIN: Mapping[str, tuple[DataType, Form]] = {
    "bool": (types.BOOLEAN, Form.BOOLEAN),
    "int2": (types.SHORT, Form.NUMBER),
    "int4": (types.INTEGER, Form.NUMBER),
    "int8": (types.LONG, Form.NUMBER),
    "oid": (types.LONG, Form.NUMBER),
    "xid": (types.LONG, Form.NUMBER),
    "cid": (types.LONG, Form.NUMBER),
    "float4": (types.FLOAT, Form.NUMBER),
    "float8": (types.DOUBLE, Form.NUMBER),
    "date": (types.DATE, Form.DATE),
    "timestamp": (types.TIMESTAMP, Form.TIMESTAMP),
    "timestamptz": (types.TIMESTAMP, Form.INSTANT),
    "bytea": (types.BINARY, Form.BYTEA),
}
_TEXT, _BIT = 25, 1560
_ALIKE: Mapping[str, int] = {
    **dict.fromkeys(("text", "varchar", "bpchar"), _TEXT),
    **dict.fromkeys(("bit", "varbit"), _BIT),
}
"""Types of the server that write the same bytes as the same text, and by which that is known."""
_CITEXT = "citext"  # of an extension, which writes its bytes as `text` does
_ELEMENTS: Mapping[str, Element] = {
    **dict.fromkeys(("int2", "int4", "int8", "oid", "float4", "float8", "numeric"), Element.NUMBER),
    "bool": Element.BOOLEAN,
    "json": Element.JSON,
    "jsonb": Element.JSON,
}


class Types:
    """The types of one database, by oid."""

    def __init__(self, rows: Mapping[int, TypeRow]) -> None:
        self._rows = rows

    def __contains__(self, oid: int) -> bool:
        return oid in self._rows

    @property
    def builtin(self) -> Mapping[int, TypeRow]:
        """Those of the server itself."""
        return {oid: row for oid, row in self._rows.items() if row.is_builtin}

    def resolve(self, oid: int, modifier: int) -> PgType:
        """What a column of this type becomes; text for a type that is not known any more."""
        row = self._rows.get(oid)
        if row is None:
            return PgType(f"type {oid}", types.STRING, Form.TEXT)
        if row.kind == "d":
            base = self.resolve(row.base, row.modifier if modifier == -1 else modifier)
            return replace(base, name=f"{row.name} ({base.name})")
        if row.category == "A" and row.element and row.name not in _VECTORS:
            return self._array(row)
        if not row.is_builtin:
            text = _TEXT if row.name == _CITEXT else oid
            return PgType(row.name, types.STRING, Form.TEXT, text=text, sent=_sent(row))
        if row.name == "numeric":
            return replace(_numeric(modifier), sent=oid)
        data_type, form = _PLAIN.get(row.name, (types.STRING, Form.TEXT))
        text = _ALIKE.get(row.name, oid) if form is Form.TEXT else 0
        return PgType(row.name, data_type, form, text=text, sent=oid)

    def _array(self, row: TypeRow) -> PgType:
        element = self._rows.get(row.element)
        while element is not None and element.kind == "d":
            element = self._rows.get(element.base)
        if element is None or element.delimiter != ",":
            return PgType(row.name, types.STRING, Form.TEXT)
        kind = _ELEMENTS.get(element.name, Element.TEXT) if element.is_builtin else Element.TEXT
        return PgType(f"{element.name}[]", types.STRING, Form.ARRAY, kind, sent=_sent(element))


def _sent(row: TypeRow) -> int:
    """As in `PgType`, of a type that is no domain."""
    if row.kind == "e" or row.is_text:
        return _TEXT
    return row.oid if row.is_builtin and row.kind == "b" and row.category != "A" else 0


def _numeric(modifier: int) -> PgType:
    """numeric(p,s), exactly: a decimal when it fits one, else text."""
    if modifier < 4:
        return PgType("numeric", types.STRING, Form.TEXT)
    precision, scale = (modifier - 4) >> 16 & 0xFFFF, (modifier - 4) & 0x7FF
    scale -= 2048 if scale >= 1024 else 0  # eleven bits, signed
    name = f"numeric({precision},{scale})"
    # A negative scale rounds to the left of the point, one beyond the precision leads with zeros.
    digits = max(precision - min(scale, 0), scale)
    if digits > types.MAX_PRECISION:
        return PgType(name, types.STRING, Form.TEXT)
    return PgType(name, types.decimal(digits, max(scale, 0)), Form.DECIMAL)
