"""Converts the changes of one commit to rows of a landing zone (CF-078).

A row that gives up its key, by a delete or by an update that changes the key, comes first, so that
the key is free for the row that takes it (CF-216).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from mirrorlake.delta.feed_columns import METADATA
from mirrorlake.errors import FeedError
from mirrorlake.feed.reasons import FeedReason
from mirrorlake.feed.rows import AFTER, BEFORE, DELETE, INSERT, kinds_of
from mirrorlake.feed.subscriptions.snapshot import SNAPSHOT
from mirrorlake.model import keys as codes
from mirrorlake.model.arrow import taken
from mirrorlake.model.change import MARKER_COLUMN, Marker


def landing_rows(changes: pa.Table, key: Sequence[str], table: str) -> pa.Table:
    """The rows to land, in order, with their marker (int32) as the last column.

    changes: all rows of one commit, or rows of a snapshot, with the columns of the feed.
    key: empty for an append-only table.

    Raises FeedError for an update or a delete without a key (CF-217).
    """
    kinds, data = kinds_of(changes), changes.drop_columns(list(METADATA))
    if not key:
        if others := set(kinds) - {INSERT, SNAPSHOT}:
            raise FeedError(
                f"the changes contain a row with {min(others)}, and the table has no key by which "
                "another table could find the row",
                reason=FeedReason.OTHER,
                table=table,
                hint="Without a key only tables that grow can be landed.",
            )
        markers = np.full(changes.num_rows, int(Marker.INSERT), np.int32)
        return _marked(data, markers)
    code = codes.encode(data.select(list(key))).code
    before, after = kinds == BEFORE, kinds == AFTER
    left = (kinds == DELETE) | (before & ~np.isin(code, code[after]))
    markers = np.select(
        [left, kinds == SNAPSHOT, after & np.isin(code, code[before])],
        [int(Marker.DELETE), int(Marker.UPSERT), int(Marker.UPDATE)],
        int(Marker.INSERT),
    ).astype(np.int32)
    first, then = np.flatnonzero(left), np.flatnonzero(~left & ~before)
    order = np.concatenate([first, then])
    return _marked(taken(data, pa.array(order)), markers[order])


def _marked(data: pa.Table, markers: np.ndarray) -> pa.Table:
    return data.append_column(pa.field(MARKER_COLUMN, pa.int32()), pa.array(markers, pa.int32()))
