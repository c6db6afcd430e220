"""Reads several files at once, and returns what they contain in order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Generic, Never, TypeVar

BYTES_AHEAD = 32 << 20
"""Maximum bytes of files that are read before they are asked for, or one file."""

BYTES_TOGETHER = 256 << 10
"""Maximum bytes of files that one thread reads step by step, or one file."""

K = TypeVar("K")
R = TypeVar("R")

Steps = Generator[None, None, R]
"""Reads a file in steps. Between two of them the same step is taken for other files: a processor
runs the same code again in a sixth less time, because it still has it in its caches."""


@dataclass(frozen=True, slots=True)
class Readers:
    """Threads that read files. together: how many small files each of them reads step by step;
    ahead: maximum number of files that are read before they are asked for."""

    threads: int
    together: int
    ahead: int


READERS = Readers(min(4, os.cpu_count() or 1), 8, 64)
"""Decoding a file keeps a processor busy."""

READERS_OF_OBJECTS = Readers(8, 1, 16)
"""An object store answers after some time, for a small file as for a larger one."""


@dataclass(frozen=True, slots=True)
class FileRead(Generic[K, R]):
    """of: what the file belongs to; size: of the file in bytes; read: called in any thread."""

    of: K
    size: int
    read: Callable[[], Steps[R]]


def in_order(
    reads: Iterable[FileRead[K, R]], readers: Readers = READERS
) -> Generator[tuple[K, Callable[[], R]], None, None]:
    """What each file belongs to, and a function that returns what was read, and raises if it cannot
    be read. So a caller may look at what the next file belongs to before that is known."""
    coming = iter(reads)
    first = list(islice(coming, 2))
    if len(first) < 2:  # the next commit of a table that is followed: threads would only delay it
        yield from ((one.of, partial(read_alone, one)) for one in first)
        return
    with ThreadPoolExecutor(readers.threads, thread_name_prefix="feed") as pool:
        groups = _groups(chain(first, coming), readers.together)
        yield from _in_order(groups, readers.ahead, pool)


def _groups(reads: Iterable[FileRead[K, R]], together: int) -> Iterator[Sequence[FileRead[K, R]]]:
    """The files that a thread reads step by step. The first groups are small, so that a few files
    are divided among all threads."""
    group: list[FileRead[K, R]] = []
    size = 0
    for number, one in enumerate(reads):
        if group and size + one.size > BYTES_TOGETHER:
            yield group
            group, size = [], 0
        group.append(one)
        size += one.size
        if size >= BYTES_TOGETHER or len(group) >= min(together, 1 + number // together):
            yield group
            group, size = [], 0
    if group:
        yield group


def _in_order(
    groups: Iterable[Sequence[FileRead[K, R]]], ahead: int, pool: ThreadPoolExecutor
) -> Iterator[tuple[K, Callable[[], R]]]:
    begun: deque[tuple[Sequence[FileRead[K, R]], Future[list[_Reading[R]]]]] = deque()
    files = size = 0
    try:
        for group in groups:
            more = sum(one.size for one in group)
            while begun and (files + len(group) > ahead or size + more > BYTES_AHEAD):
                done, future = begun.popleft()
                files -= len(done)
                size -= sum(one.size for one in done)
                yield from _results(done, future)
            begun.append((group, pool.submit(_read, group)))
            files += len(group)
            size += more
        while begun:
            yield from _results(*begun.popleft())
    finally:
        for _group, future in begun:
            future.cancel()


def _results(
    group: Sequence[FileRead[K, R]], future: Future[list[_Reading[R]]]
) -> Iterator[tuple[K, Callable[[], R]]]:
    for number, one in enumerate(group):
        yield one.of, partial(_result, future, number)


def _result(future: Future[list[_Reading[R]]], number: int) -> R:
    return future.result()[number].result()


class _Reading(Generic[R]):
    """A file that is being read."""

    def __init__(self, read: Callable[[], Steps[R]]) -> None:
        self._steps = read()
        self._outcome: Callable[[], R]

    def step(self) -> bool:
        """Take the next step. Returns whether there may be more."""
        try:
            next(self._steps)
        except StopIteration as end:
            self._outcome = partial(_return, end.value)
        except Exception as error:  # noqa: BLE001  (raised where the result is asked for)
            self._outcome = partial(_fail, error)
        else:
            return True
        return False

    def result(self) -> R:
        """What was read. Raises what a step raised."""
        return self._outcome()


def _return(found: R) -> R:
    return found


def _fail(error: Exception) -> Never:
    raise error


def _read(group: Iterable[FileRead[K, R]]) -> list[_Reading[R]]:
    """Read files, each step of all of them before the next one."""
    readings = [_Reading(one.read) for one in group]
    begun = readings
    while begun:
        begun = [reading for reading in begun if reading.step()]
    return readings


def read_alone(one: FileRead[K, R]) -> R:
    """Read one file, here and now."""
    return _read([one])[0].result()
