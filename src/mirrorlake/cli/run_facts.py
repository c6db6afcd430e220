"""What is known of a run at a moment: rates, freshness, loads; and the lines that tell it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from mirrorlake.app.status.amounts import duration, p50_p99, size
from mirrorlake.errors import printable

if TYPE_CHECKING:
    from mirrorlake.app.loop.report import ApplyReport
    from mirrorlake.capture.record import Outage
    from mirrorlake.capture.sink import LoadProgress
    from mirrorlake.mirror.engine import Applied
    from mirrorlake.mirror.steps import ApplyFiles

WINDOW = 60.0
"""Seconds that rates and freshness are of."""


@dataclass(slots=True)
class Load:
    """The initial load of a table. rows of expected, since a moment."""

    begun: float
    rows: int = 0
    expected: int | None = None
    done: bool = False

    def told(self, now: float) -> str:
        rate = self.rows / max(now - self.begun, 0.1)
        if self.done:
            return f"{self.rows:,} rows loaded, {rate:,.0f} rows/s"
        # The source estimates its rows; when there are more, nobody knows how many.
        known = self.expected if self.expected and self.expected > self.rows else None
        of = f" of about {known:,}" if known else ""
        left = f", {duration((known - self.rows) / rate)} left" if known and rate else ""
        return f"{self.rows:,}{of} rows, {rate:,.0f} rows/s{left}"


@dataclass(slots=True)
class RunFacts:
    """A run. Times are seconds of one clock; `position` is that of the batch applied last."""

    name: str
    begun: float
    step: str = "checking the source"
    loads: dict[str, Load] = field(default_factory=dict)
    pending: dict[str, int] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)
    outage: Outage | None = None
    report: ApplyReport | None = None
    position: str = ""
    retained: int | None = None
    recent: deque[tuple[float, int, float | None]] = field(default_factory=deque)
    """Of each batch: when, rows, seconds since its commit in the source, None if unknown."""

    def note_load(self, progress: LoadProgress, now: float) -> None:
        load = self.loads.setdefault(str(progress.table), Load(now))
        load.rows, load.expected = max(load.rows, progress.rows), progress.expected
        load.done = load.done or progress.done

    def note_batch(self, step: ApplyFiles, outcome: Applied, now: float, wall: datetime) -> None:
        counts, told = outcome.counts, step.evidence
        late = None
        if told.source_time is not None and not step.is_load:
            late = max((wall - told.source_time).total_seconds(), 0.0)
        self.recent.append((now, counts.insert + counts.update + counts.delete, late))
        if told.positions is not None:
            self.position = told.positions[1]

    # -- what it comes to -----------------------------------------------------------------------

    @property
    def rows(self) -> int:
        tables = list(self.report.tables.values()) if self.report else []
        return sum(table.inserts + table.updates + table.deletes for table in tables)

    @property
    def commits(self) -> int:
        return (
            sum(table.commits for table in list(self.report.tables.values())) if self.report else 0
        )

    @property
    def errors(self) -> dict[str, str]:
        """Table to the code and message of what stops it."""
        tables = list(self.report.tables.values()) if self.report else []
        found = {str(t.table): f"{t.error.code}: {t.error.what}" for t in tables if t.error}
        return {**found, **self.stopped}

    @property
    def unfinished(self) -> dict[str, Load]:
        return {table: load for table, load in self.loads.items() if not load.done}

    @property
    def is_following(self) -> bool:
        """Whether everything that was there at the start is readable."""
        begun = self.report is not None and bool(self.pending)
        return begun and not self.unfinished and not any(self.pending.values())

    def rate(self, now: float) -> float:
        self._forget(now)
        span = min(max(now - self.begun, 1.0), WINDOW)
        return sum(rows for _, rows, _ in self.recent) / span

    def freshness(self, now: float) -> tuple[float, float] | None:
        """p50 and p99 of the last minute, in seconds; None without batches in it."""
        self._forget(now)
        return p50_p99(seconds for _, _, seconds in self.recent)

    def _forget(self, now: float) -> None:
        while self.recent and self.recent[0][0] < now - WINDOW:
            self.recent.popleft()

    # -- in words -------------------------------------------------------------------------------

    def tables(self) -> str:
        """The tables by state."""
        names = {*self.pending, *self.loads, *self.errors}
        failed, loading = len(self.errors), len(self.unfinished.keys() - self.errors.keys())
        counts = [(len(names) - failed - loading, "following"), (loading, "loading")]
        told = [f"{count} {state}" for count, state in [*counts, (failed, "stopped")] if count]
        return ", ".join(told) or "none yet"

    def status(self, now: float) -> list[tuple[str, str]]:
        """The block of what is true now, as names and values; what is not known is left out."""
        facts = [("tables", self.tables())]
        if self.position:
            facts.append(("position", self.position))
        if found := self.freshness(now):
            facts.append(("freshness", f"p50 {found[0]:.2f} s, p99 {found[1]:.2f} s, last minute"))
        facts.append(("rows", f"{self.rate(now):,.0f} per second, {self.rows:,} applied"))
        if self.retained is not None:
            facts.append(("log", f"{size(self.retained)} retained by the source"))
        return facts

    def phase(self) -> str:
        """What it does now."""
        if self.outage is not None:
            return f"{self.outage}. {self.outage.hint}"
        if self.report is None:
            return self.step
        if self.is_following:
            return "following; Ctrl-C stops"
        waiting = sum(self.pending.values())
        if not waiting and not self.unfinished:
            return "waiting for the first table; Ctrl-C stops"
        if self.unfinished:
            return f"initial load, tables left: {len(self.unfinished)}; Ctrl-C stops"
        return f"applying {waiting:,} files; Ctrl-C stops"

    def line(self, now: float) -> str:
        """The status in one line, for a log of lines."""
        facts = ", ".join(f"{name} {value}" for name, value in self.status(now))
        return f"{self.phase().partition(';')[0]}: {facts}"

    def goodbye(self, now: float) -> str:
        return (
            f"Stopped after {duration(now - self.begun)}: {self.rows:,} rows applied, "
            f"commits: {self.commits:,}. The next run continues from there."
        )

    def screen(self, now: float, width: int, height: int) -> Iterator[str]:
        """The live view: lines of at most `width` characters, at most `height` of them."""
        lines = [f"mirrorlake {self.name}, {duration(now - self.begun)}: {self.phase()}"]
        if self.report is not None:
            lines += [f"  {name:<10} {value}" for name, value in self.status(now)]
        room = max(height - len(lines) - 2, 2)
        details = [
            *(f"{table}: {load.told(now)}" for table, load in self.unfinished.items()),
            *(f"{table}: {self.errors[table]}" for table in sorted(self.errors)),
        ]
        lines += [f"  {line}" for line in details[:room]]
        if len(details) > room:
            lines.append(f"  and {len(details) - room} more")
        return (cut(printable(line), width) for line in lines)


def cut(line: str, width: int) -> str:
    """A line that does not wrap: what does not fit ends with an ellipsis."""
    from rich.cells import cell_len, set_cell_size

    return line if cell_len(line) <= width else f"{set_cell_size(line, width - 1).rstrip()}…"
