"""The process that reads damaged input: what becomes of it is told, and a new one is whole."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator

import pytest

from tests.fuzz.apart import Apart, Finding

MIB = 1 << 20


def doubled(number: int) -> int:
    return 2 * number


def raises() -> None:
    raise LookupError("not ours")


def ends_the_process() -> None:
    ctypes.string_at(0)


def never_ends() -> None:
    threading.Event().wait()


def takes(size: int) -> int:
    return len(b"x" * size)


@pytest.fixture
def apart() -> Iterator[Apart]:
    process = Apart(memory=512 * MIB, patience=120)
    yield process
    process.close()


def found(apart: Apart, *task: object) -> str:
    """What is told of a task; the next one is done all the same."""
    with pytest.raises(Finding) as caught:
        apart.run(*task)  # type: ignore[arg-type]
    assert apart.run(doubled, 2) == 4
    return str(caught.value)


def test_what_is_returned_comes_back(apart: Apart) -> None:
    assert [apart.run(doubled, number) for number in range(3)] == [0, 2, 4]


def test_an_exception_is_reported(apart: Apart) -> None:
    assert "LookupError: not ours" in found(apart, raises)


def test_a_crash_of_the_process_is_reported_with_its_place(apart: Apart) -> None:
    text = found(apart, ends_the_process)
    assert "Segmentation fault" in text
    assert "in ends_the_process" in text


def test_a_peak_of_memory_is_reported_though_it_is_freed(apart: Apart) -> None:
    assert apart.run(takes, MIB) == MIB
    assert "may take 536,870,912" in found(apart, takes, 600 * MIB)


def test_an_endless_call_is_reported_with_its_place(apart: Apart) -> None:
    assert apart.run(doubled, 2) == 4
    apart.patience = 0.1
    with pytest.raises(Finding, match="in never_ends"):
        apart.run(never_ends)
