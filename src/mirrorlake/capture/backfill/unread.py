"""Which changes of a table that differs from its source are landed until it has been read again.

The mirror may lack a row, or have other values in it, so unchanged values that the source did not
send cannot be taken from there. The chunk that contains the row will bring it whole: until then,
such changes of the row are left out. Those of a row that has been read again are landed. Without a
key all changes of a row are left out until its piece of the table has been read, also where none of
the table was loaded: a deletion has to find its row. So each range of hashes whose piece is noted
as landed is what it is where the stream stands. An update counts as a deletion in one range and an
insert in perhaps another one. Should the process die before it records a piece that is landed, the
changes of its range are left out until the piece is read once more, which then corrects the range.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from mirrorlake.model.change import Marker
from mirrorlake.sources.chunk import Changes

IsUnread = Callable[[pa.Table], np.ndarray]
"""Of rows, by their keys: whether they are still to be read."""


def landed(changes: Changes, is_unread: IsUnread) -> tuple[Changes | None, bool]:
    """The changes that are landed, None for none; and whether a row that has been read took values
    of one that has not, so that the table must be read once more."""
    if not changes.table.key:
        has_been_read = np.flatnonzero(~is_unread(pa.Table.from_batches([changes.rows])))
        return _only(changes, has_been_read) if len(has_been_read) else None, False
    changes = changes.replacing()
    if changes.unchanged is None or not (masked := changes.unchanged.any(axis=1)).any():
        return changes, False
    unread = is_unread(pa.Table.from_batches([changes.rows]))
    moved = masked & (changes.marker == Marker.INSERT)
    from_unread = moved & ~unread & np.concatenate(([False], unread[:-1]))
    kept = np.flatnonzero(~(masked & unread) & ~from_unread)
    return _only(changes, kept) if len(kept) else None, bool(from_unread.any())


def _only(changes: Changes, rows: np.ndarray) -> Changes:
    metadata = changes.metadata
    return replace(
        changes,
        rows=changes.rows.take(pa.array(rows)),
        marker=changes.marker[rows],
        unchanged=None if changes.unchanged is None else changes.unchanged[rows],
        transaction=changes.transaction[rows],
        ordinal=changes.ordinal[rows],
        metadata=None if metadata is None else metadata.take(pa.array(rows)),
    )
