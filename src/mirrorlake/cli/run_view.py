"""The view of a run: a live block on a terminal, plain lines elsewhere.

On a terminal the log is in a file: `--log FILE`, or `run.log` beside the state of the mirror,
or in the user's state folder if the root is a URL.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from mirrorlake.app.loop.watcher import Watcher
from mirrorlake.app.status.backfills import sentence
from mirrorlake.app.status.outage import outage_of
from mirrorlake.capture.backfill.jobs import BackfillJob, BackfillRecords
from mirrorlake.capture.records.files import UNREADABLE
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.records.source_state import Outage
from mirrorlake.cli.output import say
from mirrorlake.cli.run_facts import RunFacts
from mirrorlake.cli.terminal import Dispensable, folded, is_live
from mirrorlake.errors import printable
from mirrorlake.landing.names import folder_name
from mirrorlake.root import LANDING, STATE

if TYPE_CHECKING:
    from mirrorlake.app.loop.report import ApplyReport
    from mirrorlake.capture.sink import LoadProgress
    from mirrorlake.capture.watch.retention import LogRetention
    from mirrorlake.config import Project
    from mirrorlake.mirror.engine import Applied, Counts
    from mirrorlake.mirror.steps import ApplyFiles
    from mirrorlake.model.table import TableId
    from mirrorlake.storage.store import Store

LINE_EVERY = 60.0
"""Seconds between two plain status lines; during a load there are six times as many."""


MOST_LOG_BYTES = 10 << 20
"""Maximum size of `run.log` when a run begins; a larger file is renamed to `run.log.1`."""


def log_file(project: Project) -> Path | None:
    """The log file if the terminal shows the view; None for standard error."""
    if not is_live():
        return None
    file = _folder_of(project) / "run.log"
    with suppress(OSError):
        if file.stat().st_size > MOST_LOG_BYTES:
            file.replace(file.with_name("run.log.1"))
    return file


def _folder_of(project: Project) -> Path:
    """The folder of the log: beside the state of the mirror, or in the user's state folder if the
    root is an object store."""
    if isinstance(project.root, Path):
        return project.root / STATE
    own = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    return Path(own, "mirrorlake", folder_name(project.name))


class RunView(Watcher):
    """Collects the facts of a run, and reads the state in the store once a second."""

    def __init__(self, name: str, store: Store) -> None:
        self.facts = RunFacts(name, time.monotonic())
        self._records, self._store = Records(store, LANDING), store
        self._backfills, self._over = BackfillRecords(self._records), set[str]()
        self._write: Callable[[str], None] = say
        self._lock, self._is_live = threading.Lock(), False
        self._looked = self._last_line = time.monotonic()
        self._is_following = False

    # -- reports of the run ------------------------------------------------------------------------

    def say(self, line: str) -> None:
        """Print a step; in the live view it is part of the block."""
        self.facts.step = line
        if not self._is_live:
            self._print_line(line)

    def step(self, line: str) -> None:
        """Show a step in the live view only."""
        self.facts.step = line

    def show_log(self, file: Path | None) -> None:
        """Print where the log is, unless it goes to standard error."""
        if file is not None:
            here = Path.cwd()
            shown = file.relative_to(here) if file.is_relative_to(here) else file
            self._print_line(f"The log is in {shown}.")

    def _print_line(self, line: str) -> None:
        """Print a permanent line. It may contain names from outside."""
        self._write(printable(line))

    def begun(self, report: ApplyReport) -> None:
        self.facts.report = report

    def loading(self, progress: LoadProgress) -> None:
        with self._lock:
            before = self.facts.loads.get(str(progress.table))
            was_done = before is not None and before.done
            self.facts.note_load(progress)
        is_shown = self._is_live or not self.facts.once  # otherwise the log contains the same
        if progress.done and not was_done and is_shown:
            load = self.facts.loads[str(progress.table)]
            self._print_line(f"{progress.table}: {load.line(progress.time)}")

    def retained(self, log: LogRetention) -> None:
        self.facts.retained = log

    def pending(self, table: TableId, files: int) -> None:
        self.facts.pending = {**self.facts.pending, str(table): files}

    def applied(self, step: ApplyFiles, outcome: Applied) -> None:
        with self._lock:
            self.facts.note_batch(step, outcome, time.monotonic(), datetime.now(UTC))

    def found(self, rows: Mapping[TableId, int]) -> None:
        self.facts.note_found(rows)

    def events_applied(self, counts: Counts) -> None:
        with self._lock:
            self.facts.note_rows(counts, time.monotonic())

    def caught_up(self) -> None:
        self.facts.is_caught_up = True

    # -- shown ----------------------------------------------------------------------------------

    def look(self) -> None:
        """Read what capture has recorded, once a second."""
        now = time.monotonic()
        if now - self._looked < 1.0:
            return
        self._looked = now
        with suppress(*UNREADABLE):
            stopped = self._records.failed()
            self.facts.stopped = {
                table: f"{error.get('code')}: {error.get('message')}"
                for table, error in stopped.items()
            }
            self._note(outage_of(self._store, datetime.now(UTC)))
            self._note_backfills(self._backfills.jobs(but=self._over))

    def _note(self, outage: Outage | None) -> None:
        before, self.facts.outage = self.facts.outage, outage
        if outage is not None and before is None:
            self._print_line(f"{outage}. {outage.hint}")
        elif outage is None and before is not None:
            self._print_line("resumed: the source answers again")

    def _note_backfills(self, jobs: Sequence[BackfillJob]) -> None:
        """Note those that have not ended, and print the end of those that were shown."""
        under_way = {job.request.table: job for job in jobs if not job.state.is_over}
        shown, self.facts.backfills = self.facts.backfills, under_way
        for job in jobs:
            before = shown.get(job.request.table)
            if job.state.is_over:
                self._over.add(job.request.id)
                if before is not None and before.request.id == job.request.id:
                    self._print_line(sentence(job))

    def tick(self) -> None:
        """Write the plain lines that are due."""
        self.look()
        now, following = time.monotonic(), self.facts.is_following
        if following and not self._is_following:
            self._is_following = True
            self._print_line(f"{self.facts.tables()}; Ctrl-C stops")
        if now - self._last_line >= (LINE_EVERY if following else LINE_EVERY / 6):
            self._last_line = now
            if self.facts.report is not None:
                with self._lock:
                    self._print_line(self.facts.line(now))
                    reading = self.facts.reading(now)
                for line in reading:
                    self._print_line(line)

    def screen(self, width: int, height: int) -> list[str]:
        self.look()
        with self._lock:
            return list(self.facts.screen(time.monotonic(), width, height))

    @contextmanager
    def shown(self, *, quiet: bool = False, once: bool = False) -> Iterator[None]:
        """A live view on a terminal, lines elsewhere. quiet: show nothing; once: the command ends
        by itself and prints a report, so there are no status lines and no closing line."""
        self.facts.once = once
        # While Spark starts, descriptor 2 is redirected to its log.
        with os.fdopen(os.dup(2), "w") as terminal:
            if quiet or (once and not is_live()):
                self._write = say if once else lambda _line: None
                yield
                return
            with self._live(terminal) if is_live() else self._plain(terminal):
                try:
                    yield
                finally:
                    self._write = _writer(terminal)
            if self.facts.report is not None and not once:
                self._print_line(self.facts.closing_line(time.monotonic()))

    @contextmanager
    def _plain(self, terminal: TextIO) -> Iterator[None]:
        self._write, done = _writer(terminal), threading.Event()

        def tick() -> None:
            while not done.wait(1.0):
                self.tick()

        thread = threading.Thread(target=tick, daemon=True, name="view")
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    @contextmanager
    def _live(self, terminal: TextIO) -> Iterator[None]:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        console = Console(file=terminal, highlight=False)
        self._write, self._is_live = lambda line: console.print(Text(line)), True

        def drawn() -> Text:
            return Text("\n".join(self.screen(console.width - 1, console.height)), no_wrap=True)

        with Live(
            console=console,
            get_renderable=drawn,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        ):
            yield


def _writer(terminal: TextIO) -> Callable[[str], None]:
    lines = Dispensable(terminal)

    def write(line: str) -> None:
        lines.write(f"{folded(line, terminal)}\n")
        lines.flush()

    return write
