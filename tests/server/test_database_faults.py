"""What the service keeps is locked, full or damaged: requests are refused, and nothing ends."""

from __future__ import annotations

import resource
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.errors import StorageUnavailable
from tests.server.service import PARENT, Served, wait

pytestmark = pytest.mark.full

PROFILES = f"/v1/{PARENT}/connectionProfiles"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    service = Served(tmp_path / "service", "--no-apply").start()
    yield service
    service.stop()


def create(served: Served, name: str) -> tuple[int, Any]:
    profile = {"fileSystemProfile": {"rootPath": name}}
    return served.call("POST", f"{PROFILES}?connectionProfileId={name}", profile)


def is_refused(answer: tuple[int, Any]) -> bool:
    code, body = answer
    return code == 503 and body["error"]["status"] == "UNAVAILABLE"


def names(served: Served) -> list[str]:
    found = served.call("GET", PROFILES)[1]["connectionProfiles"]
    return [one["name"].rpartition("/")[2] for one in found]


def test_a_locked_database_refuses_changes_and_is_read(served: Served) -> None:
    assert create(served, "one")[0] == 200
    database = served.folder / "streams.sqlite"
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("begin immediate")
        assert is_refused(create(served, "two"))
        assert names(served) == ["one"]
    assert create(served, "two")[0] == 200
    wait(lambda: served.call("GET", "/readyz")[0] == 200, 120)


def test_a_full_disk_refuses_changes_and_loses_nothing(served: Served) -> None:
    assert create(served, "one")[0] == 200
    assert served.process
    _soft, hard = resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (1, hard))
    assert is_refused(create(served, "two"))
    assert names(served) == ["one"]
    resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
    assert create(served, "two")[0] == 200
    served.kill()
    served.start()
    assert names(served) == ["one", "two"]


def test_damaged_secrets_refuse_what_needs_them(served: Served) -> None:
    (served.folder / "secrets.json").write_text("{")
    assert is_refused(create(served, "one"))
    assert served.call("GET", PROFILES)[0] == 200
    (served.folder / "secrets.json").unlink()
    assert create(served, "one")[0] == 200


def test_a_service_with_a_damaged_database_says_so_and_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "service"
    folder.mkdir()
    damaged = folder / "streams.sqlite"
    damaged.write_bytes(b"no database" * 1_000)
    done = subprocess.run(
        [sys.executable, "-m", "mirrorlake.cli.main", "serve", "--folder", folder, "--port", "0"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == StorageUnavailable.exit_code
    assert "the database of the streams returned an error" in done.stderr
    assert "Traceback" not in done.stderr
    assert damaged.read_bytes() == b"no database" * 1_000
