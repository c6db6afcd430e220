"""Loads whose parts are read by several threads."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field

import pytest

from mirrorlake.capture.staging import as_staged, results


@dataclass(eq=False)
class Load:
    pending: list[Future[int]] = field(default_factory=list)


def test_a_load_ends_with_its_last_part_and_at_once_without_any() -> None:
    first, last = Future[int](), Future[int]()
    two, none = Load([first, last]), Load()
    staged = as_staged([two, none])
    assert next(staged) is none
    assert next(staged) is None
    last.set_result(2)
    assert next(staged) is None
    first.set_result(1)
    assert list(staged) == [two]
    assert list(as_staged([])) == []


def test_a_part_that_has_failed_ends_its_load_while_others_are_read() -> None:
    reading, failed, waiting = Future[int](), Future[int](), Future[int]()
    reading.set_running_or_notify_cancel()
    failed.set_exception(ValueError("its table"))
    load = Load([reading, failed, waiting])
    assert list(as_staged([load])) == [None, load]
    with pytest.raises(ValueError, match="its table"):
        results(load)
    assert waiting.cancelled()
