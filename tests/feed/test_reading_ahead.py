"""Files are read at once, and returned in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import pytest

from mirrorlake.feed import reading_ahead
from mirrorlake.feed.reading_ahead import READERS, FileRead, Readers, Steps, in_order

TWO = Readers(2, 1, 16)


def reading(of: int, size: int, *calls: Callable[[], Any]) -> FileRead[int, Any]:
    """A file that is read in as many steps as there are calls, of which the last gives the
    result."""

    def read() -> Steps[Any]:
        for call in calls[:-1]:
            call()
            yield
        return calls[-1]()

    return FileRead(of, size, read)


def results(
    reads: Iterable[FileRead[int, Any]], readers: Readers = READERS
) -> Iterator[tuple[int, Any]]:
    for of, result in in_order(reads, readers):
        yield of, result()


def test_what_is_read_early_is_returned_in_its_place() -> None:
    later = threading.Event()

    def first() -> str:
        assert later.wait(30)  # until another file was read beside it
        return "first"

    reads = [reading(1, 1, first), reading(2, 1, later.set, lambda: "second")]
    assert list(results(reads, TWO)) == [(1, "first"), (2, "second")]


def test_one_file_is_read_where_it_is_asked_for() -> None:
    assert list(results([reading(1, 1, threading.current_thread)])) == [
        (1, threading.current_thread())
    ]
    assert list(results([])) == []


@pytest.mark.parametrize(
    ("size", "ahead"),
    [(1, TWO.ahead), (reading_ahead.BYTES_AHEAD // 2, 2), (1 << 40, 1)],
)
def test_so_many_files_and_bytes_are_read_ahead(size: int, ahead: int) -> None:
    asked: list[int] = []

    def reads() -> Iterator[FileRead[int, Any]]:
        for number in range(100):
            asked.append(number)
            yield reading(number, size, lambda: 0)

    found = results(reads(), TWO)
    next(found)
    assert len(asked) == ahead + 1
    assert [of for of, _zero in found] == list(range(1, 100))


def test_a_file_that_cannot_be_read_comes_after_those_before_it() -> None:
    def refuse() -> int:
        raise FileNotFoundError("3")

    calls: list[Callable[[], int]] = [lambda: 1, lambda: 2, refuse, lambda: 4]
    found = in_order(reading(number, 1, call) for number, call in enumerate(calls))
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

    found = results((reading(number, 1, read(number)) for number in range(10)), TWO)
    assert next(found) == (0, 0)
    closing = threading.Thread(target=found.close)  # type: ignore[attr-defined]
    closing.start()
    threading.Timer(0.2, held.set).start()
    closing.join()
    assert len(begun) <= 1 + 2


def test_each_step_is_taken_for_all_files_of_a_group_before_the_next() -> None:
    """The first files are read one by one, and a large one alone."""
    taken = list[tuple[int, str]]()

    def steps(number: int) -> list[Callable[[], None]]:
        return [partial(taken.append, (number, step)) for step in ("open", "decode")]

    sizes = [1, 1, 1, 1, 1, reading_ahead.BYTES_TOGETHER, 1, 1, 1]
    reads = [reading(number, size, *steps(number)) for number, size in enumerate(sizes)]
    assert [of for of, _none in results(reads, Readers(1, 2, 16))] == list(range(9))
    groups = [[0], [1], [2, 3], [4], [5], [6, 7], [8]]
    assert taken == [
        (number, step) for group in groups for step in ("open", "decode") for number in group
    ]


def test_a_file_that_cannot_be_read_keeps_no_other_from_being_read() -> None:
    def refuse() -> int:
        raise FileNotFoundError("5")

    calls = [partial(int, number) for number in range(10)]
    reads = [
        reading(number, 1, *([refuse] if number == 5 else []), call)
        for number, call in enumerate(calls)
    ]
    found = dict(in_order(reads, Readers(2, 4, 16)))
    with pytest.raises(FileNotFoundError):
        found.pop(5)()
    assert {of: result() for of, result in found.items()} == {
        number: number for number in range(10) if number != 5
    }
