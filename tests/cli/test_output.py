"""What commands print."""

from __future__ import annotations

import sys
from decimal import Decimal

import pytest

from mirrorlake.cli.output import print_table


@pytest.mark.parametrize("columns", [80, 60, 20])
def test_a_number_is_never_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    counts = ["100,000,000", "123,456,789", "12,345,678"]
    text = "a text that may be folded over as many lines as it takes"
    print_table(
        ["table", "rows", "inserts", "updates", "sum", "verified"],
        [["warehouse.order_items", *counts, Decimal("98765432109876.54321"), text]],
    )
    shown = capsys.readouterr().out
    for number in (*counts, "98765432109876.54321"):
        assert number in shown
    assert "…" not in shown
