"""A store that does what it is asked and does not say so, or says so of what it has not done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mirrorlake.storage.store import Store

WRITES = {
    *("publish", "make_folder", "flush", "create", "replace", "move", "delete", "delete_folder")
}

When = Callable[[str, int], bool]
"""Asked of each write, with its method and how many writes there were, from 1."""


class LossyStore:
    """A `Store` over another one; staging and reading are left as they are.

    lose: says which writes fail; is_done: whether such a write takes effect all the same; error:
    what it raises. A write fails once.
    """

    def __init__(
        self,
        store: Store,
        lose: When,
        *,
        is_done: bool = True,
        error: type[OSError] = TimeoutError,
    ) -> None:
        self._store, self._lose, self._is_done, self._error = store, lose, is_done, error
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in WRITES:
            return method

        def write(*arguments: Any) -> None:
            self.writes += 1
            lost = self._lose(name, self.writes)
            if self._is_done or not lost:
                method(*arguments)
            if lost:
                raise self._error(name)

        return write


def first(method: str) -> When:
    """The first write of a kind."""
    left = [method]

    def lose(name: str, _number: int) -> bool:
        if left == [name]:
            left.clear()
            return True
        return False

    return lose
