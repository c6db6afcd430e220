"""Bars on a terminal, and nothing elsewhere."""

from __future__ import annotations

import io
import re

import pytest

from mirrorlake.cli.progress import apply_progress
from mirrorlake.model.table import TableId

ORDERS = TableId("shop", "orders")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_how_many_files_are_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with apply_progress() as show:
        for pending in (3, 1, 0):
            show(ORDERS, pending)
        show(TableId("shop", "idle"), 0)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    assert "shop.orders" in text
    assert "3 of 3 files" in text
    assert "idle" not in text


def test_elsewhere_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with apply_progress() as show:
        show(ORDERS, 3)
    assert capsys.readouterr() == ("", "")
