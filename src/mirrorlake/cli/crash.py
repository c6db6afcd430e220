"""The point at which a test lets a command kill itself."""

from __future__ import annotations

import os

from mirrorlake.model.crash_points import CrashHook, kill_at, no_crash

CRASH_AT = "MIRRORLAKE_CRASH_AT"
"""For tests: the named point at which the process kills itself."""


def reached() -> CrashHook:
    target = os.environ.get(CRASH_AT)
    return kill_at(target) if target else no_crash
