"""How much a run tries: the targets of the Makefile set MIRRORLAKE_TESTS to the name of a profile.

quick is `make test`, default `make test-full` and pytest by itself, long `make test-long`, fuzz
`make fuzz`.
"""

from __future__ import annotations

import os

ACTIVE = os.environ.get("MIRRORLAKE_TESTS", "default")
LONG = ACTIVE == "long"


def tries(default: int, *, long: int | None = None) -> int:
    """So many examples or seeds: a quarter in the quick run. long: of the long run, if
    these are not as many as in the default one."""
    if ACTIVE == "quick":
        return max(default // 4, min(default, 3))
    return long if long is not None and LONG else default
