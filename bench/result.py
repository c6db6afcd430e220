"""What a comparison found: one line of the report, one object of `build/bench.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.catalog import CATALOG


@dataclass(frozen=True, slots=True)
class Result:
    """One comparison. Seconds are medians.

    peer: None where nothing is compared. target: the least ratio that we answer for. equal: whether
    rows and values of both sides were compared and are the same; None where there is nothing to
    compare with. over: a limit that was broken, in words. more: further facts for the report.
    """

    name: str
    ours_seconds: float | None
    peer: str | None = None
    peer_seconds: float | None = None
    target: float | None = None
    equal: bool | None = None
    over: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """How many times as fast we are."""
        if not self.ours_seconds or self.peer_seconds is None:
            return None
        return self.peer_seconds / self.ours_seconds

    @property
    def misses(self) -> bool:
        """Whether a target of ours is missed."""
        short = self.target is not None and (self.ratio or 0.0) < self.target
        return short or bool(self.over)

    def facts(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "ours_seconds": _rounded(self.ours_seconds),
            "peer": self.peer,
            "peer_seconds": _rounded(self.peer_seconds),
            "ratio": _rounded(self.ratio),
            "target": self.target,
            "equal": self.equal,
            **self.more,
        }


def write(results: Sequence[Result], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([result.facts() for result in results], indent=2) + "\n")


def show(results: Sequence[Result], rounds: int, scale: float) -> None:
    """A table for people, then what each line is about, and what else there is to say of it."""
    line = "{:<15} {:>9} {:>10} {:>7} {:>7}  {:<6} {:<12} {}"
    print()
    print(line.format("name", "ours s", "peer s", "ratio", "target", "equal", "rounds", "peer"))
    for result in results:
        print(
            line.format(
                result.name,
                _shown(result.ours_seconds),
                _shown(result.peer_seconds),
                _shown(result.ratio),
                _shown(result.target),
                {True: "yes", False: "NO", None: "-"}[result.equal],
                CATALOG[result.name].rounds_of(rounds),
                result.peer or "-",
            )
        )
    print()
    sized = "" if scale == 1.0 else f", times {scale:g}"
    for name in dict.fromkeys(result.name for result in results):
        entry = CATALOG[name]
        print(f"{name}: {entry.what}{sized}; warm: {entry.warm}")
    print()
    for result in results:
        for note in _notes(result):
            print(f"{result.name}: {note}")


def _notes(result: Result) -> list[str]:
    notes = []
    if result.peer_seconds is None and result.more:
        notes.append(", ".join(f"{name} {value}" for name, value in result.more.items()))
    if result.equal is False:
        notes.append(f"CONTENT DIFFERS from {result.peer or 'the source'}")
    if result.over:
        notes.append(f"TARGET MISSED: {result.over}")
    elif result.misses:
        notes.append(
            f"TARGET MISSED: {_shown(result.ratio)} times {result.peer}, not {result.target}"
        )
    return notes


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}"
