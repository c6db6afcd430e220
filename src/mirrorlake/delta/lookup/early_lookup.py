"""Looks up keys beside other work, before it is known which of them are needed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa

from mirrorlake.delta.lookup.key_lookup import KeyedRows

Search = Callable[[pa.Table], KeyedRows]
"""Finds the rows with some keys, which are distinct."""


class EarlyLookup:
    """A search that begins in a thread of `pool` when this is made.

    keys: those that may be needed, distinct, when it begins.
    """

    def __init__(self, search: Search, keys: Future[pa.Table], pool: ThreadPoolExecutor) -> None:
        self._search, self._keys = search, keys
        self._found = pool.submit(lambda: search(keys.result()))

    def __call__(self, keys: pa.Table) -> KeyedRows:
        """As the search, which is done again if it began without one of these keys. Raises its
        errors."""
        known = self._keys.result().rename_columns(keys.column_names)
        found = self._found.result()
        matches = found.matches.of(known, keys)
        return self._search(keys) if matches is None else KeyedRows(matches, found.searched)
