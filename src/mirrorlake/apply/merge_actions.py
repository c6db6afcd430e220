"""Net changes against the rows that a table has: what is left for a `MERGE` to do, row by row.

`MERGE` refuses two source rows for one row of the table, and knows no row that is added whatever is
there. So every key gets at most one act that matches (update or delete), and everything else is an
insert that matches nothing. Which of them a key gets depends on how many rows it has, so that rows
and feed are those of the specification (LZ-077, LZ-089, CF-144):

    rows there   rows to come    acts
    one          some            one update; the others are inserts
    one          none            delete
    several      any             delete, which takes all of them; inserts
    none         any             inserts

Where all columns are the key, and some of several equal rows go, a delete takes all of them, and
those that stay are inserted again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import pyarrow as pa

from mirrorlake.delta.write.rewrite import completed, some_of
from mirrorlake.delta.write.spared import without_equal
from mirrorlake.mirror.engine import Counts
from mirrorlake.model.net import NetChanges


class MergeAction(IntEnum):
    """What a row of the source of a `MERGE` does."""

    NOTHING = -1
    INSERT = 0  # adds a row, whatever is there
    UPDATE = 1  # takes the place of the one row of its key
    DELETE = 2  # removes all rows of its key


@dataclass(frozen=True, slots=True)
class MergeActions:
    """rows: n rows with all columns of the table, of a delete only the key; act: int8, n."""

    rows: pa.Table
    action: np.ndarray
    counts: Counts


def merge_actions(
    net: NetChanges,
    code: np.ndarray,
    found: pa.Table | None = None,
    *,
    spares_equal: bool = False,
) -> MergeActions:
    """What is to be done, given the rows that the keys of a batch have.

    code: int64, for each row of the table that has a key which is reset, the number of that key in
    `net.keys`; found: those rows with all columns, where values are missing or compared;
    spares_equal: rows that are as they shall be are left alone. Not for a batch that empties the
    table. Raises NoBaseRow, NoSuchRow.
    """
    keys = len(net.reset)
    if net.take is not None:
        return _some_taken(net, code)
    rows = net.rows if found is None else completed(net, found, code)
    if spares_equal and found is not None:
        net, matters = without_equal(net, rows, code, found)
        rows, code = net.rows, code[matters]
    before = np.bincount(code, minlength=keys)
    updated = np.zeros(rows.num_rows, bool)
    if keys:
        updated = net.first & (before == 1)[net.code]
    replaced = np.zeros(keys, bool)
    replaced[net.code[updated]] = True
    gone = np.flatnonzero((before > 0) & ~replaced)
    action = np.concatenate(
        (
            np.where(updated, MergeAction.UPDATE, MergeAction.INSERT),
            np.full(len(gone), MergeAction.DELETE),
        )
    )
    count = int(updated.sum())
    return MergeActions(
        pa.concat_tables([rows, _keys_only(net, gone, rows.schema)]),
        action.astype(np.int8),
        Counts(
            insert=rows.num_rows - count,
            update=count,
            delete=len(code) - count,
            duplicates=int(np.maximum(before - 1, 0).sum()),
        ),
    )


def _some_taken(net: NetChanges, code: np.ndarray) -> MergeActions:
    """What is to be done where all columns are the key. Raises NoSuchRow."""
    assert net.take is not None
    stays = code[~some_of(code, net.take)]
    gone = np.flatnonzero(net.reset)
    both = [net.keys.take(pa.array(which)).cast(net.rows.schema) for which in (stays, gone)]
    inserts = net.rows.num_rows + len(stays)
    action = np.repeat([MergeAction.INSERT, MergeAction.DELETE], [inserts, len(gone)])
    return MergeActions(
        pa.concat_tables([net.rows, *both]),
        action.astype(np.int8),
        Counts(insert=inserts, delete=len(code)),
    )


def inserts_of(net: NetChanges, deleted: int = 0) -> MergeActions:
    """What is to be done where no row of the table matters: a table that only grows, or one that
    was emptied of `deleted` rows."""
    rows = net.rows
    counts = Counts(insert=rows.num_rows, delete=deleted)
    return MergeActions(rows, np.full(rows.num_rows, MergeAction.INSERT, np.int8), counts)


def _keys_only(net: NetChanges, which: np.ndarray, schema: pa.Schema) -> pa.Table:
    keys = net.keys.take(pa.array(which, pa.int64()))
    columns = [
        keys[field.name] if field.name in keys.column_names else pa.nulls(len(which), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)
