"""Transactions that the server streams while they are in progress, and what becomes of them.

PostgreSQL documentation: "Logical Streaming Replication Protocol", "Logical Replication Message
Formats". A transaction that grows too large for `logical_decoding_work_mem` comes in blocks, each
between Stream Start and Stream Stop, in which the messages carry the number of the transaction or
subtransaction that they are part of. Between the blocks come other transactions. Nothing of it
counts before Stream Commit: then it is handed on as if it had come as a whole, in the order of
the commits. Stream Abort takes a subtransaction or the whole transaction back.

A description of a table (Relation) in a block is valid in this transaction, and for others once
it is committed; after an abort the server sends it again. So it stays where it stands.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from mirrorlake.model.position import Lsn
from mirrorlake.sources.postgresql.recognition.table_message import is_ours
from mirrorlake.sources.postgresql.replication.spool import Message, Spool, Spools

START, STOP, COMMIT, ABORT = b"SEcA"
_KINDS = frozenset((START, STOP, COMMIT, ABORT))

_NUMBERED = frozenset(b"IUDTRY")
"""Kinds of messages that carry the number of their (sub)transaction in a block, and are needed. Of
Message, which carries it too, only ours are; of Origin nothing is."""


def protocol_version(server_version: int) -> int:
    """The newest version of the protocol that a server and we have in common."""
    versions = {160_000: 4, 150_000: 3, 140_000: 2}
    return next((v for since, v in versions.items() if server_version >= since), 1)


def streaming_option(server_version: int) -> str | None:
    """What to request so that transactions in progress are streamed; None where a server cannot.
    With `parallel`, which is of protocol 4, Stream Abort says where and when."""
    version = protocol_version(server_version)
    return None if version == 1 else "parallel" if version >= 4 else "on"


@dataclass(slots=True)
class _Transaction:
    """starts: where in the spool each subtransaction begins, in this order. What stands behind
    such a place is of the subtransaction or of others below it as long as it may be taken back."""

    id: int
    spool: Spool
    starts: dict[int, int] = field(default_factory=dict)

    def take_back(self, sub: int) -> None:
        start = self.starts.get(sub)
        if start is None:  # nothing of it came, or went with the one above it
            return
        while self.starts and next(reversed(self.starts.values())) >= start:
            self.starts.popitem()
        self.spool.cut(start)


class InProgress:
    """The transactions of one connection that are in progress. They are sent again to the next
    connection: nothing of them is durable, and nothing acknowledged."""

    def __init__(self, spools: Spools) -> None:
        self._spools = spools
        self._transactions: dict[int, _Transaction] = {}
        self._block: _Transaction | None = None

    def takes(self, kind: int) -> bool:
        """Whether the next message, of a kind, is part of a transaction in progress."""
        return self._block is not None or kind in _KINDS

    def take(self, lsn: int, message: bytes) -> Iterator[Message] | None:
        """Such a message. Returns the messages of a transaction that it commits; they must be read
        before the next one is taken. Raises StorageUnavailable."""
        kind = message[0]
        if kind == START:
            (id_,) = struct.unpack_from("!I", message, 1)
            self._block = self._transactions.get(id_) or _Transaction(id_, self._spools.new())
            self._transactions[id_] = self._block
        elif kind == STOP:
            self._block = None
        elif kind == COMMIT:
            return self._committed(lsn, message)
        elif kind == ABORT:
            self._abort(*struct.unpack_from("!II", message, 1))
        elif self._block is not None and (kind in _NUMBERED or is_ours(message, in_block=True)):
            self._keep(self._block, lsn, message)
        return None

    def prepared(self, id_: int) -> Spool:
        """The messages of a transaction that is in progress no longer, as it is prepared."""
        return self._transactions.pop(id_).spool

    def acknowledgeable(self, durable: Lsn, _sent: Lsn) -> Lsn:
        """Up to where the server may forget the log, when everything that ends at or before
        `durable` is durable, and everything before `_sent` has come. Never less than it was."""
        return durable

    def close(self) -> None:
        for transaction in self._transactions.values():
            transaction.spool.close()
        self._transactions.clear()
        self._block = None

    def _keep(self, transaction: _Transaction, lsn: int, message: bytes) -> None:
        (id_,) = struct.unpack_from("!I", message, 1)
        if id_ != transaction.id and id_ not in transaction.starts:
            transaction.starts[id_] = transaction.spool.end
        self._spools.append(transaction.spool, lsn, message[:1] + message[5:])

    def _abort(self, id_: int, sub: int) -> None:
        if id_ != sub:
            if id_ in self._transactions:
                self._transactions[id_].take_back(sub)
        elif (transaction := self._transactions.pop(id_, None)) is not None:
            transaction.spool.close()

    def _committed(self, lsn: int, message: bytes) -> Iterator[Message]:
        id_, flags, commit, end, time = struct.unpack_from("!IBQQq", message, 1)
        return as_whole(self._transactions.pop(id_).spool, lsn, id_, flags, commit, end, time)


def as_whole(
    spool: Spool, lsn: int, id_: int, flags: int, commit: int, end: int, time: int
) -> Iterator[Message]:
    """The messages of a transaction between Begin and Commit. lsn: where these stand in the log;
    commit, end: where the commit begins and ends."""
    yield lsn, struct.pack("!cQqI", b"B", commit, time, id_)
    yield from spool.messages()
    yield lsn, struct.pack("!cBQQq", b"C", flags, commit, end, time)
