"""The stream of a slot: reads messages as they come, decodes them together, answers the server."""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Sequence
from dataclasses import replace

from psycopg import sql

from mirrorlake.errors import SourceUnavailable
from mirrorlake.model.position import LogPoint, Lsn
from mirrorlake.sources.chunk import Chunk
from mirrorlake.sources.postgresql import protocol
from mirrorlake.sources.postgresql.connect import Connection, simple_query, translated
from mirrorlake.sources.postgresql.decoder import Decoder

_KEEPALIVE = ord("k")
_HEADER = 25  # type, start, end, time of a message of data
_ANSWER_EVERY = 1.0  # seconds; each status update requests the server's position

GATHER_SECONDS = 0.25
"""How long a chunk is gathered at most, from its first message on: as long as the reader can wait,
and not so long that decoding it would keep a publication waiting."""

LINGER_SECONDS = 0.03
"""How long the server may pause within what is gathered: transactions that follow each other
closely are decoded together, and a single one is not kept waiting much."""


class PostgresStream:
    """A `ChangeStream` over one replication connection. Not for several threads, but for `heard`:
    when the server sent something, as it does each second, because each answer asks it to."""

    def __init__(
        self,
        replication: Connection,
        slot: str,
        publications: Sequence[str],
        decoder: Decoder,
        chunk_bytes: int,
        since: LogPoint,
        *,
        metadata: bool,
    ) -> None:
        self._connection, self._decoder, self._limit = replication, decoder, chunk_bytes
        self._pgconn = replication.pgconn
        self._lsns: list[int] | None = [] if metadata else None  # of the messages gathered
        self._acknowledged = Lsn(0)
        self._answered = self.heard = time.monotonic()
        self._sent = Lsn(0)  # the position that the server last reported
        self._idle = Lsn(0)  # the last such place that we passed on
        names = ",".join('"' + name.replace('"', '""') + '"' for name in publications)
        simple_query(
            replication,
            sql.SQL(
                "START_REPLICATION SLOT {} LOGICAL {} (proto_version '1', publication_names {})"
            )
            .format(sql.Identifier(slot), sql.SQL(str(since)), sql.Literal(names))
            .as_string(replication),
        )

    def read(self, wait: float) -> Chunk | None:
        with translated():
            messages, caught_up = self._gathered(time.monotonic() + wait)
            self._answer_when_due()
        # Messages come in order: all up to the position that the server last reported are read.
        chunk = self._decoder.decode(messages, self._lsns)
        if caught_up and not self._decoder.in_transaction and self._sent > self._idle:
            self._idle = self._sent
            self._decoder.passed(self._sent)
            chunk = replace(chunk, idle=self._sent)
        return chunk if messages or chunk.idle else None

    def _gathered(self, deadline: float) -> tuple[list[bytes], bool]:
        """The available messages, and whether the server then reported that there are no more.

        Messages are gathered because a chunk has a fixed cost, whatever is in it.
        """
        messages: list[bytes] = []
        size, caught_up = 0, False
        if self._lsns is not None:
            self._lsns = []
        while size < self._limit:
            count, data = self._pgconn.get_copy_data(1)
            if count > 0:
                if caught_up := data[0] == _KEEPALIVE:
                    self._keepalive(data)
                    continue
                if not messages:
                    deadline = min(deadline, time.monotonic() + GATHER_SECONDS)
                # A copy: the collector follows every view, and there are hundred thousands.
                messages.append(bytes(data[_HEADER:]))
                if self._lsns is not None:
                    self._lsns.append(int.from_bytes(data[1:9], "big"))
                size += count - _HEADER
            elif count == 0:
                left = deadline - time.monotonic()
                if caught_up or left <= 0:
                    break
                if not self._wait(min(left, LINGER_SECONDS) if messages else left) and messages:
                    break
            else:
                self._ended()
        return messages, caught_up

    def acknowledge(self, point: LogPoint) -> None:
        assert isinstance(point, Lsn)
        self._acknowledged = max(self._acknowledged, point)
        with translated():
            self._answer()

    def close(self) -> None:
        self._connection.close()

    def _wait(self, seconds: float) -> bool:
        """Wait for the server, or until it is time to answer it. Returns whether it sent more."""
        due = self._answered + _ANSWER_EVERY - time.monotonic()
        ready, _, _ = select.select([self._pgconn.socket], [], [], max(min(seconds, due), 0.0))
        if ready:
            self._pgconn.consume_input()
            self.heard = time.monotonic()
        self._answer_when_due()
        return bool(ready)

    def _keepalive(self, data: bytes | memoryview) -> None:
        """Record the position of the server, and reply when it requests that."""
        sent, _time, reply = struct.unpack_from("!QQB", data, 1)
        self._sent = max(self._sent, Lsn(sent))
        if reply:
            self._answer()

    def _answer_when_due(self) -> None:
        if time.monotonic() - self._answered >= _ANSWER_EVERY:
            self._answer()

    def _answer(self) -> None:
        """Report to the server what is durable, and request its position."""
        offset = self._acknowledged.value
        now = time.time_ns() // 1000 - protocol.POSTGRES_EPOCH
        self._pgconn.put_copy_data(struct.pack("!cQQQQB", b"r", offset, offset, offset, now, 1))
        self._pgconn.flush()
        self._answered = time.monotonic()

    def _ended(self) -> None:
        result = self._pgconn.get_result()
        reason = result.error_message.decode(errors="replace") if result else ""
        raise SourceUnavailable(
            f"PostgreSQL ended the replication stream: {reason.strip() or 'no reason given'}",
            hint="Capture reconnects.",
        )
