"""What a run shows of itself: the block on a terminal, and lines elsewhere."""

from __future__ import annotations

import io
import itertools
import time
from datetime import timedelta
from pathlib import Path

import pytest

from mirrorlake import root
from mirrorlake.app.loop.report import ApplyReport, TableReport
from mirrorlake.app.status.amounts import duration, size
from mirrorlake.capture.backfill.jobs import (
    BackfillJob,
    BackfillJobState,
    BackfillRecords,
    BackfillRequest,
)
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.records.source_state import Outage
from mirrorlake.capture.sink import LoadProgress
from mirrorlake.capture.watch.retention import LogRetention
from mirrorlake.cli.run_facts import RunFacts, cut
from mirrorlake.cli.run_view import RunView, log_file
from mirrorlake.config import Project
from mirrorlake.errors import MissingFile
from mirrorlake.mirror.engine import Applied, Counts
from mirrorlake.mirror.steps import ApplyFiles, Evidence
from mirrorlake.model.change import Marker
from mirrorlake.model.clock import WallClock
from mirrorlake.model.table import TableId
from mirrorlake.storage.lease import Lease
from mirrorlake.storage.local import LocalStore
from tests.doubles.clock import START

ORDERS, ITEMS = TableId("shop", "orders"), TableId("shop", "items")
LONG = TableId("warehouse", "of_a_name_" + "that_is_long_" * 8)


def batch(table: TableId, **facts: object) -> ApplyFiles:
    return ApplyFiles(
        table,
        "Tables/t",
        "f",
        (),
        1,
        1,
        ("id",),
        Marker.INSERT,
        **facts,  # type: ignore[arg-type]
    )


@pytest.fixture
def facts() -> RunFacts:
    """A run of a minute and a half: one table loads, one follows, one has stopped."""
    facts = RunFacts("shop", 0.0)
    facts.report = ApplyReport()
    facts.report.tables = {
        ORDERS: TableReport(ORDERS, "p", version=7, inserts=60_000, updates=14, commits=33),
        LONG: TableReport(
            LONG, "p", error=MissingFile("file 3 is missing, 4 to 9 wait", table=str(LONG))
        ),
    }
    facts.pending = {str(ORDERS): 0, str(LONG): 0}
    facts.note_load(LoadProgress(ITEMS, 10_000, 1_000_000, time=50.0))
    facts.note_load(LoadProgress(ITEMS, 400_000, 1_000_000, time=90.0))
    for second in range(100):
        evidence = Evidence(
            positions=("0/1:0", f"0/{second:X}:3"),
            source_time=START + timedelta(seconds=second) - timedelta(milliseconds=10 * second),
        )
        step = batch(ORDERS, evidence=evidence)
        facts.note_batch(
            step, Applied(second, Counts(insert=600)), second, START + timedelta(seconds=second)
        )
    facts.retained = LogRetention(START, 12_345_678)
    return facts


SCREEN = """\
mirrorlake shop, 1:40: initial load, tables left: 1; Ctrl-C stops
  tables     1 following, 1 loading, 1 stopped
  position   0/63:3
  freshness  p50 0.70 s, p99 0.99 s, last minute
  rows       600 per second, 60,014 applied
  log        11.8 MiB retained by the source
  shop.items: 400,000 of about 1,000,000 rows, 8,000 rows/s, 1:15 left
  warehouse.of_a_name_that_is_long_that_is_long_that_is_long_that_is_long_that…"""


def test_the_block_at_80_columns(facts: RunFacts) -> None:
    lines = list(facts.screen(100.0, 79, 24))
    assert "\n".join(lines) == SCREEN
    assert all(len(line) <= 79 for line in lines)


def test_the_block_at_200_columns_is_whole(facts: RunFacts) -> None:
    lines = list(facts.screen(100.0, 199, 24))
    assert lines[-1].endswith("missing_file: file 3 is missing, 4 to 9 wait")


def test_a_small_screen_counts_what_it_does_not_show(facts: RunFacts) -> None:
    lines = list(facts.screen(100.0, 79, 9))
    assert lines[-1] == SCREEN.splitlines()[-1]
    for number in range(50):
        facts.note_load(LoadProgress(TableId("s", f"t{number}"), 1, None, time=90.0))
    lines = list(facts.screen(100.0, 79, 12))
    assert len(lines) <= 12
    assert lines[-1] == "  and 48 more"


@pytest.mark.parametrize("name", ["a\nb", "日本" * 50, "\x1b[31mred"])
def test_names_from_outside_break_no_line(name: str) -> None:
    facts = RunFacts(name, 0.0)
    (line,) = facts.screen(1.0, 40, 24)
    assert line.isprintable()
    assert cut(line, 40) == line


def test_an_outage_is_shown_first(facts: RunFacts) -> None:
    facts.outage = Outage(
        START, START + timedelta(seconds=9), "PostgreSQL does not answer", "Wait."
    )
    first = next(facts.screen(100.0, 300, 24))
    assert "unreachable since 2026-01-01 00:00:00 UTC: PostgreSQL does not answer" in first
    assert "the next attempt is at 00:00:09" in first


def test_the_closing_line_contains_the_totals(facts: RunFacts) -> None:
    assert facts.closing_line(3_725.0) == (
        "Stopped after 1:02:05: 60,014 rows applied, commits: 33. The next run continues from "
        "there."
    )


def test_a_load_of_more_rows_than_were_expected_says_no_end(facts: RunFacts) -> None:
    facts.note_load(LoadProgress(ITEMS, 1_200_000, 1_000_000, time=100.0))
    assert facts.loads[str(ITEMS)].line(100.0) == "1,200,000 rows, 24,000 rows/s"
    facts.note_load(LoadProgress(ITEMS, 1_250_000, 1_000_000, done=True, time=100.0))
    assert facts.loads[str(ITEMS)].line(100.0) == "1,250,000 rows loaded, 25,000 rows/s"


