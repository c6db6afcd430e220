"""The OpenAPI document, and a fuzzer that holds the service to it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mirrorlake.server.routes import OPERATIONS, document
from tests.profiles import tries
from tests.server.service import Served


def test_every_route_stands_in_the_document() -> None:
    paths = document()["paths"]
    for one in OPERATIONS:
        assert one.method.lower() in paths[one.address], one
    found = document()["components"]["schemas"]
    assert {"Stream", "ConnectionProfile", "PostgresqlProfile", "CdcStrategy"} <= found.keys()


@pytest.mark.full
def test_a_fuzzer_finds_no_internal_error(tmp_path: Path) -> None:
    served = Served(tmp_path / "service").start()
    try:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "run"),
                f"{served.url}/v1/openapi.json",
                *("--header", f"Authorization: Bearer {served.token}"),
                *("--checks", "not_a_server_error", "--seed", "1"),
                *("--max-examples", str(tries(4, long=30))),
                # What it sends as hosts is connected to, and takes its time; the routes of private
                # connections always refuse, with 501.
                *("--exclude-path-regex", ":discover$|privateConnections"),
                *("--max-time", str(tries(30, long=300)), "--workers", "4"),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=540,
            cwd=tmp_path,
        )
        assert "Server error" not in done.stdout, done.stdout
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        served.stop()
