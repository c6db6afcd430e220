"""Transactions that a slot with `two_phase` sends when they are prepared.

PostgreSQL documentation: "Two-Phase Commit Support for Logical Decoding". Such a slot sends a
transaction at PREPARE TRANSACTION, between Begin Prepare and Prepare, or by Stream Prepare when it
was streamed, and later Commit Prepared or Rollback Prepared without its changes. Nothing of it
counts before Commit Prepared: then it is handed on as if it had come as a whole.

The server sends it again only to a connection that begins at or before its PREPARE. So nothing
behind that is acknowledged until the commit is durable, and a connection begins at what was
acknowledged, not at what is durable: what was committed in between comes again, and is left out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from mirrorlake.errors import SourceGap, printable
from mirrorlake.model.position import Lsn
from mirrorlake.sources.base import REPAIR
from mirrorlake.sources.postgresql.protocol import BEGIN, COMMIT, MESSAGE, RELATION, TRUNCATE
from mirrorlake.sources.postgresql.recognition.table_message import is_ours
from mirrorlake.sources.postgresql.replication.in_progress import InProgress, as_whole
from mirrorlake.sources.postgresql.replication.spool import Message, Spool, Spools

BEGIN_PREPARE, PREPARE, STREAM_PREPARE, COMMIT_PREPARED, ROLLBACK_PREPARED = b"bPpKr"

_CHANGES = frozenset(b"IUDT")


class TwoPhase:
    """The transactions of one connection to a slot with `two_phase`."""

    def __init__(self, spools: Spools, since: Lsn) -> None:
        """since: everything that ends at or before it is durable."""
        self._spools, self._since = spools, since
        self._streamed = InProgress(spools)
        self._prepared: dict[int, tuple[Lsn, Spool]] = {}  # where its PREPARE begins
        self._open: Spool | None = None  # between Begin Prepare and Prepare
        self._committed: list[tuple[Lsn, Lsn]] = []  # where its PREPARE begins, its commit ends
        self._again = Again(since)

    def takes(self, _kind: int) -> bool:
        """All messages."""
        return True

    def take(self, lsn: int, message: bytes) -> Iterator[Message] | None:
        """As `InProgress.take`. Raises SourceGap too, for a transaction that was prepared before
        the slot was read by us."""
        found: Iterable[Message] | None = None
        kind = message[0]
        if self._streamed.takes(kind):
            found = self._streamed.take(lsn, message)
        elif kind == MESSAGE and not is_ours(message):
            pass
        elif kind == BEGIN_PREPARE:
            prepare, _end, _time, id_ = struct.unpack_from("!QQqI", message, 1)
            self._open = self._spools.new()
            self._prepared[id_] = Lsn(prepare), self._open
        elif kind == PREPARE:
            self._open = None
        elif self._open is not None:
            self._again.note(message)
            self._spools.append(self._open, lsn, message)
        elif kind == STREAM_PREPARE:
            _flags, prepare, _end, _time, id_ = struct.unpack_from("!BQQqI", message, 1)
            self._prepared[id_] = Lsn(prepare), self._streamed.prepared(id_)
        elif kind == COMMIT_PREPARED:
            found = self._commit(lsn, message)
        elif kind == ROLLBACK_PREPARED:
            (id_,) = struct.unpack_from("!I", message, 34)
            if id_ in self._prepared:
                self._prepared.pop(id_)[1].close()
        else:
            found = ((lsn, message),)
        return None if found is None else self._again.without_known(found)

    def acknowledgeable(self, durable: Lsn, sent: Lsn) -> Lsn:
        """As `InProgress.acknowledgeable`."""
        if sent < self._since:  # what was prepared before may still come
            return Lsn(0)
        self._committed = [(begin, end) for begin, end in self._committed if end > durable]
        pending = [begin for begin, _spool in self._prepared.values()]
        return min([durable, *pending, *(begin for begin, _end in self._committed)])

    def close(self) -> None:
        self._streamed.close()
        for _begin, spool in self._prepared.values():
            spool.close()
        self._prepared.clear()
        self._open = None

    def _commit(self, lsn: int, message: bytes) -> Iterator[Message] | None:
        flags, commit, end, time, id_ = struct.unpack_from("!BQQqI", message, 1)
        if id_ not in self._prepared:
            if Lsn(commit) < self._since:
                return None
            name = message[30:-1].decode(errors="replace")
            raise SourceGap(
                f"transaction {printable(name)} was prepared before the slot was read, or while "
                "another program read it: its changes are lost",
                where="PostgreSQL",
                hint=REPAIR,
            )
        begin, spool = self._prepared.pop(id_)
        self._committed.append((begin, Lsn(end)))
        return as_whole(spool, lsn, id_, flags, commit, end, time)


class Again:
    """Leaves out transactions that are durable and come again. A table is described by the first
    transaction that changes it, which may be left out, or prepared and not committed: then the
    description comes in front of the next change."""

    def __init__(self, since: Lsn) -> None:
        self._since = since
        self._is_known = False  # the transaction that is being read
        self._owed: dict[int, bytes] = {}  # descriptions that were not handed on, by table
        self._leaves: dict[int, list[int]] = {}  # partitions that were described behind a table
        self._described: int | None = None  # by the message before

    def note(self, message: bytes) -> None:
        """A message is withheld, or left out."""
        described = None
        if message[0] == RELATION:
            (described,) = struct.unpack_from("!I", message, 1)
            self._owed[described] = message
            if self._described is not None:
                self._leaves.setdefault(self._described, []).append(described)
        self._described = described

    def without_known(self, messages: Iterable[Message]) -> Iterator[Message]:
        for lsn, message in messages:
            kind = message[0]
            if kind == BEGIN:
                (commit,) = struct.unpack_from("!Q", message, 1)
                self._is_known = Lsn(commit) < self._since
            if self._is_known:
                self.note(message)
                self._is_known = kind != COMMIT
                continue
            if kind == RELATION:
                self._renew(message)
            elif self._owed and kind in _CHANGES:
                for table in _tables(message):
                    yield from ((lsn, description) for description in self._due(table))
            yield lsn, message

    def _renew(self, message: bytes) -> None:
        (table,) = struct.unpack_from("!I", message, 1)
        self._owed.pop(table, None)
        self._leaves.pop(table, None)

    def _due(self, table: int) -> Iterator[bytes]:
        """What describes a table, once: by itself, and each of its partitions behind it."""
        description = self._owed.pop(table, None)
        if description is None:
            return
        leaves = [self._owed.pop(leaf, None) for leaf in self._leaves.pop(table, [])]
        yield description
        for number, leaf in enumerate(filter(None, leaves)):
            yield from [description, leaf] if number else [leaf]


def _tables(message: bytes) -> tuple[int, ...]:
    if message[0] == TRUNCATE:
        (count,) = struct.unpack_from("!I", message, 1)
        return struct.unpack_from(f"!{count}I", message, 6)
    return struct.unpack_from("!I", message, 1)
