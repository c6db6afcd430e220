"""What the log has of old rows of partitions, each of which has a replica identity of its own.

A changed row comes under the name of the root of its partition, so that it does not say which
partition it was in. The stream describes each partition before its first change. No I/O.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class PartlyLogged:
    """The partitions of which old rows are logged in part, as they were described last."""

    _columns: dict[int, dict[int, frozenset[str]]] = field(default_factory=dict)

    def described(self, root: int, leaf: int, logged: Collection[str] | None) -> None:
        """logged: the columns of an old row that the log has, None for all. With none of them,
        PostgreSQL rejects updates and deletions while they are published."""
        partly = self._columns.setdefault(root, {})
        partly.pop(leaf, None)
        if logged:
            partly[leaf] = frozenset(logged)

    def unlogged(self, root: int, names: Sequence[str]) -> list[list[int]]:
        """For each such partition of a table, which of these columns are NULL in its old rows."""
        found = self._columns.get(root, {}).values()
        return [[n for n, name in enumerate(names) if name not in logged] for logged in found]
