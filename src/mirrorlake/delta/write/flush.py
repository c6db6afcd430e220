"""Flushes new files to the disk while others are written.

A flush takes as long as writing some thousand rows, and a batch writes a data file, a change file
and a file of deletion vectors. All of them must be durable before the commit that refers to them,
but not before the next file is written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from typing import BinaryIO

THREADS = 4
"""Number of parallel flushes."""

MAX_PENDING = 64
"""Maximum number of files that wait for their flush, because each of them stays open."""

_pending: ContextVar[list[Future[None]] | None] = ContextVar("under_way", default=None)
_pools: list[ThreadPoolExecutor] = []
os.register_at_fork(after_in_child=_pools.clear)  # threads stay with the parent


@contextmanager
def flush_in_background() -> Iterator[None]:
    """Flush files of this thread in the background; they are durable when the context ends.

    Raises OSError at the end if a file could not be flushed.
    """
    pending = list[Future[None]]()
    token = _pending.set(pending)
    try:
        yield
    finally:
        _pending.reset(token)
        wait(pending)
    for flush_ in pending:
        flush_.result()


def flush(file: BinaryIO) -> None:
    """Make a written file durable, now or by the end of `flush_in_background`. Raises OSError."""
    file.flush()
    pending = _pending.get()
    if pending is None:
        os.fsync(file.fileno())
        return
    if len(pending) >= MAX_PENDING:
        pending.pop(0).result()
    # A handle of its own, because the writer closes the file.
    handle = os.dup(file.fileno())
    pending.append(_pool().submit(_flush, handle))


def _flush(handle: int) -> None:
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _pool() -> ThreadPoolExecutor:
    """The thread pool of this process, created on first use."""
    if not _pools:
        _pools.append(ThreadPoolExecutor(THREADS, thread_name_prefix="flush"))
    return _pools[0]
