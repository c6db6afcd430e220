"""Logs on standard error."""

from __future__ import annotations

import subprocess
import sys


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