def test_a_load_that_was_too_short_has_no_rate(facts: RunFacts) -> None:
    facts.note_load(LoadProgress(LONG, 0, 1_000, time=99.5))
    facts.note_load(LoadProgress(LONG, 1_000, 1_000, done=True, time=100.0))
    assert facts.loads[str(LONG)].line(100.0) == "1,000 rows loaded"


def test_a_table_with_landed_files_that_wait_does_not_follow_yet(facts: RunFacts) -> None:
    facts.pending[str(ORDERS)] = 2
    assert facts.tables() == "1 loading, 1 applying, 1 stopped"


def test_what_is_not_known_is_left_out() -> None:
    facts = RunFacts("shop", 0.0)
    assert list(facts.screen(3.0, 79, 24)) == ["mirrorlake shop, 0:03: Checking the source"]
    facts.report = ApplyReport()
    assert list(facts.screen(3.0, 79, 24))[:2] == [
        "mirrorlake shop, 0:03: waiting for the first table; Ctrl-C stops",
        "  tables     none yet",
    ]
    facts.pending = {"t": 3}
    assert facts.phase() == "applying, files left: 3; Ctrl-C stops"
    facts.pending = {"t": 0}
    assert facts.phase() == "following; Ctrl-C stops"


def test_sizes_and_durations_are_for_people() -> None:
    assert [size(n) for n in (0, 1023, 1024, 5 << 40)] == ["0 B", "1023 B", "1.0 KiB", "5.0 TiB"]
    assert [duration(s) for s in (-1, 59.6, 3600)] == ["0:00", "1:00", "1:00:00"]


class TestLines:
    """Where there is no terminal."""

    @pytest.fixture
    def lines(self) -> list[str]:
        return []

    @pytest.fixture
    def view(self, store: LocalStore, lines: list[str], monkeypatch: pytest.MonkeyPatch) -> RunView:
        view = RunView("shop", store)
        monkeypatch.setattr(view, "_write", lines.append)
        return view

    def test_each_event_is_printed_once(
        self, view: RunView, lines: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        view.say("Starting Spark")
        view.begun(ApplyReport())
        view.loading(LoadProgress(ITEMS, 10, 10, done=True))
        view.loading(LoadProgress(ITEMS, 10, 10, done=True))
        view.pending(ITEMS, 0)
        view.tick()
        view.tick()
        assert lines[0] == "Starting Spark"
        assert lines[1].startswith("shop.items: 10 rows loaded")
        assert lines[2:] == ["1 following; Ctrl-C stops"]
        later = time.monotonic() + 61
        monkeypatch.setattr("mirrorlake.cli.run_view.time.monotonic", lambda: later)
        view.tick()
        assert lines[3:] == ["following: tables 1 following, rows 0 per second, 0 applied"]

    def test_names_from_outside_write_nothing_but_text(
        self, view: RunView, lines: list[str]
    ) -> None:
        view.loading(LoadProgress(TableId("s", "\x1b[31m\n"), 10, 10, done=True))
        assert lines[0].isprintable()

    def test_an_outage_and_its_end_are_printed(
        self,
        view: RunView,
        lines: list[str],
        store: LocalStore,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        clock, records = WallClock(), Records(store, root.LANDING)
        Lease(store, "capture", clock).take()
        now = clock.now()
        records.begin_outage(Outage(now, now, "PostgreSQL does not answer", "Start it."))
        moments = itertools.count(time.monotonic() + 5, 5)
        monkeypatch.setattr("mirrorlake.cli.run_view.time.monotonic", lambda: next(moments))
        view.look()
        records.end_outage()
        view.look()
        assert "unreachable since" in lines[0]
        assert lines[1] == "resumed: the source answers again"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("term", "live"), [("xterm", True), ("dumb", False), ("", False)])
def test_the_log_is_in_a_file_where_the_terminal_shows_the_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, term: str, live: bool
) -> None:
    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setenv("TERM", term)
    project = Project("p", tmp_path)
    expected = tmp_path / "Files/Mirrorlake/run.log"
    assert log_file(project) == (expected if live else None)
    if live:
        expected.parent.mkdir(parents=True)
        expected.write_bytes(b"x" * (11 << 20))
        log_file(project)
        assert not expected.exists()
        assert expected.with_name("run.log.1").exists()


def test_backfills_are_shown_until_they_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path)
    moments = itertools.count(0.0, 2.0)
    monkeypatch.setattr(time, "monotonic", lambda: next(moments))
    jobs = BackfillRecords(Records(store, root.LANDING))
    view = RunView("shop", store)
    over = BackfillJob(BackfillRequest("old", str(ITEMS), requested="1"))
    job = BackfillJob(BackfillRequest("new", str(ORDERS), requested="2"))
    for one in (over, job):
        jobs.request(one.request)
    jobs.write(over.now(START, state=BackfillJobState.COMPLETED))
    view.look()
    assert view.facts.reading(0.0) == ["shop.orders: backfill pending"]
    active = job.now(
        START, state=BackfillJobState.ACTIVE, rows=100, chunks=4, expected=300, seconds=10.0
    )
    jobs.write(active)
    view.look()
    assert view.facts.reading(0.0) == [
        "shop.orders: backfill, 100 of about 300 rows, 10 rows/s, 0:20 left, 4 chunks"
    ]
    jobs.write(active.now(START, state=BackfillJobState.COMPLETED, rows=300))
    view.look()
    assert view.facts.reading(0.0) == []
    assert (
        "shop.orders: backfill new is COMPLETED, 300 of about 300 rows" in capsys.readouterr().err
    )
