"""Applying from the command line: a zone that others fill, and the whole way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirrorlake import root
from mirrorlake.capture.records.records import Records
from mirrorlake.storage.local import LocalStore
from tests.cli.conftest import Run
from tests.conftest import Database

pytestmark = pytest.mark.spark


def start(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own: Spark has one session per process."""
    return subprocess.run(
        [sys.executable, "-m", "mirrorlake.cli.main", *arguments],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


@pytest.fixture
def zone(tmp_path: Path) -> Path:
    """A landing zone that somebody else filled, one table of it broken."""
    good = tmp_path / "Files/LandingZone/sales.schema/orders"
    bad = tmp_path / "Files/LandingZone/sales.schema/broken"
    for folder in (good, bad):
        folder.mkdir(parents=True)
        (folder / "_metadata.json").write_text('{"keyColumns": ["id"]}')
    table = pa.table({"id": [1, 2, 3], "name": ["a", "b", None]})
    pq.write_table(table, good / "00000000000000000001.parquet")
    changes = pa.table({"id": [1, 2], "name": ["A", None], "__rowMarker__": [1, 2]})
    pq.write_table(changes, good / "00000000000000000002.parquet")
    (bad / "00000000000000000001.parquet").write_bytes(b"")
    return tmp_path


@pytest.mark.full
def test_a_zone_of_somebody_else_needs_no_configuration(zone: Path, run: Run) -> None:
    done = start(zone, "apply", "--once", "--root", ".", "--json")
    assert done.returncode == 1, done.stderr  # one table is broken
    tables = {table["table"]: table for table in json.loads(done.stdout)["tables"]}
    assert tables["sales.orders"]["last_file"] == 2
    assert tables["sales.broken"]["error"]["code"] == "bad_file"
    rows = run("sql", "--root", str(zone), "select * from sales.orders order by id", "--json")
    assert rows.facts() == [{"id": 1, "name": "A"}, {"id": 3, "name": None}]
    states = {t["table"]: t["state"] for t in _status(run, zone)}
    assert states == {"sales.orders": "Replicating", "sales.broken": "Failed"}


@pytest.mark.full
@pytest.mark.postgres
def test_run_once_ends_when_what_was_committed_is_readable(
    run: Run, shop: Database, tmp_path: Path
) -> None:
    done = start(tmp_path, "run", "--once", "--json", SOURCE=shop.url)
    assert done.returncode == 0, done.stderr
    applied = {t["table"]: t["applied"]["insert"] for t in json.loads(done.stdout)["tables"]}
    assert applied == {"public.orders": 10, "public.log": 0}
    rows = run("sql", "select count(*) as n from public.orders", "--json")
    assert rows.facts() == [{"n": 10}]


def _status(run: Run, zone: Path) -> list[dict[str, str]]:
    return run("status", "--root", str(zone), "--json").facts()["tables"]


@pytest.mark.full
class TestATableThatCaptureStopped:
    @pytest.mark.postgres
    def test_run_once_reports_it(self, run: Run, shop: Database, tmp_path: Path) -> None:
        shop.execute('create table odd (id int primary key, "__x" int)')
        done = start(tmp_path, "run", "--once", "--json", SOURCE=shop.url)
        assert done.returncode == 1, done.stderr
        tables = {table["table"]: table for table in json.loads(done.stdout)["tables"]}
        assert tables["public.odd"]["error"]["code"] == "unsupported_column"
        assert tables["public.orders"]["error"] is None

    def test_apply_once_reports_it(self, zone: Path) -> None:
        Records(LocalStore(zone), root.LANDING).stop(
            "sales.gone", {"code": "table_recreated", "message": "it is another", "hint": ""}
        )
        done = start(zone, "apply", "--once", "--root", ".")
        assert done.returncode == 1
        assert "stopped: table_recreated" in done.stdout
        assert "sales.gone: it is another" in done.stderr


def test_what_is_to_be_warned_of_is_no_part_of_the_facts(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "Files/LandingZone/t"
    folder.mkdir(parents=True)
    (folder / "_metadata.json").write_text('{"keyColumns": ["id"], "protocolVersion": 1, }')
    done = run("status", "--root", ".", "--json")
    assert [table["table"] for table in done.facts()["tables"]] == ["t"]
    assert "protocolVersion" in done.error
