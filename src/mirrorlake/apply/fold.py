"""The fold: reduces the changes of a batch to one net change per key, in file and row order.

The result is that of applying the rows one after another (LZ-076 to LZ-089, LZ-110): an insert adds
a row unconditionally; update and upsert replace all rows of their key by one; delete removes them.
So only the last update, upsert or delete of a key counts, and the inserts after it.

This is the fold of landed rows, which have an order. The last change of a key of event files, which
arrive in any order, is determined by `mirror/event_order`; `feed/history/newest.py` folds a change
feed.

Unchanged values are taken from the previous version of the row: for an update that of the same key,
for an insert that of the key deleted directly before it (a change of the key). Chains of such rows
are resolved by pointer jumping, in a logarithmic number of rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import pyarrow as pa

from mirrorlake.delta.write.soft_deletes import marked
from mirrorlake.errors import KeyedChangeWithoutKey, MissingBaseRow, RowNotFound
from mirrorlake.landing.parquet.reader import Rows, match_columns
from mirrorlake.landing.parquet.unchanged import unpacked
from mirrorlake.model import keys as codes
from mirrorlake.model.arrow import nullable_schema, taken, taken_values
from mirrorlake.model.change import (
    METADATA_COLUMNS,
    ROW_COMMIT_TIME,
    ROW_DELETED,
    ROW_POSITION,
    ROW_TRANSACTION,
    Marker,
)
from mirrorlake.model.net_changes import NetChanges
from mirrorlake.model.table import Schema


@dataclass(frozen=True, slots=True)
class SoftDeletes:
    """Deletes mark rows instead of removing them. position, time: of a truncation, None if
    unknown."""

    position: str | None = None
    time: datetime | None = None


@dataclass(frozen=True, slots=True)
class LandedBatch:
    """The landed rows of one batch, in order; files have names for error messages.

    whole_rows: all columns are the key, and a delete removes one of several equal rows. soft: set
    with soft deletes; a truncation is then a batch of its own.
    """

    table: str
    schema: Schema
    key: Sequence[str]
    files: Sequence[tuple[str, Rows]]
    truncate: bool = False
    whole_rows: bool = False
    soft: SoftDeletes | None = None


def fold(batch: LandedBatch) -> NetChanges:
    """The net changes of a batch. Every file must have the columns of the schema.

    Memory: about three times the rows. Raises KeyedChangeWithoutKey, MissingBaseRow, RowNotFound.
    """
    data, marker = _joined(batch)
    operations = {int(m): int((marker == m).sum()) for m in Marker}
    if not batch.key:
        _check_keyless(batch)
    partial = any(rows.unchanged is not None for _name, rows in batch.files)
    if batch.soft and batch.truncate:
        return replace(_inserts(batch, data, operations), marks=_truncation_marks(batch.soft, data))
    if not partial and not marker.any() and not (batch.soft and batch.key):
        return _inserts(batch, data, operations)
    if batch.whole_rows:
        return _balanced(batch, data, marker, operations)
    coded = codes.encode(data.select(list(batch.key)))
    deletions = _Deletions(coded, marker) if batch.soft else None
    replaces = deletions.replaces if deletions else marker != Marker.INSERT
    groups = _Groups(coded, replaces, marker != Marker.DELETE)
    source_row = groups.source_row
    missing, base, source = _resolve_unchanged(batch, marker, coded.code)
    rows = taken(data, source_row) if source is None else _filled(data, source[source_row])
    marks = deletions.marks(data) if deletions else None
    missing_left = None if missing is None else missing[source_row]
    if deletions and marks:
        own = coded.code[source_row]
        which = deletions.deleted[own]
        rows = marked(rows, which, marks.take(pa.array(own)))
        if missing_left is not None:
            indexes = [rows.column_names.index(name) for name in marks.column_names]
            missing_left[np.ix_(which, indexes)] = False
    return NetChanges(
        keys=data.select(list(batch.key)).take(pa.array(coded.first)),
        reset=groups.reset | batch.truncate,
        rows=rows,
        source_row=source_row,
        code=coded.code[source_row],
        first=groups.first,
        missing=None if missing_left is None or not missing_left.any() else missing_left,
        base=base[source_row],
        truncate=batch.truncate,
        operations=operations,
        deleted=deletions.deleted if deletions else None,
        marks=marks,
    )


def _joined(batch: LandedBatch) -> tuple[pa.Table, np.ndarray]:
    """All rows of a batch, and the marker of each; int8."""
    data = pa.concat_tables(
        [nullable_schema(batch.schema).empty_table(), *(rows.data for _name, rows in batch.files)]
    )
    markers = [rows.marker.to_numpy(zero_copy_only=False) for _name, rows in batch.files]
    return data, np.concatenate(markers) if markers else np.zeros(0, np.int8)


def with_unchanged_values(batch: LandedBatch) -> tuple[pa.Table, np.ndarray]:
    """All rows of a batch, each with the values that the source did not send for it, which an
    earlier row of the batch has to have; and the marker of each. Raises MissingBaseRow."""
    data, marker = _joined(batch)
    code = codes.encode(data.select(list(batch.key))).code
    missing, _base, source = _resolve_unchanged(batch, marker, code)
    if missing is not None and missing.any():
        raise _missing_base(batch, int(np.argmax(missing.any(axis=1))))
    return (data if source is None else _filled(data, source)), marker


class _Groups:
    """The resulting rows of each key.

    replaces: bool per row, whether it removes all earlier rows of its key; stays: bool per row,
    whether it becomes a row of the table. reset: bool per key, whether a row of it replaces;
    source_row: the row numbers of the resulting rows, ascending; first: bool per resulting row,
    whether it replaces the existing rows of its key.
    """

    def __init__(self, coded: codes.Coded, replaces: np.ndarray, stays: np.ndarray) -> None:
        code, n, keys = coded.code, len(coded.code), len(coded.first)
        # The last and the first row of each key, without sorting by key.
        resets = np.flatnonzero(replaces)
        last = np.full(keys, -1)
        np.maximum.at(last, code[resets], resets)
        self.reset = last >= 0
        self.source_row = np.flatnonzero((np.arange(n) >= last[code]) & stays)
        of_source_row, lowest = code[self.source_row], np.full(keys, n)
        np.minimum.at(lowest, of_source_row, self.source_row)
        self.first = self.reset[of_source_row] & (lowest[of_source_row] == self.source_row)


class _Deletions:
    """The effect of soft deletes on each key.

    A row after a delete replaces the deleted rows. Of the deletes after the last row of a key, the
    first one counts. replaces: as in `_Groups`; deleted: bool per key, whether its rows end as
    deleted.
    """

    def __init__(self, coded: codes.Coded, marker: np.ndarray) -> None:
        code, n, keys = coded.code, len(coded.code), len(coded.first)
        deletes = marker == Marker.DELETE
        order = codes.in_order(code)
        same = code[order][1:] == code[order][:-1]
        behind = np.zeros(n, bool)
        behind[order[1:][same]] = deletes[order[:-1][same]]
        self.replaces = ~deletes & ((marker != Marker.INSERT) | behind)
        others, last = np.flatnonzero(~deletes), np.full(keys, -1)
        np.maximum.at(last, code[others], others)
        final = np.flatnonzero(deletes & (np.arange(n) > last[code]))
        self._row = np.full(keys, n)
        np.minimum.at(self._row, code[final], final)
        self.deleted = self._row < n

    def marks(self, data: pa.Table) -> pa.Table:
        """The values that mark deleted rows, one row per key: the position and time of the delete,
        and the flag. NULL for other keys."""
        rows = pa.array(np.where(self.deleted, self._row, 0), mask=~self.deleted)
        names = [name for name in METADATA_COLUMNS if name in data.column_names]
        metadata = data.select(names).take(rows) if names else pa.table({})
        columns = [*metadata.columns, pa.repeat(True, len(rows))]
        return pa.table(columns, names=[*names, ROW_DELETED])


def _truncation_marks(soft: SoftDeletes, data: pa.Table) -> pa.Table:
    """The values that mark the rows deleted by a truncation, one row."""
    known = {ROW_POSITION: soft.position, ROW_TRANSACTION: None, ROW_COMMIT_TIME: soft.time}
    values: dict[str, object] = {n: v for n, v in known.items() if n in data.column_names}
    values[ROW_DELETED] = True
    columns = [pa.array([value], data.schema.field(name).type) for name, value in values.items()]
    return pa.table(columns, names=list(values))


def _check_keyless(batch: LandedBatch) -> None:
    """A table without a key accepts only inserts (LZ-034)."""
    for name, rows in batch.files:
        keyed = rows.marker.to_numpy(zero_copy_only=False) != Marker.INSERT
        if keyed.any():
            row = int(np.argmax(keyed))
            raise KeyedChangeWithoutKey(
                f"marker {rows.marker[row].as_py()} needs a key, but the table has no key columns",
                table=batch.table,
                file=name,
                row=row + 1,
                hint="Set keyColumns in _metadata.json.",
            )


def _inserts(batch: LandedBatch, data: pa.Table, operations: dict[int, int]) -> NetChanges:
    """The net changes of a batch of inserts: every row is added, whatever its key (LZ-077)."""
    n = data.num_rows
    return NetChanges(
        keys=data.select(list(batch.key)).slice(0, 0),
        reset=np.zeros(0, bool),
        rows=data,
        source_row=np.arange(n),
        code=np.full(n, -1),
        first=np.zeros(n, bool),
        missing=None,
        base=np.full(n, -1),
        truncate=batch.truncate,
        operations=operations,
    )


# -- whole rows ---------------------------------------------------------------------------------


def _balanced(
    batch: LandedBatch, data: pa.Table, marker: np.ndarray, operations: dict[int, int]
) -> NetChanges:
    """The net changes by the balance of inserts and deletes of each row. Their order does not
    matter, because no row is deleted before it exists."""
    _check_markers(batch)
    keys = data.select(list(batch.key))
    coded = codes.encode(keys)
    inserted = np.flatnonzero(marker == Marker.INSERT)
    count = len(coded.first)
    more = np.bincount(coded.code[inserted], minlength=count)
    balance = 2 * more - np.bincount(coded.code, minlength=count)
    if batch.truncate and (balance < 0).any():
        raise RowNotFound.of(batch.table, batch.files[0][0])
    left = codes.up_to(coded.code[inserted], np.maximum(balance, 0))
    source_row = inserted[left]
    n = len(source_row)
    return NetChanges(
        keys=keys.take(pa.array(coded.first)),
        reset=balance < 0,
        rows=taken(data, source_row),
        source_row=source_row,
        code=coded.code[source_row],
        first=np.zeros(n, bool),
        missing=None,
        base=np.full(n, -1),
        truncate=batch.truncate,
        operations=operations,
        take=np.maximum(-balance, 0),
    )


def _check_markers(batch: LandedBatch) -> None:
    """Rows that are identified by all columns are only inserted and deleted, never updated."""
    for name, rows in batch.files:
        marker = rows.marker.to_numpy(zero_copy_only=False)
        wrong = ~np.isin(marker, [Marker.INSERT, Marker.DELETE])
        if rows.unchanged is not None:
            raise _missing_base(replace(batch, files=[(name, rows)]), 0)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise KeyedChangeWithoutKey(
                f"marker {marker[row]} needs a key, but the rows of the table are identified by "
                "all columns",
                table=batch.table,
                file=name,
                row=row + 1,
                hint=f"Run `mirrorlake reset {batch.table}` to reload the table.",
            )


# -- unchanged values ---------------------------------------------------------------------------


def _resolve_unchanged(
    batch: LandedBatch, marker: np.ndarray, code: np.ndarray
) -> tuple[np.ndarray | None, np.ndarray, np.ndarray | None]:
    """Resolve unchanged values.

    Returns: missing, bool rows x columns, values to be taken from the table; base, int64, the key
    whose existing row has them, or -1; source, int64 rows x columns, the row of the batch that has
    the value. `missing` and `source` are None if the source sent every value.
    """
    n = len(marker)
    base = np.full(n, -1)
    mask = _mask(batch)
    if mask is None or not n:
        return None, base, None
    before = _previous_nodes(batch, marker, code, np.asarray(mask.any(axis=1)))
    # Nodes 0 to n-1 are rows of the batch, node n + k is the existing row of key k.
    keys = int(code.max()) + 1
    source = np.repeat(np.arange(n)[:, None], mask.shape[1], axis=1)
    for index in np.flatnonzero(mask.any(axis=0)).tolist():
        jump = np.concatenate((np.where(mask[:, index], before, np.arange(n)), n + np.arange(keys)))
        while True:
            next_jump = jump[jump]
            if np.array_equal(next_jump, jump):
                break
            jump = next_jump
        source[:, index] = jump[:n]
    missing = source >= n
    row, column = np.nonzero(missing)
    base[row] = source[row, column] - n
    if batch.truncate and missing.any():
        raise _missing_base(batch, int(row[0]))
    return missing, base, np.where(missing, np.arange(n)[:, None], source)


def _mask(batch: LandedBatch) -> np.ndarray | None:
    """The masks of all files over the columns of the table; None if no file has masks."""
    if all(rows.unchanged is None for _name, rows in batch.files):
        return None
    names = batch.schema.names
    parts = []
    for _name, rows in batch.files:
        part = np.zeros((rows.data.num_rows, len(names)), bool)
        if rows.unchanged is not None:
            bits = unpacked(rows.unchanged, len(rows.names))
            for name, found in match_columns(names, list(rows.names)).items():
                part[:, names.index(name)] = bits[:, rows.names.index(found)]
        parts.append(part)
    return np.concatenate(parts)


def _previous_nodes(
    batch: LandedBatch, marker: np.ndarray, code: np.ndarray, masked: np.ndarray
) -> np.ndarray:
    """The node of the previous version of each masked row: a row of the batch, or n + a key."""
    n = len(marker)
    previous = codes.previous(code)
    moved = masked & (marker == Marker.INSERT)  # the key changed: the row before is its delete
    holder = np.where(moved, np.arange(n) - 1, np.arange(n))
    starts = np.cumsum([0, *(rows.data.num_rows for _name, rows in batch.files)])[:-1]
    no_delete = moved & ((holder < 0) | np.isin(np.arange(n), starts))
    no_delete |= moved & (marker[np.maximum(holder, 0)] != Marker.DELETE)
    if no_delete.any():
        raise _missing_base(batch, int(np.argmax(no_delete)))
    earlier = previous[holder]
    deleted = masked & (earlier >= 0) & (marker[np.maximum(earlier, 0)] == Marker.DELETE)
    if deleted.any():
        raise _missing_base(batch, int(np.argmax(deleted)))
    return np.where(earlier >= 0, earlier, n + code[holder])


def _filled(data: pa.Table, source: np.ndarray) -> pa.Table:
    columns = [taken_values(data.column(i), source[:, i]) for i in range(data.num_columns)]
    return pa.table(columns, schema=data.schema)


def _missing_base(batch: LandedBatch, row: int) -> MissingBaseRow:
    for name, rows in batch.files:
        if row < rows.data.num_rows:
            return MissingBaseRow(
                "the source did not send an unchanged value, and no earlier row has it",
                table=batch.table,
                file=name,
                row=row + 1,
                hint=f"Run `mirrorlake reset {batch.table}` to reload the table.",
            )
        row -= rows.data.num_rows
    raise AssertionError("the row is in no file")
