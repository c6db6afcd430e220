"""The page on histories runs as it stands."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from typer.testing import CliRunner

from mirrorlake.cli.main import app
from mirrorlake.config import load
from mirrorlake.delta.schema import FEED
from mirrorlake.feed.history.settings import HistoryArguments
from tests.docs.blocks import blocks, said
from tests.docs.generate import DOCS
from tests.feed.handmade_feed import DELETE, INSERT, UPDATE, FeedTable

PAGE = "how-to/keep-history.md"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    table = FeedTable(tmp_path / "shop/Tables/shop/orders")
    table.change((INSERT, (1, "a")), (INSERT, (2, "b")))
    table.change((UPDATE, (1, "c")), (DELETE, (2, None)))
    table.change((INSERT, (3, "d")))
    return tmp_path


def test_the_commands_run(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shop)
    every, at_version, newest, archived, rebuilt, each, copied = (
        "".join(map(printed, commands.splitlines())) for commands in blocks(PAGE, "sh")
    )
    assert "covers version 3; 4 rows inserted" in every
    assert "orders_history" in every
    assert at_version.split() == ["id", "name", "1", "c"]
    assert "True" in newest
    assert "covers version 3; 6 rows inserted" in archived
    assert rebuilt.split() == each.split() == at_version.split()
    assert set(copied.split()[-4:]) == {"1", "c", "3", "d"}


@pytest.mark.clause("CF-196")
def test_equal_rows_are_each_rebuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = pa.table({"id": [1, 1, 2], "name": ["a", "a", "b"]})
    write_deltalake(tmp_path / "shop/Tables/shop/orders", rows, configuration={FEED: "true"})
    _every, _at_version, _newest, archived, _rebuilt, each, _copied = blocks(PAGE, "sh")
    assert "3 rows inserted" in printed(archived.splitlines()[0])
    shown = printed(each).splitlines()[1:]
    assert sorted(line.split() for line in shown) == [["1", "a"], ["1", "a"], ["2", "b"]]


def printed(command: str) -> str:
    """What a line of a shell prints, without a process of its own."""
    program, *arguments = shlex.split(command)
    assert program == "mirrorlake"
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def test_the_python_prints_what_it_says(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(shop)
    names: dict[str, Any] = {}
    for code in blocks(PAGE, "python"):
        exec(compile(code, PAGE, "exec"), names)
        assert capsys.readouterr().out.splitlines() == said(code)


def test_the_settings_make_these_targets(tmp_path: Path) -> None:
    path, found = tmp_path / "mirrorlake.yaml", set[str]()
    for said_in_file in blocks(PAGE, "yaml"):
        path.write_text(f"name: a\nroot: b\n{said_in_file}")
        found |= {str(one.target) for one in load(path, {}).targets}
    ends = ("history", "newest", "archive", "change_log")
    assert found == {f"shop.orders_{end}" for end in ends}


def test_every_argument_is_on_the_page() -> None:
    page = (DOCS / PAGE).read_text()
    for name in HistoryArguments.__annotations__:
        assert f"--{name}" in page, name
