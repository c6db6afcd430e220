"""Storage that takes no more: said in one sentence, and gone on from when it does."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.crash.project import CHANGES, Project, assert_landed

pytestmark = [pytest.mark.postgres, pytest.mark.crash, pytest.mark.full]


@pytest.mark.parametrize("when", ["load", "changes"])
def test_capture_that_cannot_write_says_so_and_goes_on_later(project: Project, when: str) -> None:
    if when == "changes":
        project.run("capture", "--once")
        project.database.execute(CHANGES)
    command = [sys.executable, "-m", "mirrorlake.cli.main", "capture", "--once"]
    command += ["-c", str(project.file)]
    done = subprocess.run(
        ["sh", "-c", 'ulimit -f 4; exec "$0" "$@"', *command],
        env=os.environ | {"TEST_URL": project.database.url},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 3, done.stderr
    assert "the storage returned an error: file too large" in done.stderr
    assert "Traceback" not in done.stderr
    if when == "load":
        project.database.execute(CHANGES)
    project.run("capture", "--once")
    assert_landed(project)
