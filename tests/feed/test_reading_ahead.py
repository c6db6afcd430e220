"""Files are read at once, and returned in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import pytest

from mirrorlake.feed import reading_ahead
from mirrorlake.feed.reading_ahead import FileRead, in_order


def results(
    reads: Iterable[FileRead[int, Any]], readers: int = reading_ahead.READERS
) -> Iterator[tuple[int, Any]]:
    for of, result in in_order(reads, readers):
        yield of, result()


def test_what_is_read_early_is_returned_in_its_place() -> None:
    later = threading.Event()

    def first() -> str:
        assert later.wait(30)  # until another file was read beside it
        return "first"

    reads = [FileRead(1, 1, first), FileRead(2, 1, lambda: later.set() or "second")]
    assert list(results(reads, 2)) == [(1, "first"), (2, "second")]


def test_one_file_is_read_where_it_is_asked_for() -> None:
    assert list(results([FileRead(1, 1, threading.current_thread)])) == [
        (1, threading.current_thread())
    ]
    assert list(results([])) == []


@pytest.mark.parametrize(
    ("size", "ahead"),
    [(1, reading_ahead.FILES_AHEAD), (reading_ahead.BYTES_AHEAD // 2, 2), (1 << 40, 1)],
)
def test_so_many_files_and_bytes_are_read_ahead(size: int, ahead: int) -> None:
    asked: list[int] = []

    def reads() -> Iterator[FileRead[int, int]]:
        for number in range(100):
            asked.append(number)
            yield FileRead(number, size, lambda: 0)

    found = results(reads())
    next(found)
    assert len(asked) == ahead + 1
    assert [of for of, _zero in found] == list(range(1, 100))


def test_a_file_that_cannot_be_read_comes_after_those_before_it() -> None:
    def refuse() -> int:
        raise FileNotFoundError("3")

    calls: list[Callable[[], int]] = [lambda: 1, lambda: 2, refuse, lambda: 4]
    found = in_order(FileRead(number, 1, call) for number, call in enumerate(calls))
    assert [(of, result()) for of, result in islice(found, 2)] == [(0, 1), (1, 2)]
    of, result = next(found)
    assert of == 2
    with pytest.raises(FileNotFoundError):
        result()


def test_what_is_not_asked_for_any_more_is_not_read() -> None:
    held, begun = threading.Event(), list[int]()

    def read(number: int) -> Callable[[], int]:
        def call() -> int:
            begun.append(number)
            assert number == 0 or held.wait(30)
            return number

        return call

    found = results((FileRead(number, 1, read(number)) for number in range(10)), 2)
    assert next(found) == (0, 0)
    closing = threading.Thread(target=found.close)  # type: ignore[attr-defined]
    closing.start()
    threading.Timer(0.2, held.set).start()
    closing.join()
    assert len(begun) <= 1 + 2
