"""The point at which a test lets a command kill itself."""

from __future__ import annotations

import os

from mirrorlake.model.seams import Probe, killing_probe, no_probe

CRASH_AT = "MIRRORLAKE_CRASH_AT"
"""For tests: the named point at which the process kills itself."""


def probe() -> Probe:
    target = os.environ.get(CRASH_AT)
    return killing_probe(target) if target else no_probe
