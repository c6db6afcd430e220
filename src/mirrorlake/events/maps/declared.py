"""A type as a source prints it: a name, numbers in parentheses, and words behind them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

_NUMBER = re.compile(r"\s*(-?[0-9]{1,9})(?: char| byte)?\s*", re.IGNORECASE)


class DateProfile(StrEnum):
    """How the dates of MySQL are written: as genuine files have them, or as their own types."""

    COMPAT = "compat"
    UNIFIED = "unified"


@dataclass(frozen=True, slots=True)
class DeclaredType:
    """`DECIMAL(10,2) UNSIGNED` is the name `decimal unsigned` with the numbers 10 and 2.

    Parameters that are no numbers, as of an enumeration, are left out.
    """

    name: str
    numbers: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        head, _, rest = text.partition("(")
        parameters, _, tail = rest.rpartition(")")
        numbers = [_NUMBER.fullmatch(part) for part in parameters.split(",")]
        told = tuple(int(number[1]) for number in numbers if number)
        name = " ".join(f"{head} {tail}".lower().split())
        return cls(name, told if len(told) == len(numbers) else ())

    def without(self, *words: str) -> str:
        """The name without some words."""
        return " ".join(word for word in self.name.split() if word not in words)
