"""The current facts of a run (rates, freshness, loads), and the lines that show them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from textwrap import wrap
from typing import TYPE_CHECKING

from mirrorlake.app.status import source_log
from mirrorlake.app.status.amounts import duration
from mirrorlake.app.status.recent import RecentBatches
from mirrorlake.errors import printable

if TYPE_CHECKING:
    from mirrorlake.app.loop.report import ApplyReport
    from mirrorlake.capture.backfill.jobs import BackfillJob
    from mirrorlake.capture.records.source_state import Outage
    from mirrorlake.capture.sink import LoadProgress
    from mirrorlake.capture.watch.retention import LogRetention
    from mirrorlake.mirror.engine import Applied, Counts
    from mirrorlake.mirror.steps import ApplyFiles
    from mirrorlake.model.table import TableId


@dataclass(slots=True)
class Load:
    """The progress of the initial load of a table: `rows` of `expected` since `begun`."""

    begun: float
    rows: int = 0
    expected: int | None = None
    done: bool = False

    def line(self, now: float) -> str:
        seconds = now - self.begun
        rate = self.rows / seconds if seconds >= 1 else 0.0  # shorter loads have no useful rate
        speed = f", {rate:,.0f} rows/s" if rate else ""
        if self.done:
            return f"{self.rows:,} rows loaded{speed}"
        # The source estimates its rows; once there are more, the total is unknown.
        known = self.expected if self.expected and self.expected > self.rows else None
        of = f" of about {known:,}" if known else ""
        left = f", {duration((known - self.rows) / rate)} left" if known and rate else ""
        return f"{self.rows:,}{of} rows{speed}{left}"


@dataclass(slots=True)
class RunFacts:
    """The facts of a run. Times are seconds of one clock; `position` is that of the last batch."""

    name: str
    begun: float
    step: str = "Checking the source"
    once: bool = False  # it ends when all existing rows are readable
    loads: dict[str, Load] = field(default_factory=dict)
    pending: dict[str, int] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)
    backfills: dict[str, BackfillJob] = field(default_factory=dict)  # by table, not ended
    found: dict[str, int] = field(default_factory=dict)  # made of events; rows before the run
    is_caught_up: bool = False  # the event files that were there are applied
    outage: Outage | None = None
    report: ApplyReport | None = None
    position: str = ""
    retained: LogRetention | None = None
    recent: RecentBatches = field(init=False)

    def __post_init__(self) -> None:
        self.recent = RecentBatches(self.begun)

    def note_load(self, progress: LoadProgress) -> None:
        load = self.loads.setdefault(str(progress.table), Load(progress.time))
        load.rows, load.expected = max(load.rows, progress.rows), progress.expected
        load.done = load.done or progress.done

    def note_batch(self, step: ApplyFiles, outcome: Applied, now: float, wall: datetime) -> None:
        evidence = step.evidence
        late = None
        if evidence.source_time is not None and not step.is_load:
            late = max((wall - evidence.source_time).total_seconds(), 0.0)
        self.note_rows(outcome.counts, now, late)
        if evidence.positions is not None:
            self.position = evidence.positions[1]

    def note_rows(self, counts: Counts, now: float, late: float | None = None) -> None:
        self.recent.note(now, counts.insert + counts.update + counts.delete, late)

    def note_found(self, rows: Mapping[TableId, int]) -> None:
        """Take note of tables that are made of events; known ones keep their rows."""
        new = {
            name: count for table, count in rows.items() if (name := str(table)) not in self.found
        }
        if new:
            self.found = {**self.found, **new}

    # -- totals -----------------------------------------------------------------------

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
        """The code and message of the error of each stopped table."""
        tables = list(self.report.tables.values()) if self.report else []
        found = {str(t.table): f"{t.error.code}: {t.error.what}" for t in tables if t.error}
        return {**found, **self.stopped}

    @property
    def unfinished(self) -> dict[str, Load]:
        return {table: load for table, load in self.loads.items() if not load.done}

    @property
    def is_following(self) -> bool:
        """Whether all rows that existed at the start are readable."""
        has_tables = bool(self.pending) or (self.is_caught_up and bool(self.found))
        begun = self.report is not None and has_tables
        return begun and not self.unfinished and not any(self.pending.values())

    # -- in words -------------------------------------------------------------------------------

    def tables(self) -> str:
        """The tables by state."""
        names = {*self.pending, *self.loads, *self.errors, *self.found}
        failed, loading = len(self.errors), len(self.unfinished.keys() - self.errors.keys())
        waiting = {table for table, files in self.pending.items() if files}
        if not self.is_caught_up:
            waiting |= self.found.keys()
        applying = len(waiting - self.unfinished.keys() - self.errors.keys())
        following = len(names) - failed - loading - applying
        counts = [(following, "following"), (loading, "loading"), (applying, "applying")]
        counted = [f"{count} {state}" for count, state in [*counts, (failed, "stopped")] if count]
        return ", ".join(counted) or "none yet"

    def status(self, now: float) -> list[tuple[str, str]]:
        """The current status as names and values, without unknown ones."""
        if self.report is None:
            return self._log()
        facts = [("tables", self.tables())]
        if self.position:
            facts.append(("position", self.position))
        if found := self.recent.freshness(now):
            facts.append(("freshness", f"p50 {found[0]:.2f} s, p99 {found[1]:.2f} s, last minute"))
        rows = f"{self.recent.rate(now):,.0f} per second, {self.rows:,} applied"
        if self.found:
            rows += f", {sum(self.found.values()) + self.rows:,} in all runs"
        facts.append(("rows", rows))
        return facts + self._log()

    def _log(self) -> list[tuple[str, str]]:
        if self.retained is None:
            return []
        return [("log", source_log.sentence(self.retained))]

    def phase(self) -> str:
        """What the run does now."""
        if self.outage is not None:
            return f"{self.outage}. {self.outage.hint}"
        if self.report is None:
            return self.step
        if self.is_following:
            return self.step if self.once else "following; Ctrl-C stops"
        waiting = sum(self.pending.values())
        if not waiting and not self.unfinished:
            are_behind = bool(self.found) and not self.is_caught_up
            what = (
                "applying the files that are there" if are_behind else "waiting for the first table"
            )
            return f"{what}; Ctrl-C stops"
        if self.unfinished:
            return f"initial load, tables left: {len(self.unfinished)}; Ctrl-C stops"
        return f"applying, files left: {waiting:,}; Ctrl-C stops"

    def reading(self, now: float) -> list[str]:
        """The tables that are loaded or backfilled, each with its progress."""
        loads = [f"{table}: {load.line(now)}" for table, load in self.unfinished.items()]
        for table, job in self.backfills.items():
            read = Load(now - job.seconds, job.rows, job.expected).line(now)
            told = " pending" if job.state == "PENDING" else f", {read}, {job.chunks:,} chunks"
            loads.append(f"{table}: backfill{told}")
        return loads

    def line(self, now: float) -> str:
        """The status in one line, for a log."""
        facts = ", ".join(f"{name} {value}" for name, value in self.status(now))
        return f"{self.phase().partition(';')[0]}: {facts}"

    def closing_line(self, now: float) -> str:
        return (
            f"Stopped after {duration(now - self.begun)}: {self.rows:,} rows applied, "
            f"commits: {self.commits:,}. The next run continues from there."
        )

    def screen(self, now: float, width: int, height: int) -> Iterator[str]:
        """The live view: lines of at most `width` characters, at most `height` of them."""
        heading = f"mirrorlake {self.name}, {duration(now - self.begun)}: {self.phase()}"
        lines = (
            wrap(printable(heading), width, subsequent_indent="  ") if self.outage else [heading]
        )
        if self.report is not None or self.retained is not None:
            lines += [f"  {name:<10} {value}" for name, value in self.status(now)]
        room = max(height - len(lines) - 2, 2)
        details = [
            *self.reading(now),
            *(f"{table}: {self.errors[table]}" for table in sorted(self.errors)),
        ]
        lines += [f"  {line}" for line in details[:room]]
        if len(details) > room:
            lines.append(f"  and {len(details) - room} more")
        return (cut(printable(line), width) for line in lines)


def cut(line: str, width: int) -> str:
    """The line cut to a width, with an ellipsis if it was longer."""
    from rich.cells import cell_len, set_cell_size

    return line if cell_len(line) <= width else f"{set_cell_size(line, width - 1).rstrip()}…"
