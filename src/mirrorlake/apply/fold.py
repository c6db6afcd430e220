"""The fold: many changes become their net effect, in file and row order.

The meaning is that of applying the rows one after another (LZ-076 to LZ-089, LZ-110): insert adds
a row, whatever is there; update and upsert replace all rows of their key by one; delete removes
them. So per key only the last row that replaced or deleted counts, and the inserts after it.

Values that the source did not send are taken from the row as it was just before: of the same key
for an update, of the key deleted directly before for an insert (a change of the key). Chains of
such rows are followed by pointer jumping, in as many rounds as the chain has bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from mirrorlake.errors import KeyedChangeWithoutKey, MissingBaseRow, RowNotFound
from mirrorlake.landing.parquet.reader import Rows, match_columns
from mirrorlake.landing.parquet.unchanged import unpacked
from mirrorlake.model import keys as codes
from mirrorlake.model.arrow import nullable_schema, taken, taken_values
from mirrorlake.model.change import Marker
from mirrorlake.model.net import NetChanges
from mirrorlake.model.table import Schema


@dataclass(frozen=True, slots=True)
class LandedBatch:
    """The landed rows of one batch, in order, each file with its name for errors.

    whole_rows: the key is all columns, and a deletion is of one of the rows that are equal.
    """

    table: str
    schema: Schema
    key: Sequence[str]
    files: Sequence[tuple[str, Rows]]
    truncate: bool = False
    whole_rows: bool = False


def fold(batch: LandedBatch) -> NetChanges:
    """The net effect of a batch; every file has the columns of the table's schema.

    Memory: about three times the rows. Raises KeyedChangeWithoutKey, MissingBaseRow, RowNotFound.
    """
    data = pa.concat_tables(
        [nullable_schema(batch.schema).empty_table(), *(rows.data for _name, rows in batch.files)]
    )
    markers = [rows.marker.to_numpy(zero_copy_only=False) for _name, rows in batch.files]
    marker = np.concatenate(markers) if markers else np.zeros(0, np.int8)
    operations = {int(m): int((marker == m).sum()) for m in Marker}
    if not batch.key:
        _check_keyless(batch)
    partial = any(rows.unchanged is not None for _name, rows in batch.files)
    if not partial and not marker.any():
        return _inserts(batch, data, operations)
    if batch.whole_rows:
        return _counted(batch, data, np.concatenate(markers), operations)
    coded = codes.encode(data.select(list(batch.key)))
    groups = _Groups(coded, marker)
    source_row = groups.source_row
    missing, base, source = _unchanged(batch, marker, coded.code)
    rows = taken(data, source_row) if source is None else _filled(data, source[source_row])
    return NetChanges(
        keys=data.select(list(batch.key)).take(pa.array(coded.first)),
        reset=groups.reset | batch.truncate,
        rows=rows,
        source_row=source_row,
        code=coded.code[source_row],
        first=groups.first,
        missing=None if missing is None or not missing[source_row].any() else missing[source_row],
        base=base[source_row],
        truncate=batch.truncate,
        operations=operations,
    )


class _Groups:
    """What is left of the rows of each key.

    reset: per key, whether some row of it replaced or deleted; kept: the rows that keys are left
    with, ascending; first: bool, which of these take the place of what was there.
    """

    def __init__(self, coded: codes.Coded, marker: np.ndarray) -> None:
        code, n, keys = coded.code, len(coded.code), len(coded.first)
        # The last and the first row of each key, without bringing its rows together.
        resets = np.flatnonzero(marker != Marker.INSERT)
        last = np.full(keys, -1)
        np.maximum.at(last, code[resets], resets)
        self.reset = last >= 0
        self.source_row = np.flatnonzero((np.arange(n) >= last[code]) & (marker != Marker.DELETE))
        of_source_row, lowest = code[self.source_row], np.full(keys, n)
        np.minimum.at(lowest, of_source_row, self.source_row)
        self.first = self.reset[of_source_row] & (lowest[of_source_row] == self.source_row)


def _check_keyless(batch: LandedBatch) -> None:
    """A table without a key only grows (LZ-034)."""
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
    """Nothing but inserts: every row stays, whatever its key (LZ-077)."""
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


def _counted(
    batch: LandedBatch, data: pa.Table, marker: np.ndarray, operations: dict[int, int]
) -> NetChanges:
    """Of each row how many more of it there are, or fewer: the order does not matter, as none is
    deleted before it was there."""
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
    """A row that is told apart by all of its columns comes or goes; it never becomes another."""
    for name, rows in batch.files:
        marker = rows.marker.to_numpy(zero_copy_only=False)
        wrong = ~np.isin(marker, [Marker.INSERT, Marker.DELETE])
        if rows.unchanged is not None:
            raise _no_base(replace(batch, files=[(name, rows)]), 0)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise KeyedChangeWithoutKey(
                f"marker {marker[row]} needs a key, but the rows of the table are told apart by "
                "all columns",
                table=batch.table,
                file=name,
                row=row + 1,
                hint=f"Run `mirrorlake reset {batch.table}` to reload the table.",
            )


# -- unchanged values ---------------------------------------------------------------------------


def _unchanged(
    batch: LandedBatch, marker: np.ndarray, code: np.ndarray
) -> tuple[np.ndarray | None, np.ndarray, np.ndarray | None]:
    """Where each value comes from.

    Returns: missing, bool rows x columns, values that only the table has; base, the key whose row
    has them, -1 for none; source, int64 rows x columns, the row of the batch that has the value.
    All but `base` are None when every value was sent.
    """
    n = len(marker)
    base = np.full(n, -1)
    mask = _mask(batch)
    if mask is None:
        return None, base, None
    before = _before(batch, marker, code, np.asarray(mask.any(axis=1)))
    # Nodes 0..n-1 are rows, nodes n.. are the rows that keys had before the batch.
    keys = int(code.max()) + 1
    source = np.repeat(np.arange(n)[:, None], mask.shape[1], axis=1)
    for index in np.flatnonzero(mask.any(axis=0)).tolist():
        jump = np.concatenate((np.where(mask[:, index], before, np.arange(n)), n + np.arange(keys)))
        while True:
            farther = jump[jump]
            if np.array_equal(farther, jump):
                break
            jump = farther
        source[:, index] = jump[:n]
    missing = source >= n
    row, column = np.nonzero(missing)
    base[row] = source[row, column] - n
    if batch.truncate and missing.any():
        raise _no_base(batch, int(row[0]))
    return missing, base, np.where(missing, np.arange(n)[:, None], source)


def _mask(batch: LandedBatch) -> np.ndarray | None:
    """The masks of all files over the columns of the table."""
    if all(rows.unchanged is None for _name, rows in batch.files):
        return None
    names = batch.schema.names
    parts = []
    for _name, rows in batch.files:
        part = np.zeros((rows.data.num_rows, len(names)), bool)
        if rows.unchanged is not None:
            bits = unpacked(rows.unchanged, len(rows.names))
            for wanted, found in match_columns(names, list(rows.names)).items():
                part[:, names.index(wanted)] = bits[:, rows.names.index(found)]
        parts.append(part)
    return np.concatenate(parts)


def _before(
    batch: LandedBatch, marker: np.ndarray, code: np.ndarray, masked: np.ndarray
) -> np.ndarray:
    """For each masked row the node that its row was before: a row, or n + a key."""
    n = len(marker)
    order = codes.in_order(code)
    previous = np.full(n, -1)  # the row before, of the same key
    same = code[order][1:] == code[order][:-1]
    previous[order[1:][same]] = order[:-1][same]
    moved = masked & (marker == Marker.INSERT)  # the key changed: the deletion stands just before
    holder = np.where(moved, np.arange(n) - 1, np.arange(n))
    starts = np.cumsum([0, *(rows.data.num_rows for _name, rows in batch.files)])[:-1]
    lost = moved & ((holder < 0) | np.isin(np.arange(n), starts))
    lost |= moved & (marker[np.maximum(holder, 0)] != Marker.DELETE)
    if lost.any():
        raise _no_base(batch, int(np.argmax(lost)))
    earlier = previous[holder]
    gone = masked & (earlier >= 0) & (marker[np.maximum(earlier, 0)] == Marker.DELETE)
    if gone.any():
        raise _no_base(batch, int(np.argmax(gone)))
    return np.where(earlier >= 0, earlier, n + code[holder])


def _filled(data: pa.Table, source: np.ndarray) -> pa.Table:
    columns = [taken_values(data.column(i), source[:, i]) for i in range(data.num_columns)]
    return pa.table(columns, schema=data.schema)


def _no_base(batch: LandedBatch, row: int) -> MissingBaseRow:
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
