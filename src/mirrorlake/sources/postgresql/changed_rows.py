"""From the messages of one table to changes in columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.errors import BadValue
from mirrorlake.model.change import Marker
from mirrorlake.model.table import TableId
from mirrorlake.sources.chunk import Changes
from mirrorlake.sources.postgresql import protocol
from mirrorlake.sources.postgresql.protocol import Messages, Relation, Tuples
from mirrorlake.sources.postgresql.recognition.keys import FULL
from mirrorlake.sources.postgresql.recognition.old_rows import (
    check_filled,
    check_keys,
    check_whole,
)
from mirrorlake.sources.postgresql.types.binary_values import Fields, Read
from mirrorlake.sources.postgresql.types.sent_values import TextNeeded
from mirrorlake.sources.postgresql.types.values import ColumnDecoder, Extremes
from mirrorlake.sources.table import SourceTable

NotedIn = Callable[[TableId, str, int], None]
"""Told of a table, a column and how many of its values were replaced."""


@dataclass(frozen=True, slots=True)
class DescribedRelation:
    """A relation as it was last described: its table now, and where the table's columns stand."""

    relation: Relation
    table: SourceTable | None  # None: not selected
    offsets: tuple[int, ...] = ()
    keys: tuple[int, ...] = ()  # offsets of the key columns; of all, where whole rows are logged
    decoders: tuple[ColumnDecoder, ...] = ()
    readers: tuple[Read | None, ...] = ()  # of values in binary format, in the same order


def decoders_of(
    table: SourceTable, extremes: Extremes, noted: NotedIn
) -> tuple[ColumnDecoder, ...]:
    """For the columns of a table, in their order."""
    decoder = partial(
        ColumnDecoder,
        table=str(table.table),
        extremes=extremes,
        noted=partial(noted, table.table),
    )
    return tuple(
        decoder(column=name, type=table.source_types[name], is_key=name in table.key)
        for name in table.schema.names
    )


def changes_of(
    messages: Messages,
    known: DescribedRelation,
    table: SourceTable,
    at: np.ndarray,
    transaction: np.ndarray,
    ordinal: np.ndarray,
    unlogged: Sequence[Sequence[int]] | None,
) -> Changes:
    """The changes of one table in the messages `at`.

    transaction, ordinal: of each message; unlogged: as of `check_whole`. Raises KeyNotSent,
    TextNeeded and TableError.
    """
    width = len(known.relation.columns)
    kind = messages.kind[at]
    offset = messages.start[at] + 5
    shape = messages.buffer[offset]
    has_old = (shape == protocol.KEY_TUPLE) | (shape == protocol.OLD_TUPLE)
    old = protocol.walk(messages, offset[has_old] + 1, width)
    if table.whole_rows:
        check_whole(kind, shape, table, old, unlogged)
    elif known.relation.identity != FULL:
        check_keys(old, known.keys, table, has_old)
    offset[has_old] = old.end
    is_new = kind != protocol.DELETE
    new = protocol.walk(messages, offset[is_new] + 1, width)
    if known.relation.identity == FULL and not table.whole_rows and not table.append_only:
        check_filled(old, new, known.keys, table, has_old, is_new)

    # Which row of `old` belongs to which row of `new`: updates that bring both.
    old_at, new_at = at[has_old], at[is_new]
    both = np.flatnonzero(np.isin(new_at, old_at))
    its_old = np.searchsorted(old_at, new_at[both])
    _fill_unchanged(new, both, old, its_old)
    moved = _key_changed(messages, known, new, both, old, its_old)

    removed = np.concatenate((np.flatnonzero(kind[has_old] == protocol.DELETE), its_old[moved]))
    moved_new = both[moved]
    marker = np.where(kind[is_new] == protocol.INSERT, Marker.INSERT, Marker.UPDATE)
    marker[moved_new] = Marker.INSERT

    tuples = _stack(old.select(removed), new)
    # In an old tuple all but the key is NULL or, with identity FULL, told with metadata only.
    if known.relation.identity != FULL or not messages.has_lsns:
        beside = [c for c in range(width) if c not in known.keys]
        tuples.kind[: len(removed), beside] = protocol.NULL
    message = np.concatenate((old_at[removed], new_at))
    marker = np.concatenate((np.full(len(removed), Marker.DELETE), marker))
    if len(removed):
        order = np.argsort(message, kind="stable")
        tuples, message, marker = tuples.select(order), message[order], marker[order]
    return Changes(
        table=table,
        rows=_decoded(messages, known, table, tuples),
        marker=marker.astype(np.int8),
        unchanged=_unchanged(tuples, known.offsets),
        transaction=transaction[message],
        ordinal=ordinal[message],
        metadata=messages.metadata(message),
    )


