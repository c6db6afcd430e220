"""The page on reading the tables runs as it stands, on a table with deletion vectors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaProtocolError

from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.spark.session.spark_session import Spark
from tests.app.zones import Zone
from tests.delta.duckdb_delta import PACKAGES
from tests.docs.blocks import blocks, said, shell

PAGE = "how-to/read-the-tables.md"


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """Three rows, of which one is changed and one deleted in a second batch."""
    zone = Zone(tmp_path / "shop")
    zone.table("orders", "id")
    zone.land("orders", 1, {"id": [1, 2, 3], "note": ["old", "old", "old"]})
    zone.apply()
    zone.land("orders", 2, {"id": [1, 2], "note": ["new", None], "__rowMarker__": [1, 2]})
    zone.apply()
    return tmp_path / "shop/Tables/s/orders"


@pytest.mark.full
def test_every_block_prints_what_it_says(
    orders: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    snapshot = TableLog(orders).snapshot()
    assert any(add.get("deletionVector") for add in snapshot.files.values())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))  # where DuckDB puts its extension
    (commands,) = blocks(PAGE, "sh")
    told = shell(tmp_path, commands)
    assert "s.orders" in told
    names: dict[str, Any] = {}
    for code in blocks(PAGE, "python")[:-1]:
        if "import duckdb\n" in code:
            printed = printed_with_its_duckdb(code)
        else:
            exec(compile(code, PAGE, "exec"), names)
            printed = capsys.readouterr().out
        assert printed.splitlines() == said(code), code


def printed_with_its_duckdb(code: str) -> str:
    """What a program prints with the DuckDB that has a Delta extension."""
    found = f"import sys; sys.path.insert(0, {str(PACKAGES)!r})\n"
    command = [sys.executable, "-c", found + code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.full
@pytest.mark.spark
def test_the_block_for_spark_prints_what_it_says(
    spark: Spark, orders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = blocks(PAGE, "python")[-1]
    here = code.replace('"shop/', f'"{tmp_path}/shop/')  # Spark has a current folder of its own
    exec(compile(here, PAGE, "exec"), {"spark": spark.session})
    assert capsys.readouterr().out.splitlines() == said(code)


def test_what_refuses_deletion_vectors_is_named(orders: Path) -> None:
    with pytest.raises(DeltaProtocolError, match=r"(?i)deletion ?vector"):
        DeltaTable(orders).to_pandas()
