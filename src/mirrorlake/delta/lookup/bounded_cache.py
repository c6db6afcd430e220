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
    _values: OrderedDict[K, V] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __contains__(self, known: K) -> bool:
        return known in self._values

    def get(self, known: K) -> V | None:
        """The value; None if it is not cached."""
        with self._lock:
            if known in self._values:
                self._values.move_to_end(known)
            return self._values.get(known)

    def put(self, known: K, value: V) -> V:
        """Cache a value in place of another one, and return it."""
        with self._lock:
            if known in self._values:
                self.size -= self.cost(self._values[known])
            self._values[known] = value
            self._values.move_to_end(known)
            self.size += self.cost(value)
            while self.size > self.most and self._values:
                self.size -= self.cost(self._values.popitem(last=False)[1])
        return value

    def clear(self) -> None:
        """Forget all values."""
        with self._lock:
            self._values.clear()
            self.size = 0
