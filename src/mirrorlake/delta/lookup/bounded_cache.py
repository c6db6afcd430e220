"""A thread-safe LRU cache of bounded size."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(slots=True)
class BoundedCache(Generic[K, V]):
    """An LRU cache for several threads. most: maximum size of all values in bytes; cost: the size
    of a value."""

    most: int
    cost: Callable[[V], int]
    size: int = 0
    _values: OrderedDict[K, tuple[V, int]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __contains__(self, known: K) -> bool:
        return known in self._values

    def get(self, known: K) -> V | None:
        """The value; None if it is not cached."""
        with self._lock:
            found = self._values.get(known)
            if found is None:
                return None
            self._values.move_to_end(known)
            return found[0]

    def put(self, known: K, value: V, cost: int | None = None) -> V:
        """Cache a value in place of another one, and return it. cost: of the value, if known."""
        if cost is None:
            cost = self.cost(value)
        with self._lock:
            if known in self._values:
                self.size -= self._values.pop(known)[1]
            self._values[known] = value, cost
            self.size += cost
            while self.size > self.most and self._values:
                self.size -= self._values.popitem(last=False)[1][1]
        return value

    def clear(self) -> None:
        """Forget all values."""
        with self._lock:
            self._values.clear()
            self.size = 0
