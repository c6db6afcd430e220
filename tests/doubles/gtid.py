"""Points of a log that several servers write: sets of transactions, as MySQL's GTID sets."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Self

from mirrorlake.model.position import LogPoint
from mirrorlake.sources.memory.database import Numbers

Interval = tuple[int, int]
"""The first and the last number of a run of transactions."""

_SERVER = re.compile(r"\s*([0-9A-Za-z_-]+)((?::[1-9][0-9]*(?:-[1-9][0-9]*)?)+)\s*")
_EMPTY = "-"


@dataclass(frozen=True, slots=True)
class GtidSet:
    """Transactions by the server that committed them first, and their numbers there.

    servers: by name, each with its runs, ascending and apart. Printed as `a:1-5:7,b:3`, nothing as
    `-`. Servers commit the transactions of others in an order of their own, so of two points of one
    stream neither may cover the other.
    """

    servers: tuple[tuple[str, tuple[Interval, ...]], ...] = ()

    @classmethod
    def of(cls, runs: Mapping[str, Iterable[Interval]]) -> Self:
        """The set of these runs, in any order; they may overlap."""
        merged = {server: tuple(_merged(found)) for server, found in runs.items()}
        return cls(tuple(sorted((server, found) for server, found in merged.items() if found)))

    @classmethod
    def parse(cls, text: str) -> Self:
        runs: dict[str, list[Interval]] = {}
        for part in text.split(",") if text != _EMPTY else ():
            match = _SERVER.fullmatch(part)
            if not match:
                raise ValueError(f"not a set of transactions: {text!r}")
            for run in match[2][1:].split(":"):
                first, _, last = run.partition("-")
                if int(last or first) < int(first):
                    raise ValueError(f"a run that ends before it begins: {text!r}")
                runs.setdefault(match[1], []).append((int(first), int(last or first)))
        return cls.of(runs)

    def __str__(self) -> str:
        return ",".join(_printed(server, runs) for server, runs in self.servers) or _EMPTY

    def covers(self, other: LogPoint, /) -> bool:
        return self.meet(other) == other

    def join(self, other: LogPoint, /) -> GtidSet:
        mine, theirs = self._runs(self), self._runs(other)
        return self.of({s: (*mine.get(s, ()), *theirs.get(s, ())) for s in {**mine, **theirs}})

    def meet(self, other: LogPoint, /) -> GtidSet:
        theirs = self._runs(other)
        return self.of(
            {
                server: [
                    (max(a, first), min(b, last))
                    for a, b in runs
                    for first, last in theirs.get(server, ())
                    if max(a, first) <= min(b, last)
                ]
                for server, runs in self.servers
            }
        )

    @staticmethod
    def _runs(point: LogPoint) -> dict[str, tuple[Interval, ...]]:
        assert isinstance(point, GtidSet)
        return dict(point.servers)


def _merged(runs: Iterable[Interval]) -> list[Interval]:
    """The runs ascending, those that touch as one."""
    found: list[Interval] = []
    for first, last in sorted(runs):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def _printed(server: str, runs: Iterable[Interval]) -> str:
    numbers = (str(first) if first == last else f"{first}-{last}" for first, last in runs)
    return ":".join(chain([server], numbers))


class Sets(Numbers):
    """A number for each server that commits: points are partially ordered, as GTID sets are."""

    is_known_early = True

    def __init__(self) -> None:
        self.current = GtidSet()
        self._committed: Counter[str] = Counter()

    def next(self, server: str) -> tuple[LogPoint, LogPoint]:
        self._committed[server] += 1
        number = self._committed[server]
        after, end = self.current, GtidSet.of({server: [(number, number)]})
        self.current = after.join(end)
        return after, end

    def parse(self, text: str) -> LogPoint:
        return GtidSet.parse(text)
