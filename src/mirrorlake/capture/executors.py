"""What reads parts of tables: one after the other, or each on a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from mirrorlake.errors import TableError


class InTurn(Executor):
    """Runs each piece when it is submitted, on the caller's thread."""

    def submit(self, fn, /, *args, **kwargs):  # type: ignore[no-untyped-def]
        future: Future[object] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except TableError as error:
            future.set_exception(error)
        return future


class ReadingThreads(Executor):
    """Runs each piece of work on a thread of its own, which no end of the process waits for."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def work() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001  (the result raises it)
                future.set_exception(error)

        threading.Thread(target=work, name="backfill", daemon=True).start()
        return future


@contextmanager
def loading(workers: int, close: Callable[[], None]) -> Iterator[Executor]:
    """What reads the parts of tables. After an error no part goes on, and no other begins. close:
    what they are read from."""
    if workers <= 1:
        yield InTurn()
        return
    with ThreadPoolExecutor(workers, thread_name_prefix="load") as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            close()
            raise
