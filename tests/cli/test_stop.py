"""What does not end in time after a signal, and is to prove something, is no success."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import os, signal, sys, time
from mirrorlake.app.mirror import Mirror
from mirrorlake.cli import main, stop

def stalled(*_args, **_settings):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(30)

stop.CANCEL_AFTER, stop.EXIT_AFTER = 0.1, 0.2
method, *command = sys.argv[1:]
setattr(Mirror, method, stalled)
sys.argv = ["mirrorlake", *command]
main.app()
"""


@pytest.mark.full
@pytest.mark.parametrize(
    "call", [("verify", "verify"), ("wait_until", "wait", "0/1")], ids=["verify", "wait"]
)
def test_a_proof_that_is_stopped_is_no_success(tmp_path: Path, call: tuple[str, ...]) -> None:
    source = {"type": "postgresql", "url": "postgresql://nowhere.invalid/v", "slot": "v"}
    project = {"name": "v", "root": "lake", "source": source}
    (tmp_path / "mirrorlake.yaml").write_text(json.dumps(project))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *call],
        cwd=tmp_path,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert b"Stopped during a step" in done.stderr, done.stderr
    assert done.returncode == 1
