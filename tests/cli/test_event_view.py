"""The view of a run whose tables are made of event files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from mirrorlake import config
from mirrorlake.app.events.applying import EventApplier
from mirrorlake.app.loop.report import ApplyReport
from mirrorlake.cli.run_view import RunView
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.storage.local import LocalStore
from tests.app.events.test_applier import Days, project, put
from tests.apply.events.bucket import event
from tests.cli.conftest import Run


class Shown(RunView):
    """Keeps the status at the beginning, and whenever something happens that it shows."""

    def __init__(self, root: Path) -> None:
        super().__init__("t", LocalStore(root))
        self.lines: list[str] = []

    def begun(self, report: ApplyReport) -> None:
        super().begun(report)
        self.note()

    def caught_up(self) -> None:
        super().caught_up()
        self.note()

    def note(self, _at: CrashPoint | None = None) -> None:
        self.lines.append(self.facts.line(self.facts.begun))


def lines(folder: Path, *, once: bool = False) -> Sequence[str]:
    """What a run shows, each line once; it ends after a cycle."""
    view, clock = Shown(folder / "lake"), Days(1)
    applier = EventApplier(config.load(project(folder)), clock, clock.stop, view.note, watcher=view)
    applier.once() if once else applier.run()
    return list(dict.fromkeys(view.lines))


def rows(applied: int, total: int | None) -> str:
    of_all = "" if total is None else f", {total} in all runs"
    return f"rows {applied} per second, {applied} applied{of_all}"


def counted(run: Run) -> int:
    tables = run("status", "--json").facts()["tables"]
    return sum(sum(one["applied"].values()) for one in tables)


def test_the_tables_that_there_are_and_their_rows_are_shown_as_status_does(
    run: Run, tmp_path: Path
) -> None:
    assert lines(tmp_path) == ["waiting for the first table: tables none yet, " + rows(0, None)]
    put(tmp_path, "a.jsonl", *(event(n, {"id": n}) for n in range(1, 6)))
    put(tmp_path, "b.jsonl", event(1, {"id": 1}, table="items"))
    *_during, last = lines(tmp_path)
    assert last == "following: tables 2 following, " + rows(6, 6)
    # Nothing is new.
    assert lines(tmp_path) == [
        "applying the files that are there: tables 2 applying, " + rows(0, 6),
        "following: tables 2 following, " + rows(0, 6),
    ]
    put(tmp_path, "c.jsonl", event(7, {"id": 1}), event(8, {"id": 2}, "DELETE"))
    put(tmp_path, "d.jsonl", event(2, {"id": 1}, key=("id", "v"), table="items"))
    first, *_during, last = lines(tmp_path)
    assert first == "applying the files that are there: tables 2 applying, " + rows(0, 6)
    assert last == "following: tables 1 following, 1 stopped, " + rows(2, 8)
    *_during, last = lines(tmp_path, once=True)
    assert last.endswith(rows(0, 8))
    assert counted(run) == 8


@pytest.mark.full
def test_a_run_that_is_stopped_has_shown_its_tables(run: Run, tmp_path: Path) -> None:
    project(tmp_path)
    put(tmp_path, "a.jsonl", event(1, {"id": 1}), event(1, {"id": 1}, table="items"))
    assert run("run", "--once").code == 0
    command = [sys.executable, "-m", "mirrorlake", "run"]
    environment = {**os.environ, "TERM": "dumb"}
    with subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment
    ) as child:
        assert child.stderr is not None
        until = time.monotonic() + 60
        told = ""
        while "Ctrl-C stops" not in told and time.monotonic() < until:
            told += child.stderr.readline()
        child.send_signal(signal.SIGINT)
        told += child.stderr.read()
    assert "2 following; Ctrl-C stops" in told
    assert "first table" not in told
