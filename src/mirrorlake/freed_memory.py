"""How long freed memory is kept before it is returned to the system.

To get memory from the system again takes a sixth of a large batch, which the next batch would pay.
"""

from __future__ import annotations

import os

PURGE_DELAY = {"MIMALLOC_PURGE_DELAY": "10000"}
"""The environment variable of the allocator of Arrow, in milliseconds."""

TASK_ENVIRONMENT = {
    **PURGE_DELAY,
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
}
"""Of a process that runs tasks. NumPy's arrays are allocated by glibc, whose
variables are in bytes: the size from which an array is not taken from the heap, and how much free
memory stays at the heap's end."""


def keep_freed_memory() -> None:
    """Set the purge delay for this process and its children, unless it is set. Has no effect on
    this process once pyarrow is imported."""
    for name, value in PURGE_DELAY.items():
        os.environ.setdefault(name, value)
