"""The pages on publishers run as they stand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import blocks, said, shell

TUTORIAL, HOW_TO = "tutorials/write-a-publisher.md", "how-to/try-a-publisher.md"


def test_the_tutorial_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for code in blocks(TUTORIAL, "python"):
        exec(compile(code, TUTORIAL, "exec"), names)
        assert capsys.readouterr().out.splitlines() == said(code), code


@pytest.mark.full
def test_the_commands_of_the_tutorial_end_as_it_says(tmp_path: Path) -> None:
    (commands,) = blocks(TUTORIAL, "sh")
    *_, last = shell(tmp_path, commands).splitlines()
    assert "already published" in last


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.clause("LZ-327")
def test_a_published_zone_is_applied_by_the_local_engine(tmp_path: Path) -> None:
    publish, apply, look = blocks(HOW_TO, "sh")
    shell(tmp_path, publish)
    assert "hr.people" in shell(tmp_path, apply)
    rows = [line.split() for line in shell(tmp_path, look).splitlines()]
    assert rows == [["id", "name"], ["1", "Ada"], ["2", "Grace", "H."]]
