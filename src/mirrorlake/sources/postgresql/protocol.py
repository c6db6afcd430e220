"""The messages of pgoutput, version 1, many at a time.

PostgreSQL documentation: "Logical Replication Message Formats". A batch of messages stands end to
end in one buffer. Nothing here walks rows in Python: positions are vectors, and columns are walked
one after the other for all tuples at once.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from mirrorlake.sources.postgresql.foreign_text import text_of

BEGIN, COMMIT, RELATION, TRUNCATE, MESSAGE = b"BCRTM"
INSERT, UPDATE, DELETE = b"IUD"
KEY_TUPLE, OLD_TUPLE = b"KO"
NULL, TEXT, BINARY, UNCHANGED = b"ntbu"

_KINDS = np.frombuffer(b"BCRTMIUDYOA", np.uint8)
"""What is understood. The last three mean nothing to us: Type, Origin, and Stream Abort, which
PostgreSQL 18 sends of a large transaction that was rolled back also where none are streamed."""

POSTGRES_EPOCH = 946_684_800_000_000
"""Microseconds from 1970 to 2000, from which PostgreSQL counts."""

_PADDING = 16
"""Zero bytes after the last message, so that a vector may read ahead of a short tuple."""


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """is_key: it is part of the replica identity."""

    name: str
    type: int
    modifier: int
    is_key: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """A Relation message: the description of a table, sent before its first change."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


class Messages:
    """A batch of messages as vectors.

    kind: uint8, the type byte of each; start: int64, where each begins in `buffer`. lsns: where
    each stands in the log, where it is given.
    """

    def __init__(
        self, messages: Sequence[bytes | memoryview], lsns: Sequence[int] | None = None
    ) -> None:
        lengths = np.fromiter(map(len, messages), np.int64, len(messages))
        self.raw = b"".join([*messages, bytes(_PADDING)])
        self.buffer = np.frombuffer(self.raw, np.uint8)
        self.start = np.cumsum(lengths) - lengths
        self.end = self.start + lengths
        self.kind = self.buffer[self.start]
        size = len(self.raw)
        self._int32 = np.ndarray((size - 3,), ">i4", self.raw, strides=(1,))
        self._int64 = np.ndarray((size - 7,), ">i8", self.raw, strides=(1,))
        self._lsns = None if lsns is None else np.array(lsns, np.uint64)

    def __len__(self) -> int:
        return len(self.start)

    def int32(self, at: np.ndarray) -> np.ndarray:
        values: np.ndarray = self._int32[at].astype(np.int64)
        return values

    def int64(self, at: np.ndarray) -> np.ndarray:
        values: np.ndarray = self._int64[at].astype(np.int64)
        return values

    def unknown(self) -> set[str]:
        """The kinds of messages that we do not understand. Left out they would lose changes."""
        unknown = self.kind[~np.isin(self.kind, _KINDS)]
        return set(map(chr, np.unique(unknown).tolist()))

    @property
    def has_lsns(self) -> bool:
        return self._lsns is not None

    def metadata(self, at: np.ndarray) -> pa.RecordBatch | None:
        """The metadata of these messages: `lsn`, uint64."""
        if self._lsns is None:
            return None
        return pa.RecordBatch.from_arrays([pa.array(self._lsns[at])], names=["lsn"])

    def relation(self, index: int) -> Relation:
        """The Relation message at `index`."""
        return _relation(self.raw[self.start[index] : self.end[index]])

    def content(self, index: int, prefix: str) -> bytes | None:
        """What the Message at `index` says; None where it is outside of transactions, or has
        another prefix."""
        raw, at = self.raw, self.start[index] + 10  # behind type, flags and place
        beginning = prefix.encode() + b"\0"
        if not raw[self.start[index] + 1] or not raw.startswith(beginning, at):
            return None
        at += len(beginning)
        (size,) = struct.unpack_from("!I", raw, at)
        return raw[at + 4 : at + 4 + size]

    def truncated(self, index: int) -> list[int]:
        """The relations of the Truncate message at `index`."""
        count, _options = struct.unpack_from("!IB", self.raw, self.start[index] + 1)
        return list(struct.unpack_from(f"!{count}I", self.raw, self.start[index] + 6))


