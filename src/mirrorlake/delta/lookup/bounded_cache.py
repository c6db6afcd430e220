"""What is remembered of files, up to a bound: that which was looked at last."""

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
    """Values by name, for several threads. most: bytes of all of them; cost: those of one."""

    most: int
    cost: Callable[[V], int]
    looks: int = 0
    size: int = 0
    _values: OrderedDict[K, tuple[V, int]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __contains__(self, known: K) -> bool:
        return known in self._values

    def get(self, known: K) -> V | None:
        """None too where it has just gone."""
        with self._lock:
            found = self._values.pop(known, None)
            if found is None:
                return None
            self.looks += 1
            self._values[known] = found[0], self.looks
            return found[0]

    def put(self, known: K, value: V) -> V:
        """Returns the value."""
        with self._lock:
            if known not in self._values:
                self.looks += 1
                self._values[known] = value, self.looks
                self.size += self.cost(value)
            while self.size > self.most and self._values:
                _name, (oldest, _look) = self._values.popitem(last=False)
                self.size -= self.cost(oldest)
        return value

    def has_room(self, size: int, since: int) -> bool:
        """Whether so many bytes are free, or are with values not looked at since a look."""
        with self._lock:
            free = self.most - self.size
            for value, look in self._values.values():
                if free >= size or look >= since:
                    break
                free += self.cost(value)
            return free >= size
