"""The demo ends on a signal: soon, and without leaving anything."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mirrorlake.model.clock import WallClock
from tests.crash.signalled import SECONDS, processes_that_name, send, until_it_says

pytestmark = [pytest.mark.postgres, pytest.mark.crash, pytest.mark.full, pytest.mark.spark]

MOMENTS = [
    ("Filling", signal.SIGINT, 130),
    ("Starting Spark", signal.SIGTERM, 143),
    ("Initial load", signal.SIGINT, 130),
    ("Mirroring", signal.SIGINT, 130),
    ("Verifying", signal.SIGTERM, 143),
]


@pytest.mark.parametrize(("moment", "number", "code"), MOMENTS, ids=[m for m, *_ in MOMENTS])
def test_the_demo_ends_on_a_signal_and_leaves_nothing(
    temporary: Path, moment: str, number: signal.Signals, code: int
) -> None:
    demo = _demo(temporary)
    until_it_says(demo, moment)
    WallClock().sleep(0.7)
    seconds = send(demo, number, group=True)
    told = demo.communicate()[1]
    assert demo.returncode == code, told
    assert seconds < SECONDS, told
    assert "Traceback" not in told, told
    assert "Exception" not in told
    assert processes_that_name(str(temporary)) == []
    # The folder in which PySpark waits for a JVM that is just starting is not ours.
    assert [f.name for f in temporary.glob("mirrorlake-*") if f.is_dir()] == []


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder for temporary files that PostgreSQL's user can enter."""
    folder = Path(tempfile.mkdtemp(prefix="mirrorlake-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def _demo(temporary: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "mirrorlake.cli.main",
            "demo",
            "--rows",
            "300000",
            "--seconds",
            "5",
        ],
        env=os.environ | {"TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
