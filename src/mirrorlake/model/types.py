"""The types a mirrored column can have: the simple types of Delta (LZ-151).

Everything a source has beyond them becomes one of them on the way; the map from a source's types
belongs to the source, the one from Parquet to the landing zone.
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
    """A type by its Delta name, `decimal` with precision and scale.

    members: of a `struct`, with their names, or of an `array` its element. Only tables of events
    have a column of these two, with what is known of each event.
    """

    name: str
    precision: int = 0
    scale: int = 0
    members: tuple[tuple[str, DataType], ...] = ()

    SIMPLE: ClassVar[frozenset[str]] = frozenset(_SIMPLE.split())

    def __post_init__(self) -> None:
        if self.name == "decimal":
            if not (1 <= self.precision <= MAX_PRECISION and 0 <= self.scale <= self.precision):
                raise ValueError(f"no such decimal: ({self.precision},{self.scale})")
        elif self.name not in self.SIMPLE and not self.members:
            raise ValueError(f"no such type: {self.name}")

    @classmethod
    def parse(cls, text: str) -> Self:
        if match := _DECIMAL.fullmatch(text):
            return cls("decimal", int(match[1]), int(match[2]))
        return cls(text)

    @classmethod
    def of_delta(cls, told: str | Mapping[str, Any]) -> Self:
        """The type as the log has it. Raises ValueError, KeyError, TypeError."""
        if isinstance(told, str):
            return cls.parse(told)
        if told["type"] == "array":
            return cls("array", members=(("element", cls.of_delta(told["elementType"])),))
        fields = ((one["name"], cls.of_delta(one["type"])) for one in told["fields"])
        return cls("struct", members=tuple(fields))

    def as_delta(self) -> str | dict[str, Any]:
        """The type as the log has it."""
        if self.name == "array":
            element = self.members[0][1].as_delta()
            return {"type": "array", "elementType": element, "containsNull": True}
        if self.name == "struct":
            told = [
                {"name": name, "type": kind.as_delta(), "nullable": True, "metadata": {}}
                for name, kind in self.members
            ]
            return {"type": "struct", "fields": told}
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
    """Whether `new` is another type that has every value of `old`."""
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
