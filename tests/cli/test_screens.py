"""What commands show, as texts in `screens/`, which a person reads when they change.

A screen that differs fails its test; `MIRRORLAKE_SCREENS=write` writes it anew, to be read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.app.loop.report import ApplyReport, TableReport
from mirrorlake.app.status.mirror_status import Status
from mirrorlake.app.status.table_status import TableStatus
from mirrorlake.capture.backfill.jobs import BackfillJob, BackfillJobState, BackfillRequest
from mirrorlake.capture.records.source_state import Outage
from mirrorlake.capture.sink import LoadProgress
from mirrorlake.capture.watch.retention import LogRetention
from mirrorlake.cli.check import show_findings
from mirrorlake.cli.output import say
from mirrorlake.cli.run_facts import RunFacts
from mirrorlake.cli.status import show_status
from mirrorlake.errors import LeaseHeld, MissingFile
from mirrorlake.mirror.engine import Applied, Counts
from mirrorlake.mirror.steps import ApplyFiles, Evidence
from mirrorlake.model.applied import Totals
from mirrorlake.model.change import Marker
from mirrorlake.model.state import TableState
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import CheckResult, CheckSeverity
from tests.doubles.clock import START

SCREENS = Path(__file__).parent / "screens"
WIDTHS = [80, 200]
ORDERS, ITEMS = TableId("public", "orders"), TableId("public", "items")


def looks_as_before(name: str, columns: int, lines: list[str]) -> None:
    """Compare a screen with the text of it, in which no line is wider than the screen."""
    assert max(map(len, lines)) <= columns
    file = SCREENS / f"{name}-{columns}.txt"
    told = "".join(f"{line.rstrip()}\n" for line in lines)
    if os.environ.get("MIRRORLAKE_SCREENS") == "write":
        file.write_text(told)
    assert told == file.read_text()


class TestRun:
    """The view of `run`, from the start to the goodbye."""

    @pytest.fixture
    def facts(self) -> RunFacts:
        return RunFacts("shop", 0.0)

    @pytest.fixture
    def following(self, facts: RunFacts) -> RunFacts:
        facts.report = ApplyReport()
        facts.report.tables = {
            ORDERS: TableReport(ORDERS, "p", inserts=60_000, updates=14, commits=33),
            ITEMS: TableReport(ITEMS, "p", inserts=1_000_000, commits=1),
        }
        facts.pending = {str(ORDERS): 0, str(ITEMS): 0}
        facts.retained = LogRetention(START, 12_345_678)
        for second in range(100):
            moment = START + timedelta(seconds=second)
            evidence = Evidence(
                positions=("0/1:0", f"0/1A0{second:02X}:3"),
                source_time=moment - timedelta(milliseconds=10 * second),
            )
            step = ApplyFiles(ORDERS, "p", "f", (), 1, 1, ("id",), Marker.INSERT, evidence=evidence)
            facts.note_batch(step, Applied(second, Counts(insert=600)), second, moment)
        return facts

    @pytest.fixture
    def shown(self, columns: int) -> Callable[[str, RunFacts], None]:
        def compare(name: str, facts: RunFacts) -> None:
            looks_as_before(name, columns, list(facts.screen(100.0, columns - 1, 24)))

        return compare

    @pytest.fixture(params=WIDTHS)
    def columns(self, request: pytest.FixtureRequest) -> int:
        return int(request.param)

    def test_while_it_starts(self, facts: RunFacts, shown: Callable[[str, RunFacts], None]) -> None:
        shown("run-checks", facts)
        facts.step = "Starting Spark"
        shown("run-starts-spark", facts)

    def test_the_initial_load(
        self, facts: RunFacts, shown: Callable[[str, RunFacts], None]
    ) -> None:
        facts.report = ApplyReport()
        for table, rows, expected in ((ORDERS, 400_000, 1_000_000), (ITEMS, 1_200_000, 1_000_000)):
            facts.note_load(LoadProgress(table, 10_000, expected, time=50.0))
            facts.note_load(LoadProgress(table, rows, expected, time=90.0))
        shown("run-loads", facts)

    def test_landed_files_that_wait(
        self, following: RunFacts, shown: Callable[[str, RunFacts], None]
    ) -> None:
        following.pending[str(ITEMS)] = 1_234
        shown("run-applies", following)

    def test_it_follows(self, following: RunFacts, shown: Callable[[str, RunFacts], None]) -> None:
        shown("run-follows", following)

    def test_tables_are_read_again(
        self, following: RunFacts, shown: Callable[[str, RunFacts], None]
    ) -> None:
        for table, expected in ((ORDERS, 1_000_000), (ITEMS, None)):
            following.backfills[str(table)] = BackfillJob(
                BackfillRequest("one", str(table)),
                BackfillJobState.ACTIVE,
                rows=400_000,
                chunks=4,
                bytes=123_456_789,
                seconds=20.0,
                expected=expected,
            )
        shown("run-backfills", following)

    def test_a_table_has_stopped(
        self, following: RunFacts, shown: Callable[[str, RunFacts], None]
    ) -> None:
        assert following.report is not None
        missing = MissingFile("file 3 is missing, 4 to 9 wait", table=str(ITEMS))
        stopped = replace(following.report.tables[ITEMS], error=missing)
        following.report.tables[ITEMS] = stopped
        shown("run-has-a-stopped-table", following)

    def test_the_source_is_away(
        self, following: RunFacts, shown: Callable[[str, RunFacts], None]
    ) -> None:
        following.outage = Outage(
            START, START + timedelta(seconds=9), "PostgreSQL does not answer", "Check that it runs."
        )
        shown("run-waits-for-the-source", following)

    def test_without_a_terminal(self, following: RunFacts) -> None:
        looks_as_before(
            "run-in-a-log", 200, [following.line(100.0), following.closing_line(3_725.0)]
        )


Compare = Callable[[str, Callable[[], None]], None]


class TestOutput:
    """What a command prints on a terminal and leaves there."""

    @pytest.fixture(params=WIDTHS)
    def compare(
        self,
        request: pytest.FixtureRequest,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> Compare:
        monkeypatch.setenv("COLUMNS", str(request.param))

        def compare(name: str, act: Callable[[], None]) -> None:
            monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
            monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
            act()
            captured = capsys.readouterr()
            lines = [*captured.out.splitlines(), *captured.err.splitlines()]
            looks_as_before(name, int(request.param), lines)

        return compare

    @pytest.fixture
    def status(self) -> Status:
        def table(name: str, lag: float | None, **more: Any) -> TableStatus:
            total = Totals(insert=1_200_000, update=34_567, delete=89)
            return TableStatus(
                f"public.{name}",
                more.pop("state", TableState.REPLICATING),
                "p",
                more.pop("version", 1_234),
                5_678,
                0,
                "0/4BFD4D8:17",
                total,
                lag,
                more.pop("error", None),
                **more,
            )

        missing = MissingFile("file 3 is missing, 4 to 9 wait", table="public.items", hint="Wait.")
        return Status(
            "shop",
            "process 4711 on vm",
            "process 4712 on vm",
            [
                table("orders", 0.4),
                table("items", 3_725.0, state=TableState.FAILED, error=missing.facts()),
                table("later", None, state=TableState.INITIALIZED, version=None, waiting=NEW),
            ],
            landing_zone="/srv/shop/Files/LandingZone",
        )

    def test_status(self, status: Status, compare: Compare) -> None:
        compare("status", lambda: show_status(status))

    def test_status_while_the_source_is_away(self, status: Status, compare: Compare) -> None:
        away = Outage(
            START, START + timedelta(seconds=9), "PostgreSQL does not answer", "Check that it runs."
        )
        compare("status-source-unreachable", lambda: show_status(replace(status, outage=away)))

    def test_status_without_tables(self, status: Status, compare: Compare) -> None:
        new = replace(status, capture=None, apply=None, tables=[])
        compare("status-without-tables", lambda: show_status(new))

    def test_status_of_a_detached_mirror(self, status: Status, compare: Compare) -> None:
        time = "2026-01-01T00:00:00.000000Z"
        detached = replace(status, capture=None, apply=None, detached=time)
        compare("status-detached", lambda: show_status(detached))

    def test_findings(self, compare: Compare) -> None:
        level, orders = CheckSeverity, TableId("public", "orders")
        findings = [
            CheckResult("version", level.OK, "PostgreSQL 18.4"),
            CheckResult("wal_level", level.ERROR, WAL_LEVEL, "Run `alter system ...`."),
            CheckResult("select", level.ERROR, "user mirror may not read column id", LONG, orders),
        ]
        compare("check", lambda: show_findings(findings))

    def test_an_error(self, compare: Compare) -> None:
        error = LeaseHeld(HELD, where="./shop/Files/Mirrorlake/leases/capture", hint="Stop it.")
        compare("run-is-active", lambda: say(f"mirrorlake: {error}"))


NEW = "it was reset; the next run loads it"
WAL_LEVEL = "wal_level is replica, but logical decoding requires logical"
LONG = 'Run `grant select on "public"."orders" to "mirror"`, or exclude it in source.columns.'
HELD = "`mirrorlake run` or `mirrorlake capture` is already active here, as process 20213 on vm"
