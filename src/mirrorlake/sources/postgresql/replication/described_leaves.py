"""Which tables the stream describes as partitions.

The server describes a partition right behind its root, at a change of a row that follows at once,
under the name of the root. It describes other tables one behind the other when it truncates them
together. Types may be described in between. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from mirrorlake.sources.postgresql.protocol import Messages, Relation

BEFORE = -1
"""The index of the last description of the batch before."""

_ROWS, _PASSED = (np.frombuffer(kinds, np.uint8) for kinds in (b"IUD", b"YO"))


@dataclass(slots=True)
class DescribedLeaves:
    """Across batches. is_selected: whether a table, by its oid, is mirrored under its own name.

    last: what was described, if the last message does that. A partition is not selected; one that
    is a table of its own by now may be, and counts only where a row of the root follows.
    """

    is_selected: Callable[[int], bool]
    last: Relation | None = None
    _undecided: tuple[int, Relation] | None = field(default=None, init=False)

    def of(
        self, messages: Messages, relations: Mapping[int, Relation]
    ) -> dict[int, tuple[int, Relation]]:
        """Of a batch: the oid of the root and the description of the partition, by the index of
        that, or `BEFORE`. relations: all that the batch describes, by index."""
        found, undecided, self._undecided = dict[int, tuple[int, Relation]](), self._undecided, None
        pairs = {BEFORE: undecided} if undecided else {}
        for index, relation in relations.items():
            before = _beside(messages, index, -1)
            root = relations.get(before) if before >= 0 else self.last
            if root and root.oid != relation.oid and self.is_selected(root.oid):
                pairs[index] = root.oid, relation
        for index, pair in pairs.items():
            follows = _beside(messages, index, 1)
            if not self.is_selected(pair[1].oid) or _has_row(messages, follows, pair[0]):
                found[index] = pair
            elif follows == len(messages):
                self._undecided = pair
        if (last := _beside(messages, len(messages), -1)) >= 0:
            self.last = relations.get(last)
        return found


def _beside(messages: Messages, index: int, step: int) -> int:
    """The index of the next message in a direction that is neither a type nor an origin."""
    index += step
    while 0 <= index < len(messages) and messages.kind[index] in _PASSED:
        index += step
    return index


def _has_row(messages: Messages, index: int, oid: int) -> bool:
    """Whether the message at `index` changes a row of a table."""
    if index == len(messages) or messages.kind[index] not in _ROWS:
        return False
    return bool(messages.int32(messages.start[[index]] + 1)[0] & 0xFFFFFFFF == oid)
