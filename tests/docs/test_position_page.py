"""The page on reading all tables at one position runs as it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.app.changes.shop import Shop
from tests.docs.blocks import blocks, shell

PAGE = "how-to/read-at-one-position.md"


@pytest.mark.full
def test_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Shop.with_three_cuts(tmp_path / "shop")
    monkeypatch.chdir(tmp_path)
    for code in blocks(PAGE, "python"):
        exec(compile(code, PAGE, "exec"), {})
        expected = [line[2:] for line in code.splitlines() if line.startswith("# ")]
        assert capsys.readouterr().out.splitlines() == expected
    found = [shell(tmp_path, commands) for commands in blocks(PAGE, "sh")]
    assert "position 0/2" in found[0]
    assert "update_postimage" in found[1]
