"""The unified types of event columns (ST-112 to ST-134), to which every source type is mapped."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

_PRINTED = re.compile(r"(?P<kind>[A-Z_]+)(?:\((?P<inside>.+)\))?")


class UnifiedKind(StrEnum):
    """The names of the unified types; ARRAY is the recursive record of PostgreSQL arrays."""

    BOOLEAN = "BOOLEAN"
    BYTES = "BYTES"
    DATE = "DATE"
    DATETIME = "DATETIME"
    DECIMAL = "DECIMAL"
    DOUBLE = "DOUBLE"
    FLOAT = "FLOAT"
    GEOMETRY = "GEOMETRY"
    INTEGER = "INTEGER"
    INTERVAL = "INTERVAL"
    JSON = "JSON"
    LONG = "LONG"
    NUMBER = "NUMBER"
    STRING = "STRING"
    TIME = "TIME"
    TIME_INTERVAL = "TIME_INTERVAL"
    TIMESTAMP = "TIMESTAMP"
    TIMESTAMP_WITH_TIME_ZONE = "TIMESTAMP_WITH_TIME_ZONE"
    TIME_WITH_TIME_ZONE = "TIME_WITH_TIME_ZONE"
    UNSUPPORTED = "UNSUPPORTED"
    VARCHAR = "VARCHAR"
    ARRAY = "ARRAY"


@dataclass(frozen=True, slots=True)
class UnifiedType:
    """A unified type. precision, scale: of DECIMAL; length: of VARCHAR; element: of ARRAY."""

    kind: UnifiedKind
    precision: int = 0
    scale: int = 0
    length: int = 0
    element: UnifiedType | None = None

    def __post_init__(self) -> None:
        if self.kind is UnifiedKind.DECIMAL and not 0 <= self.scale <= self.precision != 0:
            raise ValueError(f"no such decimal: ({self.precision},{self.scale})")
        if self.kind is UnifiedKind.VARCHAR and self.length < 1:
            raise ValueError(f"no such text: at most {self.length} characters")
        if (self.kind is UnifiedKind.ARRAY) != (self.element is not None):
            raise ValueError("an array, and nothing else, has elements")

    @classmethod
    def parse(cls, text: str) -> UnifiedType:
        """Parse the output of `str`. Raises ValueError."""
        printed = _PRINTED.fullmatch(text)
        kind = UnifiedKind(printed["kind"] if printed else text)
        inside = (printed and printed["inside"]) or ""
        match kind:
            case UnifiedKind.DECIMAL:
                precision, scale = map(int, inside.split(","))
                return cls(kind, precision, scale)
            case UnifiedKind.VARCHAR:
                return cls(kind, length=int(inside))
            case UnifiedKind.ARRAY:
                return cls(kind, element=cls.parse(inside))
            case _:
                return cls(kind)

    def __str__(self) -> str:
        match self.kind:
            case UnifiedKind.DECIMAL:
                return f"DECIMAL({self.precision},{self.scale})"
            case UnifiedKind.VARCHAR:
                return f"VARCHAR({self.length})"
            case UnifiedKind.ARRAY:
                return f"ARRAY({self.element})"
            case _:
                return str(self.kind)


@dataclass(frozen=True, slots=True)
class EventColumn:
    """A column of the payload: its name in the source, and its unified type."""

    name: str
    type: UnifiedType


BOOLEAN = UnifiedType(UnifiedKind.BOOLEAN)
BYTES = UnifiedType(UnifiedKind.BYTES)
DATE = UnifiedType(UnifiedKind.DATE)
DATETIME = UnifiedType(UnifiedKind.DATETIME)
DOUBLE = UnifiedType(UnifiedKind.DOUBLE)
FLOAT = UnifiedType(UnifiedKind.FLOAT)
GEOMETRY = UnifiedType(UnifiedKind.GEOMETRY)
INTEGER = UnifiedType(UnifiedKind.INTEGER)
INTERVAL = UnifiedType(UnifiedKind.INTERVAL)
JSON = UnifiedType(UnifiedKind.JSON)
LONG = UnifiedType(UnifiedKind.LONG)
NUMBER = UnifiedType(UnifiedKind.NUMBER)
STRING = UnifiedType(UnifiedKind.STRING)
TIME = UnifiedType(UnifiedKind.TIME)
TIME_INTERVAL = UnifiedType(UnifiedKind.TIME_INTERVAL)
TIMESTAMP = UnifiedType(UnifiedKind.TIMESTAMP)
TIMESTAMP_WITH_TIME_ZONE = UnifiedType(UnifiedKind.TIMESTAMP_WITH_TIME_ZONE)
TIME_WITH_TIME_ZONE = UnifiedType(UnifiedKind.TIME_WITH_TIME_ZONE)
UNSUPPORTED = UnifiedType(UnifiedKind.UNSUPPORTED)

POSITIVE_INFINITY = 9223372036825200000
NEGATIVE_INFINITY = -9223372036832400000
"""PostgreSQL's timestamps `infinity` and `-infinity`, in microseconds (ST-157)."""


def decimal(precision: int, scale: int) -> UnifiedType:
    return UnifiedType(UnifiedKind.DECIMAL, precision, scale)


def varchar(length: int) -> UnifiedType:
    return UnifiedType(UnifiedKind.VARCHAR, length=length)


def array(element: UnifiedType) -> UnifiedType:
    return UnifiedType(UnifiedKind.ARRAY, element=element)
