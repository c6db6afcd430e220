"""Converts net changes to the actions of a `MERGE`, given the existing rows of the table.

`MERGE` rejects two source rows for one row of the table, and has no unconditional insert. So every
key gets at most one matching action (update or delete); all others are inserts that match nothing.
The actions of a key depend on the number of its existing rows, so that rows and change feed are
those of the specification (LZ-077, LZ-089, CF-144):

    existing rows   new rows   actions
    one             some       one update; inserts for the others
    one             none       delete
    several         any        delete, which removes all of them; inserts
    none            any        inserts

If all columns are the key, and some of several equal rows are deleted, a delete removes all of
them, and the remaining ones are inserted again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import pyarrow as pa

from mirrorlake.delta.write.equal_rows import without_equal
from mirrorlake.delta.write.rewrite import choose_rows, fill_unchanged
from mirrorlake.delta.write.soft_deletes import considered, is_deleted, with_marks
from mirrorlake.mirror.engine import Counts
from mirrorlake.model.net_changes import NetChanges


class MergeAction(IntEnum):
    """The action of a row of the source of a `MERGE`."""

    NOTHING = -1
    INSERT = 0  # adds a row unconditionally
    UPDATE = 1  # replaces the only row of its key
    DELETE = 2  # removes all rows of its key
    # With soft deletes, the same for rows that are marked as deleted; those above leave such rows.
    UPDATE_OF_DELETED = 3
    DELETE_OF_DELETED = 4


@dataclass(frozen=True, slots=True)
class MergeActions:
    """rows: n rows with all columns of the table, for a delete only the key; action: int8, n."""

    rows: pa.Table
    action: np.ndarray
    counts: Counts


def merge_actions(
    net: NetChanges,
    code: np.ndarray,
    found: pa.Table | None = None,
    *,
    skip_equal: bool = False,
) -> MergeActions:
    """The actions of a batch that does not truncate the table, given the existing rows of its keys.

    code: int64, for each existing row of a key to look up, the row number of the key in `net.keys`;
    found: those rows with all columns, if values are missing, compared or kept; skip_equal: do
    not rewrite rows whose values do not change. Raises NoBaseRow, NoSuchRow.
    """
    keys = len(net.reset)
    if net.take is not None:
        return _whole_row_actions(net, code, found)
    of_deleted = np.zeros(keys, bool)
    if net.deleted is not None:
        assert found is not None
        applies = considered(found, code, keys)
        code, found = code[applies], found.filter(pa.array(applies))
        of_deleted[code[is_deleted(found)]] = True
    rows = net.rows if found is None else fill_unchanged(net, found, code)
    if net.deleted is not None:
        assert found is not None
        net, matters = with_marks(net, rows, code, found)
        rows, code, found = net.rows, code[matters], found.filter(pa.array(matters))
    if skip_equal and found is not None:
        net, matters = without_equal(net, rows, code, found)
        rows, code = net.rows, code[matters]
    before = np.bincount(code, minlength=keys)
    updated = np.zeros(rows.num_rows, bool)
    if keys:
        updated = net.first & (before == 1)[net.code]
    replaced = np.zeros(keys, bool)
    replaced[net.code[updated]] = True
    deleted_keys = np.flatnonzero((before > 0) & ~replaced)
    update = np.where(of_deleted, MergeAction.UPDATE_OF_DELETED, MergeAction.UPDATE)
    delete = np.where(of_deleted, MergeAction.DELETE_OF_DELETED, MergeAction.DELETE)
    action = np.full(rows.num_rows, MergeAction.INSERT)
    action[updated] = update[net.code[updated]]
    action = np.concatenate((action, delete[deleted_keys]))
    count = int(updated.sum())
    return MergeActions(
        pa.concat_tables([rows, _keys_only(net, deleted_keys, rows.schema)]),
        action.astype(np.int8),
        Counts(
            insert=rows.num_rows - count,
            update=count,
            delete=len(code) - count,
            duplicates=int(np.maximum(before - 1, 0).sum()),
        ),
    )


def _whole_row_actions(net: NetChanges, code: np.ndarray, found: pa.Table | None) -> MergeActions:
    """The actions if all columns, except metadata columns, are the key. Raises NoSuchRow."""
    assert net.take is not None
    kept_mask = ~choose_rows(code, net.take)
    rows = net.keys.take(pa.array(code)) if found is None else found
    stays = rows.filter(pa.array(kept_mask)).cast(net.rows.schema)
    deleted_keys = np.flatnonzero(net.reset)
    inserts = net.rows.num_rows + stays.num_rows
    action = np.repeat([MergeAction.INSERT, MergeAction.DELETE], [inserts, len(deleted_keys)])
    return MergeActions(
        pa.concat_tables([net.rows, stays, _keys_only(net, deleted_keys, net.rows.schema)]),
        action.astype(np.int8),
        Counts(insert=inserts, delete=len(code)),
    )


def inserts_of(net: NetChanges, gone: int = 0) -> MergeActions:
    """The actions that do not depend on existing rows: those of a batch of inserts, or of a batch
    that truncates the table. gone: number of rows that the truncation removes, or marks."""
    rows = net.rows
    counts = Counts(insert=rows.num_rows, delete=gone)
    if net.marks is not None:
        counts = Counts(insert=rows.num_rows, update=gone)
    return MergeActions(rows, np.full(rows.num_rows, MergeAction.INSERT, np.int8), counts)


def _keys_only(net: NetChanges, which: np.ndarray, schema: pa.Schema) -> pa.Table:
    keys = net.keys.take(pa.array(which, pa.int64()))
    columns = [
        keys[field.name] if field.name in keys.column_names else pa.nulls(len(which), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)