def _key_changed(
    messages: Messages,
    known: DescribedRelation,
    new: Tuples,
    rows: np.ndarray,
    old: Tuples,
    old_rows: np.ndarray,
) -> np.ndarray:
    """For updates that bring an old tuple: whether the key differs in it, or the whole row is
    one that goes and another that comes."""
    changed = np.full(len(rows), known.table is not None and known.table.whole_rows)
    if len(rows) == 0 or changed.any():
        return changed
    now, before = new.select(rows), old.select(old_rows)
    for offset in known.keys:
        one, other = (protocol.texts(messages, t, offset, anyhow=True) for t in (now, before))
        differs = pc.not_equal(one, other)
        changed |= pc.fill_null(differs, False).to_numpy(zero_copy_only=False)
    return changed


def _decoded(
    messages: Messages, known: DescribedRelation, table: SourceTable, tuples: Tuples
) -> pa.RecordBatch:
    columns = []
    for decoder, read, offset in zip(known.decoders, known.readers, known.offsets, strict=True):
        try:
            columns.append(_column(messages, tuples, offset, decoder, read))
        except pa.ArrowInvalid as error:
            raise BadValue(
                f"a value does not fit {decoder.type.type}: {error}",
                table=str(table.table),
                column=decoder.column,
                hint="This is a bug. Report it with the type of the column.",
            ) from error
    return pa.RecordBatch.from_arrays(columns, names=table.schema.names)


def _column(
    messages: Messages, tuples: Tuples, offset: int, decoder: ColumnDecoder, read: Read | None
) -> pa.Array:
    """The values of a column, in the format in which each of them came."""
    kind = tuples.kind[:, offset]
    is_binary = kind == protocol.BINARY
    if not is_binary.any():
        return decoder.decode(protocol.texts(messages, tuples, offset))
    values = _binary(messages, tuples, offset, is_binary, decoder, read)
    is_text = kind == protocol.TEXT
    if not is_text.any():
        return values
    texts = decoder.decode(protocol.texts(messages, tuples, offset))
    return pc.if_else(pa.array(is_text), texts, values)


def _binary(
    messages: Messages,
    tuples: Tuples,
    offset: int,
    is_binary: np.ndarray,
    decoder: ColumnDecoder,
    read: Read | None,
) -> pa.Array:
    """The values of a column that came in binary format, and NULL for the others."""
    what = f"column {decoder.column} of {decoder.table}, of type {decoder.type}"
    if read is None:
        raise TextNeeded(what)
    begin, length = tuples.begin[:, offset], tuples.length[:, offset]
    is_all = bool(is_binary.all())
    size = length if is_all else np.where(is_binary, length, 0)
    try:
        return read(Fields(messages.buffer, begin, size, None if is_all else ~is_binary))
    except ValueError as error:  # Arrow's errors are such
        raise TextNeeded(what) from error


def _fill_unchanged(new: Tuples, rows: np.ndarray, old: Tuples, old_rows: np.ndarray) -> None:
    """The old tuple may have what the new one leaves out: the key, with identity FULL everything.

    The letter before the old tuple does not say which: of a partitioned table it is the identity
    of the root, while the partition decides what is sent. But what is left out is never NULL.
    """
    if len(rows) == 0:
        return
    left_out = new.kind[rows] == protocol.UNCHANGED
    row, column = np.nonzero(left_out & protocol.is_sent(old.kind[old_rows]))
    for name in ("kind", "begin", "length"):
        getattr(new, name)[rows[row], column] = getattr(old, name)[old_rows[row], column]


def _stack(first: Tuples, second: Tuples) -> Tuples:
    return Tuples(
        np.concatenate((first.kind, second.kind)),
        np.concatenate((first.begin, second.begin)),
        np.concatenate((first.length, second.length)),
        np.concatenate((first.end, second.end)),
    )


def _unchanged(tuples: Tuples, offsets: Sequence[int]) -> np.ndarray | None:
    unchanged = tuples.kind[:, list(offsets)] == protocol.UNCHANGED
    return unchanged if unchanged.any() else None
