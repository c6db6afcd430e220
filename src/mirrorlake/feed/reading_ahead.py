"""Reads several files at once, and returns what they contain in order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice
from typing import Generic, TypeVar

READERS = min(4, os.cpu_count() or 1)
"""Files that are read at once: decoding them keeps a processor busy."""

READERS_OF_OBJECTS = 8
"""The same on an object store, which answers after some time."""

FILES_AHEAD, BYTES_AHEAD = 16, 32 << 20
"""Maximum number and bytes of files that are read before they are asked for, or one file."""

K = TypeVar("K")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class FileRead(Generic[K, R]):
    """of: what the file belongs to; size: of the file in bytes; read: called in any thread."""

    of: K
    size: int
    read: Callable[[], R]


def in_order(
    reads: Iterable[FileRead[K, R]], readers: int = READERS
) -> Generator[tuple[K, Callable[[], R]], None, None]:
    """What each file belongs to, and a function that returns what was read, and raises if it cannot
    be read. So a caller may look at what the next file belongs to before that is known."""
    coming = iter(reads)
    first = list(islice(coming, 2))
    if len(first) < 2:  # the next commit of a table that is followed: threads would only delay it
        yield from ((one.of, one.read) for one in first)
        return
    with ThreadPoolExecutor(readers, thread_name_prefix="feed") as pool:
        yield from _in_order(chain(first, coming), pool)


def _in_order(
    reads: Iterable[FileRead[K, R]], pool: ThreadPoolExecutor
) -> Iterator[tuple[K, Callable[[], R]]]:
    begun: deque[tuple[FileRead[K, R], Future[R]]] = deque()
    size = 0
    try:
        for one in reads:
            while begun and (len(begun) >= FILES_AHEAD or size + one.size > BYTES_AHEAD):
                done, future = begun.popleft()
                size -= done.size
                yield done.of, future.result
            begun.append((one, pool.submit(one.read)))
            size += one.size
        while begun:
            done, future = begun.popleft()
            yield done.of, future.result
    finally:
        for _one, future in begun:
            future.cancel()
