"""Messages of pgoutput, put together by hand."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from mirrorlake.model.table import Column, Schema, TableId
from mirrorlake.model.types import INTEGER, STRING
from mirrorlake.sources.postgresql.decoder import Decoder
from mirrorlake.sources.postgresql.types.mapping import TypeRow, Types
from mirrorlake.sources.table import SourceTable
from tests.conformance.scene import UNCHANGED

INT4, TEXT, VARCHAR = 23, 25, 1043
TYPES = Types(
    {
        INT4: TypeRow(INT4, "int4", "b", "N", 0, -1, 0, ","),
        TEXT: TypeRow(TEXT, "text", "b", "S", 0, -1, 0, ","),
        VARCHAR: TypeRow(VARCHAR, "varchar", "b", "S", 0, -1, 0, ","),
    }
)
COLUMNS = (("id", INT4), ("note", TEXT))

Values = Sequence[str | bytes | None]
"""The texts of a tuple, or bytes for values in binary format; None for NULL, UNCHANGED for what is
not sent."""


def table(name: str, oid: int, key: tuple[str, ...] = ("id",)) -> SourceTable:
    """A selected table with the columns `id` and `note`."""
    schema = Schema.of([Column("id", INTEGER), Column("note", STRING)])
    types = {column: TYPES.resolve(kind, -1) for column, kind in COLUMNS}
    return SourceTable(TableId("public", name), schema, key, str(oid), types)


def decoder(*tables: SourceTable) -> Decoder:
    return Decoder({each.table: each for each in tables}, TYPES.resolve)


def begin(lsn: int, time: int = 0, xid: int = 700) -> bytes:
    return struct.pack("!cQqI", b"B", lsn, time, xid)


def commit(lsn: int, end: int, time: int = 0) -> bytes:
    return struct.pack("!cBQQq", b"C", 0, lsn, end, time)


def relation(
    name: str,
    oid: int,
    columns: Sequence[tuple[str, int]] = COLUMNS,
    schema: str = "public",
    identity: bytes = b"d",
) -> bytes:
    head = struct.pack("!cI", b"R", oid) + _string(schema) + _string(name) + identity
    described = (struct.pack("!B", 0) + _string(n) + struct.pack("!Ii", t, -1) for n, t in columns)
    return head + struct.pack("!H", len(columns)) + b"".join(described)


def insert(oid: int, new: Values) -> bytes:
    return struct.pack("!cI", b"I", oid) + b"N" + _tuple(new)


def update(oid: int, new: Values, *, key: Values | None = None, old: Values | None = None) -> bytes:
    return struct.pack("!cI", b"U", oid) + _before(key, old) + b"N" + _tuple(new)


def delete(oid: int, *, key: Values | None = None, old: Values | None = None) -> bytes:
    return struct.pack("!cI", b"D", oid) + _before(key, old)


def truncate(*oids: int) -> bytes:
    return struct.pack(f"!cIB{len(oids)}I", b"T", len(oids), 0, *oids)


def type_(name: str = "mood") -> bytes:
    return struct.pack("!cI", b"Y", 99_999) + _string("public") + _string(name)


def origin() -> bytes:
    return struct.pack("!cQ", b"O", 1) + _string("elsewhere")


def message(content: bytes = b"hello") -> bytes:
    head = struct.pack("!cBQ", b"M", 1, 1) + _string("prefix")
    return head + struct.pack("!I", len(content)) + content


def stream_start(xid: int, *, is_first: bool = False) -> bytes:
    return struct.pack("!cIB", b"S", xid, is_first)


def stream_stop() -> bytes:
    return b"E"


def stream_commit(xid: int, lsn: int, end: int, time: int = 0) -> bytes:
    return struct.pack("!cIBQQq", b"c", xid, 0, lsn, end, time)


def stream_abort(xid: int, sub: int, *more: int) -> bytes:
    """more: where and when, in version 4 of the protocol."""
    return struct.pack(f"!cII{len(more)}Q", b"A", xid, sub, *more)


def begin_prepare(xid: int, lsn: int, gid: str = "it") -> bytes:
    return struct.pack("!cQQqI", b"b", lsn, lsn + 1, 0, xid) + _string(gid)


def prepare(xid: int, lsn: int, gid: str = "it") -> bytes:
    return struct.pack("!cBQQqI", b"P", 0, lsn, lsn + 1, 0, xid) + _string(gid)


def stream_prepare(xid: int, lsn: int, gid: str = "it") -> bytes:
    return b"p" + prepare(xid, lsn, gid)[1:]


def commit_prepared(xid: int, lsn: int, end: int, time: int = 0, gid: str = "it") -> bytes:
    return struct.pack("!cBQQqI", b"K", 0, lsn, end, time, xid) + _string(gid)


def rollback_prepared(xid: int, lsn: int, gid: str = "it") -> bytes:
    return struct.pack("!cBQQqqI", b"r", 0, lsn - 9, lsn, 0, 0, xid) + _string(gid)


def in_block(xid: int, message: bytes) -> bytes:
    """A message of a transaction in progress."""
    return message[:1] + struct.pack("!I", xid) + message[1:]


def _before(key: Values | None, old: Values | None) -> bytes:
    if key is not None:
        return b"K" + _tuple(key)
    return b"O" + _tuple(old) if old is not None else b""


def _tuple(values: Values) -> bytes:
    return struct.pack("!H", len(values)) + b"".join(map(_value, values))


def _value(value: str | bytes | None) -> bytes:
    if value is None:
        return b"n"
    if value == UNCHANGED:
        return b"u"
    kind, content = (b"b", value) if isinstance(value, bytes) else (b"t", value.encode())
    return kind + struct.pack("!I", len(content)) + content


def _string(text: str) -> bytes:
    return text.encode() + b"\0"