def _relation(raw: bytes) -> Relation:
    (oid,) = struct.unpack_from("!I", raw, 1)
    schema, offset = _string(raw, 5)
    name, offset = _string(raw, offset)
    identity, count = struct.unpack_from("!cH", raw, offset)
    offset += 3
    columns = []
    for _ in range(count):
        is_key = bool(raw[offset] & 1)
        column, offset = _string(raw, offset + 1)
        type_oid, modifier = struct.unpack_from("!Ii", raw, offset)
        columns.append(RelationColumn(column, type_oid, modifier, is_key))
        offset += 8
    return Relation(oid, schema or "pg_catalog", name, identity.decode(), tuple(columns))


def _string(raw: bytes, offset: int) -> tuple[str, int]:
    end = raw.index(0, offset)
    return text_of(raw[offset:end]), end + 1


@dataclass(slots=True)
class Tuples:
    """The column values of n tuples: matrices n x columns, in memory column by column, and where
    each tuple ends."""

    kind: np.ndarray  # uint8: NULL, TEXT, BINARY or UNCHANGED
    begin: np.ndarray  # int64, in the buffer
    length: np.ndarray  # int64
    end: np.ndarray  # int64, n

    def select(self, rows: np.ndarray) -> Tuples:
        matrices = (self.kind, self.begin, self.length)
        kind, begin, length = (np.take(values.T, rows, axis=1).T for values in matrices)
        return Tuples(kind, begin, length, self.end[rows])


def is_sent(kind: np.ndarray) -> np.ndarray:
    """Which values have bytes."""
    sent: np.ndarray = (kind == TEXT) | (kind == BINARY)
    return sent


def walk(messages: Messages, at: np.ndarray, columns: int) -> Tuples:
    """Read the tuples that begin (with their column count) at `at`."""
    n = len(at)
    kind = np.empty((columns, n), np.uint8)
    begin = np.empty((columns, n), np.int64)
    length = np.empty((columns, n), np.int64)
    offset = at + 2
    for column in range(columns):
        head = messages.int64(offset)  # the kind, four bytes of a length, and more
        kind[column] = head >> 56
        sent = is_sent(kind[column])
        np.multiply(head >> 24 & 0xFFFFFFFF, sent, out=length[column])
        np.add(offset, 5, out=begin[column])
        offset = offset + 1 + 4 * sent + length[column]
    return Tuples(kind.T, begin.T, length.T, offset)


def texts(messages: Messages, tuples: Tuples, column: int, *, anyhow: bool = False) -> pa.Array:
    """One column of the tuples as an Arrow string column; what was not sent is NULL. anyhow: values
    in binary format as their bytes, and not as NULL.

    The values stand in the buffer in any order. Offsets that alternate between beginning and end
    of each value, put in order, make every other slice of the buffer a value; `take` gathers them.
    UTF-8 is not checked here.
    """
    kind = tuples.kind[:, column]
    sent = is_sent(kind) if anyhow else kind == TEXT
    begin, length = tuples.begin[:, column][sent], tuples.length[:, column][sent]
    order = np.argsort(begin, kind="stable")
    n = len(begin)
    offsets = np.empty(2 * n + 1, np.int32)
    offsets[0 : 2 * n : 2] = begin[order]
    offsets[1 : 2 * n : 2] = begin[order] + length[order]
    offsets[2 * n] = offsets[2 * n - 1] if n else 0
    slices = pa.Array.from_buffers(
        pa.string(), 2 * n, [None, pa.py_buffer(offsets), pa.py_buffer(messages.raw)]
    )
    slots = np.empty(n, np.int64)
    slots[order] = np.arange(0, 2 * n, 2)
    rows = np.zeros(len(sent), np.int64)
    rows[sent] = slots
    return slices.take(pa.array(rows, mask=~sent))
