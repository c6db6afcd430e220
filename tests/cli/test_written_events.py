"""Commands for a project that writes event files."""

from __future__ import annotations

from pathlib import Path

from mirrorlake.model.clock import WallClock
from mirrorlake.storage.lease import Lease
from mirrorlake.storage.local import LocalStore
from tests.cli.conftest import Run

PROJECT = """\
name: shop
root: ./root
source: {type: postgresql, url: "postgresql://nobody@127.0.0.1:1/shop"}
destination:
  - {type: events, url: ./one}
  - {type: events, url: ./two, format: json}
"""


def test_the_status_of_a_project_without_tables_tells_where_its_files_are(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "mirrorlake.yaml").write_text(PROJECT)
    assert run("status").out.splitlines() == [
        "shop: Stopped. capture: not running",
        f"event files: {tmp_path / 'one'}",
        f"event files: {tmp_path / 'two'}",
    ]
    lease = Lease(LocalStore(tmp_path / "root"), "capture", WallClock())
    lease.take()
    assert run("status").out.startswith("shop: Running. capture: process ")
    told = run("status", "--json").facts()
    lease.release()
    assert (told["state"], told["landing_zone"], told["tables"]) == ("Running", "", [])
    assert told["event_files"] == [str(tmp_path / "one"), str(tmp_path / "two")]


def test_the_status_of_a_project_with_tables_tells_where_its_files_are_too(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "mirrorlake.yaml").write_text(PROJECT + "  - {type: landing}\n")
    shown = run("status").out.splitlines()
    assert shown[0] == "shop: Stopped. capture: not running; apply: not running"
    assert shown[1].startswith("landing zone: ")
    assert shown[2:] == [*(f"event files: {tmp_path / n}" for n in ("one", "two")), "no tables yet"]


def test_a_project_without_tables_compares_none_with_the_source(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mirrorlake.yaml").write_text(PROJECT)
    done = run("verify")
    assert (done.code, "has no tables to compare" in done.error) == (2, True)
