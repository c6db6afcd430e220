"""The page on following changes runs as it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import blocks, shell
from tests.feed.handmade_feed import DELETE, INSERT, UPDATE, FeedTable

PAGE = "how-to/follow-the-changes.md"


def test_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = FeedTable(tmp_path / "shop/Tables/shop/orders")
    table.change((INSERT, (1, "a")), (INSERT, (2, "b")))
    table.change((UPDATE, (1, "c")), (DELETE, (2, None)))
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for code in blocks(PAGE, "python"):
        exec(compile(code, PAGE, "exec"), names)
        expected = [line[2:] for line in code.splitlines() if line.startswith("# ")]
        assert capsys.readouterr().out.splitlines() == expected
        assert expected
    names["database"].close()
    landing, listing = blocks(PAGE, "sh")
    shell(tmp_path, landing)
    assert list(tmp_path.glob("copy/Files/LandingZone/shop.schema/orders/*.parquet"))
    found = shell(tmp_path, listing)
    assert "audit" in found
    assert "to-sqlite" in found
