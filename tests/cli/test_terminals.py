"""The view of a run on terminals of several kinds, and where there is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal
from tests.profiles import some

SCRIPT = """
import pathlib, time
from mirrorlake.app.loop.report import ApplyReport, TableReport
from mirrorlake.capture.sink import LoadProgress
from mirrorlake.cli.run_view import RunView
from mirrorlake.model.table import TableId
from mirrorlake.storage.local import LocalStore

view = RunView("shop", LocalStore(pathlib.Path("root")))
with view.shown():
    view.say("Starting Spark")
    time.sleep(0.6)
    report = ApplyReport()
    view.begun(report)
    table = TableId("shop", "a_long_name_" * 9)
    view.loading(LoadProgress(table, 40_000, 1_000_000))
    time.sleep(0.6)
    view.loading(LoadProgress(table, 1_000_000, 1_000_000, done=True))
    report.tables[table] = TableReport(table, "p", inserts=1_000_000, commits=1)
    view.pending(table, 0)
    time.sleep(1.6)
"""


def shown(folder: Path, **options: object) -> Terminal:
    with Terminal([sys.executable, "-c", SCRIPT], folder, **options) as terminal:  # type: ignore[arg-type]
        assert terminal.ended() == 0, terminal.text
    return terminal


@pytest.mark.full
@pytest.mark.parametrize("columns", some([80, 200]))
def test_a_terminal_shows_one_block_that_does_not_wrap(tmp_path: Path, columns: int) -> None:
    terminal = shown(tmp_path, columns=columns)
    block = [line for line in terminal.lines if line.startswith(("mirrorlake", "  "))]
    assert max(map(len, block)) <= columns
    assert "mirrorlake shop, 0:00: Starting Spark" in terminal.text
    assert "initial load, tables left: 1; Ctrl-C stops" in terminal.text
    assert "following; Ctrl-C stops" in terminal.text
    closing_line = " ".join(terminal.lines[-3:])
    assert "Stopped after 0:0" in closing_line
    assert "1,000,000 rows applied, commits: 1." in closing_line
    assert max(map(len, terminal.lines[-3:])) <= columns
    assert terminal.raw.rindex("\x1b[?25h") > terminal.raw.rindex("\x1b[?25l")


@pytest.mark.full
def test_no_colour_is_obeyed(tmp_path: Path) -> None:
    assert "\x1b[3" not in shown(tmp_path, NO_COLOR="1").raw


@pytest.mark.full
def test_a_dumb_terminal_gets_lines(tmp_path: Path) -> None:
    terminal = shown(tmp_path, term="dumb", columns=200)
    assert "\x1b" not in terminal.raw
    assert _without_figures(terminal.lines) == LINES


@pytest.mark.full
def test_without_a_terminal_there_are_lines(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
    assert _without_figures(done.stderr.splitlines()) == LINES


LINES = ["Starting Spark", "shop.a_long", "1 following; Ctrl-C stops", "Stopped after"]


def _without_figures(lines: list[str]) -> list[str]:
    return [
        line[: len(known)]
        for line, known in zip([line for line in lines if line], LINES, strict=True)
    ]
