"""Lanes on one thread: work beside the cycles is done when the test, or the seed, says so."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from random import Random
from typing import Any

from mirrorlake.app.loop.background import Executors


class _Later(Future[Any]):
    """Work that is done at the moment at which somebody asks and `is_time` agrees."""

    def __init__(self, work: Callable[[], Any], is_time: Callable[[], bool]) -> None:
        super().__init__()
        self._work, self._is_time = work, is_time

    def done(self) -> bool:
        if not super().done() and self._is_time():
            try:
                self.set_result(self._work())
            except BaseException as error:  # noqa: BLE001  (it ends who asks for the result)
                self.set_exception(error)
        return super().done()


class ManualExecutor(Executor):
    """What is submitted is done when `is_time` says so, and what came first comes first."""

    def __init__(self, is_time: Callable[[], bool]) -> None:
        self.is_time = is_time
        self.submitted: list[Future[Any]] = []

    def submit(self, work: Callable[..., Any], /, *_args: Any, **_named: Any) -> Future[Any]:
        earlier = self.submitted[-1] if self.submitted else None
        later = _Later(work, lambda: (earlier is None or earlier.done()) and self.is_time())
        self.submitted.append(later)
        return later


def seeded(random: Random) -> Executors:
    """Each work ends at one of the next looks."""
    return Executors(
        ManualExecutor(lambda: random.random() < 0.4), ManualExecutor(lambda: random.random() < 0.4)
    )


class Held:
    """Lanes whose work is done while `is_open`."""

    def __init__(self) -> None:
        self.is_open = False
        self.large, self.maintenance = (
            ManualExecutor(lambda: self.is_open),
            ManualExecutor(lambda: self.is_open),
        )
        self.executors = Executors(self.large, self.maintenance)
