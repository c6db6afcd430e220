"""Logs on standard error."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.app.zones import Zone


def test_a_name_with_a_line_break_stays_on_one_line() -> None:
    script = (
        "import structlog; from mirrorlake.cli import logs; logs.configure(); "
        "structlog.get_logger().info('batch_applied', table='s.a\\nlevel=error\\x1b[31m')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    (line,) = done.stderr.splitlines()
    assert r"a\nlevel=error\x1b[31m" in line


def test_logs_in_json_are_one_object_on_each_line(tmp_path: Path) -> None:
    zone = Zone(tmp_path / "root", None)  # type: ignore[arg-type]
    zone.table("a\nb", "id")
    zone.land("a\nb", 2, {"id": [1]})  # number 1 is missing
    done = subprocess.run(
        [sys.executable, "-m", "mirrorlake", "apply", "--once", "--log-json", "--root", zone.root],
        capture_output=True,
        text=True,
        check=False,
    )
    logged = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    (blocked,) = [one for one in logged if one.get("table") == "s.a\nb"]
    assert blocked["level"] == "error"
    assert blocked["event"]
    assert blocked["timestamp"].endswith("Z")


def test_a_log_on_a_full_disk_ends_nothing(tmp_path: Path) -> None:
    zone = Zone(tmp_path / "root", None)  # type: ignore[arg-type]
    zone.table("t", "id")
    zone.land("t", 2, {"id": [1]})  # number 1 is missing, which is logged
    command = [sys.executable, "-m", "mirrorlake", "apply", "--once", "--json"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*command, "--root", zone.root],
            stdout=subprocess.PIPE,
            stderr=full,
            text=True,
            check=False,
        )
    (table,) = json.loads(done.stdout)["tables"]
    assert table["error"]["code"] == "missing_file"
