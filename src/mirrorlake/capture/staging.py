"""Loads whose parts are read by several threads, in the order in which they are complete."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

TICK_SECONDS = 1.0


class PendingLoad(Protocol):
    @property
    def pending(self) -> Sequence[Future[Any]]:
        """Its parts."""
        ...


Load = TypeVar("Load", bound=PendingLoad)


def as_staged(loads: Sequence[Load]) -> Iterator[Load | None]:
    """Each load when all of its parts have ended, or one has failed; between, None at least once a
    second. Loads without parts come first."""
    ended: SimpleQueue[tuple[int, Future[Any]]] = SimpleQueue()
    left = {number: len(load.pending) for number, load in enumerate(loads) if load.pending}

    def end(number: int, part: Future[Any]) -> None:
        ended.put((number, part))

    for number, load in enumerate(loads):
        for part in load.pending:
            part.add_done_callback(partial(end, number))
    yield from (load for load in loads if not load.pending)
    while left:
        yield None
        try:
            number, part = ended.get(timeout=TICK_SECONDS)
        except Empty:
            continue
        if number not in left:
            continue
        left[number] -= 1
        if part.cancelled() or part.exception() or not left[number]:
            del left[number]
            yield loads[number]


def results(load: PendingLoad) -> list[Any]:
    """Those of the parts of a load that `as_staged` has yielded. Raises the error of one that has
    failed, and lets no other begin: parts that are read already are not waited for."""
    for part in load.pending:
        if part.done() and not part.cancelled() and (error := part.exception()):
            for other in load.pending:
                other.cancel()
            raise error
    return [part.result() for part in load.pending]
