"""Flushes new files to the disk while others are written.

A disk takes as long to answer as a task to write some thousand rows, and a batch writes a data
file, a change file and a file of vectors. All of them must be durable before the commit that names
them, but none before the next one is begun.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from typing import BinaryIO

WIDTH = 4
"""Files that are flushed at the same time."""

MOST = 64
"""Files that wait to be flushed at most: each of them stays open until then."""

_under_way: ContextVar[list[Future[None]] | None] = ContextVar("under_way", default=None)
_pools: list[ThreadPoolExecutor] = []
os.register_at_fork(after_in_child=_pools.clear)  # threads stay with the parent


@contextmanager
def behind() -> Iterator[None]:
    """What this thread flushes inside is durable at the end of it, and not before.

    Raises OSError at the end for a file that could not be flushed.
    """
    mine = list[Future[None]]()
    token = _under_way.set(mine)
    try:
        yield
    finally:
        _under_way.reset(token)
        wait(mine)
    for one in mine:
        one.result()


def flush(file: BinaryIO) -> None:
    """Make a file durable that has been written: now, or by the end of `behind`. Raises OSError."""
    file.flush()
    mine = _under_way.get()
    if mine is None:
        os.fsync(file.fileno())
        return
    if len(mine) >= MOST:
        mine.pop(0).result()
    # Another handle: whoever has written the file closes it.
    handle = os.dup(file.fileno())
    mine.append(_pool().submit(_flush, handle))


def _flush(handle: int) -> None:
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _pool() -> ThreadPoolExecutor:
    """Of this process, made when it is first needed."""
    if not _pools:
        _pools.append(ThreadPoolExecutor(WIDTH, thread_name_prefix="flush"))
    return _pools[0]
