"""The types of mirrored columns: the simple types of Delta (LZ-151).

Each source maps its other types to these, and the landing zone maps the types of Parquet.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

MAX_PRECISION = 38
_SIMPLE = "boolean byte short integer long float double string binary date timestamp"
_DECIMAL = re.compile(r"decimal\((\d{1,2}),(\d{1,2})\)")


@dataclass(frozen=True, slots=True)
class DataType:
    """A type with its Delta name; precision and scale are set for `decimal` only.

    members: the named fields of a `struct`, or the element of an `array`. Only tables that are
    built from events have such columns, for the metadata of each event.
    """

    name: str
    precision: int = 0
    scale: int = 0
    members: tuple[tuple[str, DataType], ...] = ()

    SIMPLE: ClassVar[frozenset[str]] = frozenset(_SIMPLE.split())

    def __post_init__(self) -> None:
        if self.name == "decimal":
            if not (1 <= self.precision <= MAX_PRECISION and 0 <= self.scale <= self.precision):
                raise ValueError(f"invalid decimal: ({self.precision},{self.scale})")
        elif self.name not in self.SIMPLE and not self.members:
            raise ValueError(f"unknown type: {self.name}")

    @classmethod
    def parse(cls, text: str) -> Self:
        if match := _DECIMAL.fullmatch(text):
            return cls("decimal", int(match[1]), int(match[2]))
        return cls(text)

    @classmethod
    def of_delta(cls, record: str | Mapping[str, Any]) -> Self:
        """Read a type from a schema in the Delta log. Raises ValueError, KeyError, TypeError."""
        if isinstance(record, str):
            return cls.parse(record)
        if record["type"] == "array":
            return cls("array", members=(("element", cls.of_delta(record["elementType"])),))
        fields = ((field["name"], cls.of_delta(field["type"])) for field in record["fields"])
        return cls("struct", members=tuple(fields))

    def as_delta(self) -> str | dict[str, Any]:
        """The type in the schema of a Delta log."""
        if self.name == "array":
            element = self.members[0][1].as_delta()
            return {"type": "array", "elementType": element, "containsNull": True}
        if self.name == "struct":
            fields = [
                {"name": name, "type": kind.as_delta(), "nullable": True, "metadata": {}}
                for name, kind in self.members
            ]
            return {"type": "struct", "fields": fields}
        return str(self)

    def __str__(self) -> str:
        if self.members:
            return f"{self.name}<{', '.join(f'{name}: {kind}' for name, kind in self.members)}>"
        return f"decimal({self.precision},{self.scale})" if self.name == "decimal" else self.name


BOOLEAN = DataType("boolean")
BYTE = DataType("byte")
SHORT = DataType("short")
INTEGER = DataType("integer")
LONG = DataType("long")
FLOAT = DataType("float")
DOUBLE = DataType("double")
STRING = DataType("string")
BINARY = DataType("binary")
DATE = DataType("date")
TIMESTAMP = DataType("timestamp")


_WIDER = {
    "byte": {"short", "integer", "long", "double"},
    "short": {"integer", "long", "double"},
    "integer": {"long", "double"},
    "float": {"double"},
}
_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}


def is_wider(new: DataType, old: DataType) -> bool:
    """Whether `new` is a different type that can represent every value of `old`."""
    if new.name != "decimal":
        return new.name in _WIDER.get(old.name, ())
    digits = _DIGITS.get(old.name, old.precision - old.scale)
    is_number = old.name in _DIGITS or old.name == "decimal"
    return (
        is_number and new != old and new.scale >= old.scale and new.precision - new.scale >= digits
    )


def decimal(precision: int, scale: int) -> DataType:
    return DataType("decimal", precision, scale)


def struct(**members: DataType) -> DataType:
    return DataType("struct", members=tuple(members.items()))


def array(element: DataType) -> DataType:
    return DataType("array", members=(("element", element),))
