"""Which descriptions are of partitions, in batches that are cut anywhere."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from mirrorlake.sources.postgresql import protocol
from mirrorlake.sources.postgresql.protocol import Messages
from mirrorlake.sources.postgresql.replication.described_leaves import DescribedLeaves
from tests.sources.postgresql import wire

ROOT, OTHER, LEAF, CHOSEN = 1, 2, 3, 4
SELECTED = {ROOT, OTHER, CHOSEN}
TYPE, ROW = wire.type_(), wire.insert(ROOT, ("1", "a"))


def described(oid: int) -> bytes:
    return wire.relation(f"t{oid}", oid)


def found(batches: Sequence[Sequence[bytes]]) -> list[tuple[int, int]]:
    """The root and the partition of each description of one."""
    leaves, pairs = DescribedLeaves(SELECTED.__contains__), []
    for batch in filter(None, batches):
        messages = Messages(batch)
        at = np.flatnonzero(messages.kind == protocol.RELATION).tolist()
        relations = {index: messages.relation(index) for index in at}
        pairs += [(root, leaf.oid) for root, leaf in leaves.of(messages, relations).values()]
    return pairs


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([described(ROOT), described(LEAF), ROW], [(ROOT, LEAF)]),
        ([described(ROOT), described(CHOSEN), ROW], [(ROOT, CHOSEN)]),
        ([TYPE, described(ROOT), TYPE, described(CHOSEN), ROW], [(ROOT, CHOSEN)]),
        ([described(ROOT), TYPE, TYPE, described(LEAF), ROW], [(ROOT, LEAF)]),
        ([described(ROOT), ROW, described(CHOSEN), ROW], []),
        ([described(ROOT), described(CHOSEN), wire.insert(CHOSEN, ("1", "a")), ROW], []),
        ([described(ROOT), described(CHOSEN), wire.truncate(ROOT, CHOSEN), ROW], []),
        ([described(ROOT), described(OTHER), described(CHOSEN), wire.truncate(ROOT)], []),
        ([described(ROOT), described(ROOT), ROW], []),
        ([described(LEAF), described(CHOSEN), wire.insert(LEAF, ("1", "a"))], []),
    ],
)
def test_a_partition_is_described_behind_its_root_before_a_row_of_that(
    messages: list[bytes], expected: list[tuple[int, int]]
) -> None:
    for first in range(len(messages) + 1):
        for second in range(first, len(messages) + 1):
            batches = messages[:first], messages[first:second], messages[second:]
            assert found(batches) == expected
