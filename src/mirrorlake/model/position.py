"""Where a change stands in the log of its source.

A position is (end of the transaction in the log, ordinal of the change in it): a total order per
stream. It is the end of the commit record, never its start: a transaction just outside an exported
snapshot can start its commit record exactly at the snapshot's point, and would be skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import total_ordering
from typing import Any, Protocol, Self

_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


class LogPoint(Protocol):
    """A place in a log: ordered, printable, parsed by the source that printed it."""

    def __lt__(self, other: Any, /) -> bool: ...
    def __le__(self, other: Any, /) -> bool: ...
    def __gt__(self, other: Any, /) -> bool: ...
    def __ge__(self, other: Any, /) -> bool: ...


@dataclass(frozen=True, order=True, slots=True)
class Lsn:
    """PostgreSQL log sequence number, in bytes from the start of the log."""

    value: int

    @classmethod
    def parse(cls, text: str) -> Self:
        match = _LSN.fullmatch(text)
        if not match:
            raise ValueError(f"not a log sequence number: {text!r}")
        return cls(int(match[1], 16) << 32 | int(match[2], 16))

    def __str__(self) -> str:
        return f"{self.value >> 32:X}/{self.value & 0xFFFFFFFF:X}"


@total_ordering
@dataclass(frozen=True, slots=True)
class Position:
    """A change: the end of its transaction, and its ordinal in it. Printed as `0/4BFD4D8:17`.

    Ordinals count from 1. `after` is the position behind a whole transaction.
    """

    end: LogPoint
    ordinal: int

    @classmethod
    def after(cls, end: LogPoint) -> Self:
        """Behind every change of the transaction that ends at `end`."""
        return cls(end, 2**62)

    @classmethod
    def parse(cls, text: str, point: Callable[[str], LogPoint] = Lsn.parse) -> Self:
        """Read the printed form; `point` parses the part of the log."""
        end, separator, ordinal = text.rpartition(":")
        if not separator or not ordinal.isdecimal():
            raise ValueError(f"not a position: {text!r}")
        return cls(point(end), int(ordinal))

    def __str__(self) -> str:
        return f"{self.end}:{self.ordinal}"

    def __lt__(self, other: Position) -> bool:
        return (self.end, self.ordinal) < (other.end, other.ordinal)
