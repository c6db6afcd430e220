"""Bars on a terminal, and nothing elsewhere."""

from __future__ import annotations

import io
import re

import pytest

from mirrorlake.cli.progress import publish_progress
from mirrorlake.model.table import TableId

ORDERS = TableId("shop", "orders")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_how_many_rows_are_published(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with publish_progress() as show:
        for rows in (0, 1_000, 30_000):
            show(ORDERS, rows)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    assert "shop.orders" in text
    assert "30,000 rows" in text


def test_elsewhere_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with publish_progress() as show:
        show(ORDERS, 3)
    assert capsys.readouterr() == ("", "")
