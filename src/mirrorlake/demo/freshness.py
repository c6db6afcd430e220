"""How old a change is when it becomes readable in Delta, seen from outside.

A thread looks for new versions of the table of marker rows and reads the markers that came with
each, with a reader of its own.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from mirrorlake.demo import delta_rs

LOOK_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Freshness:
    """Seconds from the sending of a marker row to its being readable. None without a marker."""

    p50: float | None
    p99: float | None
    max: float | None

    @classmethod
    def of(cls, ages: list[float]) -> Freshness:
        if not ages:
            return cls(None, None, None)
        ordered = sorted(ages)
        locations = [math.ceil(share * len(ordered)) - 1 for share in (0.50, 0.99)]
        p50, p99 = (round(ordered[location], 3) for location in locations)
        return cls(p50, p99, round(ordered[-1], 3))


class FreshnessMeter:
    """Watches the table of marker rows until stopped."""

    def __init__(self, table: Path) -> None:
        self._table = table
        self._stop = threading.Event()
        self._ages: dict[int, float] = {}
        self._thread = threading.Thread(target=self._watch, name="freshness", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> Freshness:
        self._stop.set()
        self._thread.join()
        return Freshness.of(list(self._ages.values()))

    def _watch(self) -> None:
        seen = ""
        while not self._stop.wait(LOOK_SECONDS):
            newest = self._newest()
            if newest != seen:
                moment = datetime.now(UTC).timestamp()
                self._read(moment)
                seen = newest

    def _read(self, moment: float) -> None:
        found = delta_rs.rows(self._table, "id, sent_at").read_all()
        for marker, sent in zip(*(column.to_pylist() for column in found.columns), strict=True):
            self._ages.setdefault(marker, moment - sent.timestamp())

    def _newest(self) -> str:
        try:
            names = [f.name for f in (self._table / "_delta_log").glob("*.json")]
        except OSError:
            return ""
        return max(names, default="")
