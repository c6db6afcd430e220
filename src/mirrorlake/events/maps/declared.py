"""Parses a type as a source prints it: a name, numbers in parentheses, and following words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

_NUMBER = re.compile(r"\s*(-?[0-9]{1,9})(?: char| byte)?\s*", re.IGNORECASE)


class DateProfile(StrEnum):
    """How the dates of MySQL are written: COMPAT as in genuine files, UNIFIED with their own
    types."""

    COMPAT = "compat"
    UNIFIED = "unified"


@dataclass(frozen=True, slots=True)
class DeclaredType:
    """`DECIMAL(10,2) UNSIGNED` is the name `decimal unsigned` with the numbers 10 and 2.

    Other parameters, as of an enumeration, are ignored.
    """

    name: str
    numbers: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        head, _, rest = text.partition("(")
        parameters, _, tail = rest.rpartition(")")
        numbers = [_NUMBER.fullmatch(part) for part in parameters.split(",")]
        arguments = tuple(int(number[1]) for number in numbers if number)
        name = " ".join(f"{head} {tail}".lower().split())
        return cls(name, arguments if len(arguments) == len(numbers) else ())

    def without(self, *words: str) -> str:
        """The name without these words."""
        return " ".join(word for word in self.name.split() if word not in words)
