"""The page on reading changes runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.config import load
from mirrorlake.feed.bounds import FeedArguments
from mirrorlake.feed.reasons import FeedReason
from tests.docs.blocks import blocks, shell
from tests.docs.generate import DOCS
from tests.feed.handmade_feed import DELETE, INSERT, UPDATE, FeedTable

PAGE = "how-to/read-the-changes.md"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    table = FeedTable(tmp_path / "shop/Tables/shop/orders")
    table.change((INSERT, (1, "a")), (INSERT, (2, "b")))
    table.change((UPDATE, (1, "c")), (DELETE, (2, None)))
    return tmp_path


@pytest.mark.full
def test_the_commands_run(shop: Path) -> None:
    for commands in blocks(PAGE, "sh"):
        assert re.search("delete|orders_changes", shell(shop, commands))
    assert (shop / "changes.parquet").exists()


def test_the_python_prints_what_it_says(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(shop)
    names: dict[str, Any] = {}
    for code in blocks(PAGE, "python"):
        exec(compile(code, PAGE, "exec"), names)
        printed = capsys.readouterr().out.splitlines()
        assert printed == re.findall(r"(?:^|\)  )# (.+)$", code, re.MULTILINE)


def test_the_settings_of_tables_are_accepted(tmp_path: Path) -> None:
    (said,) = blocks(PAGE, "yaml")
    path = tmp_path / "mirrorlake.yaml"
    path.write_text(f"name: a\nroot: b\n{said}")
    assert set(load(path, {}).mirror.tables) == {"shop.audit", "shop.orders", "shop.ticks"}


def test_every_argument_and_reason_is_on_the_page() -> None:
    page = (DOCS / PAGE).read_text()
    for name in FeedArguments.__annotations__:
        assert f"`{name}" in page, name
    for reason in FeedReason:
        assert f"`{reason}`" in page, reason
