"""The commands and the code of the page on verifying run as they stand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.app.test_verify_live import Live
from tests.conftest import Database
from tests.docs.blocks import blocks, shell

PAGE = "how-to/verify.md"


@pytest.mark.full
@pytest.mark.postgres
def test_the_page_runs(tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    database.execute(
        "create table lines (id int primary key, order_id bigint, pieces int)",
        "insert into lines select g, g % 500, 2 from generate_series(1, 900) g",
    )
    live = Live(tmp_path, database)
    monkeypatch.chdir(tmp_path)
    (commands,) = blocks(PAGE, "sh")
    (code,) = blocks(PAGE, "python")
    printed: list[tuple[object, ...]] = []
    with live.beside(live.once):
        told = shell(tmp_path, commands)
        exec(compile(code, PAGE, "exec"), {"print": lambda *values: printed.append(values)})
    assert [values[1:] for values in printed] == [(True,), (0, 0, 0)]
    facts = json.loads(told[told.index("\n{") :])
    assert [one["equal"] for one in facts["tables"]] == [True] * 4
    assert "public.lines" in told
