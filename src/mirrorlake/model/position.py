"""Positions of changes in the log of a source.

A point is a set of transactions: those at or before it. The points of a source are partially
ordered, because each of two sets may contain a transaction that the other lacks. So points are not
compared by size, but by whether one covers the other.

A position is a point and the ordinal of a change in the last transaction there. The point of a
transaction is the end of its commit record, never its start: the commit record of a transaction
just outside an exported snapshot can start exactly at the snapshot's point, so the transaction
would be skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, Self

_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")
_WHOLE = 2**62
"""Larger than every ordinal: the whole transaction."""


class LogPoint(Protocol):
    """A point in a log: the set of transactions at or before it.

    Covering is reflexive and transitive, and two points that cover each other are equal. `str`
    prints a point; only its source can parse it. The printed form is never empty and has no `@`.
    """

    def covers(self, other: LogPoint, /) -> bool:
        """Whether everything at or before `other` is at or before this point."""
        ...

    def join(self, other: LogPoint, /) -> LogPoint:
        """The least point that covers both."""
        ...

    def meet(self, other: LogPoint, /) -> LogPoint:
        """The greatest point that both cover."""
        ...


@dataclass(frozen=True, order=True, slots=True)
class LogNumber:
    """A point in a log that numbers its transactions; such points are totally ordered.

    Printed in decimal; subclasses may print it differently.
    """

    value: int

    @classmethod
    def parse(cls, text: str) -> Self:
        if not (text.isascii() and text.isdecimal()):
            raise ValueError(f"not a log position number: {text!r}")
        return cls(int(text))

    def __str__(self) -> str:
        return str(self.value)

    def covers(self, other: LogPoint, /) -> bool:
        assert isinstance(other, type(self))
        return self.value >= other.value

    def join(self, other: LogPoint, /) -> LogPoint:
        return self if self.covers(other) else other

    def meet(self, other: LogPoint, /) -> LogPoint:
        return other if self.covers(other) else self


@dataclass(frozen=True, order=True, slots=True)
class Lsn(LogNumber):
    """PostgreSQL log sequence number, in bytes from the start of the log."""

    @classmethod
    def parse(cls, text: str) -> Self:
        match = _LSN.fullmatch(text)
        if not match:
            raise ValueError(f"not a log sequence number: {text!r}")
        return cls(int(match[1], 16) << 32 | int(match[2], 16))

    def __str__(self) -> str:
        return f"{self.value >> 32:X}/{self.value & 0xFFFFFFFF:X}"


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a change: a set of changes, up to and including that change.

    point: covers the transaction of the change.
    ordinal: of the change in its transaction, from 1.
    of: the point of the transaction alone; None if it is `point` itself, as in totally ordered
        logs.
    partly: other transactions of which only the first changes are included, each with the ordinal
        of the last included change; empty in totally ordered logs.

    Printed as `0/4BFD4D8:17`, and with `of` and `partly` as `a:1-5,b:1-3@b:3:17@a:4:2`.
    """

    point: LogPoint
    ordinal: int
    of: LogPoint | None = None
    partly: tuple[tuple[LogPoint, int], ...] = ()

    def __post_init__(self) -> None:
        if self.of == self.point:
            object.__setattr__(self, "of", None)

    @classmethod
    def after(cls, point: LogPoint) -> Self:
        """The position after every change of every transaction that the point covers."""
        return cls(point, _WHOLE)

    @classmethod
    def parse(cls, text: str, point: Callable[[str], LogPoint]) -> Self:
        """Parse the printed form; `point` parses a point of this log. Raises ValueError."""
        first, *rest = text.split("@")
        try:
            if not rest:
                return cls(*_parsed(first, point))
            (of, ordinal), *partly = (_parsed(part, point) for part in rest)
            return cls(point(first), ordinal, of, tuple(partly))
        except ValueError as error:
            raise ValueError(f"not a position: {text!r}: {error}") from None

    def __str__(self) -> str:
        if self.of is None and not self.partly:
            return f"{self.point}:{self.ordinal}"
        return "@".join([str(self.point), *(f"{end}:{last}" for end, last in self._partial())])

    @property
    def is_whole(self) -> bool:
        """Whether all changes of every transaction that the point covers are included."""
        return self.ordinal == _WHOLE

    def passes(self, end: LogPoint) -> bool:
        """Whether the whole transaction that ends at `end` is at or before this position."""
        return self.reaches(end) == _WHOLE

    def reaches(self, end: LogPoint) -> int:
        """The ordinal of the last included change of the transaction that ends at `end`; 0 for
        none."""
        for partial, last in self._partial():
            if partial == end:
                return last
        return _WHOLE if self.point.covers(end) else 0

    def covers(self, other: Position) -> bool:
        """Whether every change at or before `other` is at or before this position."""
        return self.point.covers(other.point) and all(
            other.reaches(end) <= last for end, last in self._partial()
        )

    def _partial(self) -> tuple[tuple[LogPoint, int], ...]:
        """The transactions that may be included in part, with the last included ordinal."""
        return ((self.of or self.point, self.ordinal), *self.partly)


def _parsed(text: str, point: Callable[[str], LogPoint]) -> tuple[LogPoint, int]:
    end, separator, ordinal = text.rpartition(":")
    if not separator or not (ordinal.isascii() and ordinal.isdecimal()):
        raise ValueError("the ordinal is missing")
    return point(end), int(ordinal)
