"""The program, which kills itself at the named point in CRASH_AT: `python -m tests.crash.entry`.

Only this entry listens to the points; the program that is installed has nothing that could.
"""

from __future__ import annotations

import os
import signal
import threading

from mirrorlake.cli import crash
from mirrorlake.cli.main import run
from mirrorlake.model.crash_points import CrashHook, CrashPoint

CRASH_AT = "CRASH_AT"


def main() -> None:
    if target := os.environ.get(CRASH_AT):
        crash.reached = kill_at(target)
    run()


def kill_at(target: str) -> CrashHook:
    """A hook that kills the process at `target`, or at its n-th passage for `target#n`."""
    name, _, count = target.partition("#")
    point, left = CrashPoint(name), int(count or 1)
    lock = threading.Lock()

    def hook(passed: CrashPoint) -> None:
        nonlocal left
        with lock:
            left -= passed is point
            if left == 0 and passed is point:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook


if __name__ == "__main__":
    main()
