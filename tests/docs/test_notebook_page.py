"""The cells of the notebook run as they stand, in a session that was given to them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.spark.session.spark_session import Spark
from tests.docs.blocks import blocks, said

PAGE = "tutorials/in-a-notebook.md"
LOG_LINE = re.compile(r"\d{4}-\d\d-\d\d [\d:]+ \[")


@pytest.mark.full
@pytest.mark.spark
def test_every_cell_prints_what_it_says(
    spark: Spark,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    spark.session.sql("select 1").collect()  # upon which Spark writes its settings in its own way
    before = dict(spark.session.sparkContext.getConf().getAll())
    names: dict[str, Any] = {"spark": spark.session}
    for code in blocks(PAGE, "python"):
        exec(compile(code, PAGE, "exec"), names)
        lines = capsys.readouterr().out.splitlines()
        printed = [line for line in lines if line and not LOG_LINE.match(line)]
        assert printed == said(code), code
    assert dict(spark.session.sparkContext.getConf().getAll()) == before
    assert [path.name for path in tmp_path.iterdir()] == ["shop"]
