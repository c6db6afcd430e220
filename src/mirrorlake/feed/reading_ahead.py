"""Reads several files at once, and returns what they contain in order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
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
    """Threads that read files, one of which is that of the caller while it waits.

    together: how many small files each of them reads step by step; ahead: maximum number of files
    that are read before they are asked for.
    """

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
    with ThreadPoolExecutor(max(readers.threads - 1, 1), thread_name_prefix="feed") as pool:
        groups = _groups(chain(first, coming), readers.together)
        yield from _in_order(groups, readers, pool)


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
    groups: Iterable[Sequence[FileRead[K, R]]], readers: Readers, pool: ThreadPoolExecutor
) -> Iterator[tuple[K, Callable[[], R]]]:
    begun: deque[_Group[K, R]] = deque()
    helps = readers.threads > 1
    files = size = 0
    try:
        for reads in groups:
            more = sum(one.size for one in reads)
            while begun and (files + len(reads) > readers.ahead or size + more > BYTES_AHEAD):
                done = begun.popleft()
                files -= len(done.reads)
                size -= sum(one.size for one in done.reads)
                yield from done.results(begun if helps else ())
            begun.append(_Group(reads, pool))
            files += len(reads)
            size += more
        while begun:
            yield from begun.popleft().results(begun if helps else ())
    finally:
        for group in begun:
            group.cancel()


class _Group(Generic[K, R]):
    """Files that one thread reads step by step."""

    def __init__(self, reads: Sequence[FileRead[K, R]], pool: ThreadPoolExecutor) -> None:
        self.reads = reads
        self._future: Future[list[_Reading[R]]] = pool.submit(_read, reads)
        self._here: list[_Reading[R]] | None = None

    @property
    def is_read(self) -> bool:
        return self._here is not None or self._future.done()

    def cancel(self) -> bool:
        """Whether no thread reads the files: then none will."""
        return self._future.cancel()

    def read_here(self) -> None:
        """Read the files in this thread, unless another one does."""
        if not self.is_read and self.cancel():
            self._here = _read(self.reads)

    def results(self, later: Collection[_Group[K, R]]) -> Iterator[tuple[K, Callable[[], R]]]:
        """What was read. later: groups that this thread may read while it waits."""
        for number, one in enumerate(self.reads):
            yield one.of, partial(self._result, number, later)

    def _result(self, number: int, later: Collection[_Group[K, R]]) -> R:
        for group in (self, *later) if not self.is_read else ():
            group.read_here()
            if self.is_read:
                break
        return (self._here or self._future.result())[number].result()


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
