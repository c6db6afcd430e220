"""How long the allocator of Arrow keeps freed memory before it returns it to the system."""

from __future__ import annotations

import os

PURGE_DELAY = {"MIMALLOC_PURGE_DELAY": "10000"}
"""The environment variable, in milliseconds. To get memory from the system again takes a sixth of a
large batch, which the next batch would pay."""


def keep_freed_memory() -> None:
    """Set the variable for this process and its children, unless it is set. Has no effect on this
    process once pyarrow is imported."""
    for name, value in PURGE_DELAY.items():
        os.environ.setdefault(name, value)
