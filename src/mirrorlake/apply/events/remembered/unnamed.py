"""Tells which events without a uuid have a row in a table that keeps every event.

It is known of the events of a file that was applied. Those of a file with dead letters that are not
listed may not have been applied: of them, as many count as the table has equal rows that no applied
event explains. Which ones makes no difference to the rows, because these are equal.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.apply.events.columns import METADATA
from mirrorlake.model.arrow import contiguous
from mirrorlake.model.row_hashes import content_of


def is_unnamed(rows: pa.Table) -> pa.Array:
    """Which rows of a table are of events without a uuid; bool."""
    return pc.is_null(pc.struct_field(contiguous(rows.column(METADATA)), [0]))


@dataclass(slots=True)
class UnnamedEvents:
    """Events by the digest of their row, each with its identity and source time.

    maybe: those that may have been applied; all of them have to be added first. applied: the
    identities of others with such rows; rows: how many such rows there are.
    """

    maybe: dict[bytes, dict[bytes, int]] = field(default_factory=dict)
    applied: dict[bytes, set[bytes]] = field(default_factory=dict)
    rows: Counter[bytes] = field(default_factory=Counter)

    def add(self, rows: pa.Table, identities: pa.Array, source_ms: pa.Array) -> None:
        """Add events that may have been applied. rows: what the table has of them if they were."""
        told = zip(_digests(rows), identities.to_pylist(), source_ms.to_pylist(), strict=True)
        for row, identity, time in told:
            self.maybe.setdefault(row, {})[identity] = time

    def add_applied(self, rows: pa.Table, identities: pa.Array) -> None:
        if self.maybe:
            for row, identity in zip(_digests(rows), identities.to_pylist(), strict=True):
                if row in self.maybe:
                    self.applied.setdefault(row, set()).add(identity)

    def count(self, rows: pa.Table) -> None:
        """Count rows of the table."""
        if self.maybe:
            self.rows.update(row for row in _digests(rows) if row in self.maybe)

    def found(self) -> dict[bytes, int]:
        """The identities of those that were applied, with their source times."""
        found: dict[bytes, int] = {}
        for row, events in self.maybe.items():
            known = self.applied.get(row, set())
            left = sorted(events.keys() - known)[: max(self.rows[row] - len(known), 0)]
            found |= {identity: events[identity] for identity in left}
        return found


def _digests(rows: pa.Table) -> Sequence[bytes]:
    """A digest of each row: its values, and what it tells of its event."""
    content = content_of(rows.drop_columns([METADATA])).tolist()
    told = contiguous(rows.column(METADATA)).to_pylist()
    return [
        hashlib.blake2b(repr((values, event)).encode(), digest_size=16).digest()
        for values, event in zip(content, told, strict=True)
    ]
