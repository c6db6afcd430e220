"""The stream of a slot: reads messages as they come, decodes them together, answers the server."""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import structlog
from psycopg import pq, sql

from mirrorlake.errors import SourceUnavailable
from mirrorlake.model.position import LogPoint, Lsn
from mirrorlake.sources.base import OpenAgain
from mirrorlake.sources.chunk import Chunk, TableDiffers
from mirrorlake.sources.postgresql import protocol
from mirrorlake.sources.postgresql.connect import Connection, simple_query
from mirrorlake.sources.postgresql.decoder import Decoder
from mirrorlake.sources.postgresql.recognition.table_message import is_ours
from mirrorlake.sources.postgresql.refusals import translated
from mirrorlake.sources.postgresql.replication import in_progress
from mirrorlake.sources.postgresql.replication.in_progress import InProgress
from mirrorlake.sources.postgresql.replication.prepared import TwoPhase
from mirrorlake.sources.postgresql.replication.spool import Message, Spools
from mirrorlake.sources.postgresql.types.sent_values import TextNeeded

log = structlog.get_logger()

STREAMING_OFF = "streaming_off"
STREAM_RENEWED = "stream_renewed"

_KEEPALIVE = ord("k")
_HEADER = 25  # type, start, end, time of a message of data
_ANSWER_SECONDS, _MOST_ANSWER_SECONDS = 1.0, 2.0
"""Between two status updates, each of which requests the server's position: as long as a reader
waits for changes at once, within these bounds."""

GATHER_SECONDS = 0.25
"""How long a chunk is gathered at most, from its first message on: as long as the reader can wait,
and not so long that decoding it would keep a publication waiting."""

LINGER_SECONDS = 0.03
"""How long the server may pause within what is gathered: transactions that follow each other
closely are decoded together, and a single one is not kept waiting much."""

_MEMORY_BYTES = 16 << 20
"""Messages of transactions in progress that are kept in memory; more of them are in files."""

_END_SECONDS = 10.0
"""For which the server is waited for at the end of a stream, in seconds."""

_INTERNAL_ERROR = b"XX000"
_NO_BINARY = {
    b"42883",  # "no binary output function available"
    b"0A000",
}
"""States of errors of types that cannot be sent in binary format, or not all values of them."""
_WITH_MESSAGES = 140_000  # the first version that sends them


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
        reconnect: Callable[[], Connection] | None = None,
        streaming: bool = False,
        two_phase: bool = False,
        messages: bool = False,
        binary: bool = False,
        need_text: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        """reconnect: opens another connection, to begin anew, as streaming and a decoder with a
        recognition need it. streaming: transactions in progress are streamed, if the server knows
        it, and until it fails. two_phase: the slot sends transactions when they are prepared.
        messages: logical messages are requested, if the server can send them. binary: values come
        in the binary format of their types; need_text: called with the reason when they have to
        come as text, with the connection closed."""
        assert isinstance(since, Lsn)
        self._connection, self._decoder, self._limit = replication, decoder, chunk_bytes
        self._pgconn = replication.pgconn
        self._lsns: list[int] | None = [] if metadata else None  # of the messages gathered
        self._acknowledged = self._durable = Lsn(0)
        self._answered = self.heard = time.monotonic()
        self._answer_every = _ANSWER_SECONDS
        self._idle = Lsn(0)  # the last such place that we passed on
        names = ",".join('"' + name.replace('"', '""') + '"' for name in publications)
        self._slot, self._publications = slot, sql.Literal(names)
        self._passed = since  # behind the last transaction that was handed on
        self._has_ended, self._two_phase = False, two_phase
        self._messages = messages
        self._binary, self._need_text = binary, need_text
        self._replayed: Iterator[Message] | None = None  # of a transaction that has waited
        self._reconnect = reconnect
        self._start(streaming=streaming)

    def _start(self, *, streaming: bool) -> None:
        """Begin behind what was handed on. A slot with two_phase begins where it was acknowledged,
        so that transactions that were prepared since come."""
        version = self._connection.info.server_version
        self._streaming = in_progress.streaming_option(version) if streaming else None
        spools = Spools(_MEMORY_BYTES)
        self._in_progress: InProgress | TwoPhase | None = None
        if self._two_phase:
            self._in_progress = TwoPhase(spools, self._passed)
            self._idle = Lsn(max(self._passed.value - 1, 0))  # what comes again is not idle
        elif self._streaming:
            self._in_progress = InProgress(spools)
        self._sent = Lsn(0)  # the position that the server last reported
        newest = in_progress.protocol_version(version) if self._in_progress else 1
        options = [
            sql.SQL("proto_version {}").format(sql.Literal(str(newest))),
            sql.SQL("publication_names {}").format(self._publications),
        ]
        if self._messages and version >= _WITH_MESSAGES:
            options.append(sql.SQL("messages {}").format(sql.Literal("true")))
        if self._binary:
            options.append(sql.SQL("binary {}").format(sql.Literal("true")))
        if self._streaming:
            options.append(sql.SQL("streaming {}").format(sql.Literal(self._streaming)))
        begin = Lsn(0) if self._two_phase else self._passed
        simple_query(
            self._connection,
            sql.SQL("START_REPLICATION SLOT {} LOGICAL {} ({})")
            .format(sql.Identifier(self._slot), sql.SQL(str(begin)), sql.SQL(", ").join(options))
            .as_string(self._connection),
        )

    def read(self, wait: float) -> Chunk | None:
        self._answer_every = min(max(wait, _ANSWER_SECONDS), _MOST_ANSWER_SECONDS)
        with translated():
            messages, caught_up = self._gathered(time.monotonic() + wait)
            if self._replayed is not None:  # the server is not waited for, but heard
                self._wait(0)
            self._answer_when_due()
        has_news = messages or self._sent > self._idle or self._decoder.has_noted
        if not has_news and not self._is_renewal_due():
            return None
        # Messages come in order: all up to the position that the server last reported are read.
        try:
            chunk = self._decoder.decode(messages, self._lsns)
        except TextNeeded as needed:
            raise self._as_text(str(needed)) from needed
        if caught_up and not self._decoder.in_transaction and self._sent > self._idle:
            self._idle = self._sent
            self._decoder.passed(self._sent)
            chunk = replace(chunk, idle=self._sent)
        for point in chunk.reached():
            assert isinstance(point, Lsn)
            self._passed = max(self._passed, point)
        if self._is_renewal_due():
            chunk = replace(chunk, parts=[*chunk.parts, *self._renew()])
        return chunk if messages or chunk.idle or chunk.known or chunk.parts else None

    def _gathered(self, deadline: float) -> tuple[list[bytes], bool]:
        """The available messages, and whether the server then reported that there are no more.

        Messages are gathered because a chunk has a fixed cost, whatever is in it.
        """
        messages: list[bytes] = []
        size, caught_up = 0, False
        if self._lsns is not None:
            self._lsns = []
        while size < self._limit:
            if self._replayed is not None:
                deadline = deadline if messages else _soon(deadline)
                size += self._replay(messages, self._limit - size)
                continue
            if self._has_ended:
                if messages:
                    break
                self._go_on_without_streaming()
            count, data = self._pgconn.get_copy_data(1)
            if count > 0:
                if caught_up := data[0] == _KEEPALIVE:
                    self._keepalive(data)
                    continue
                may_be_withheld = self._in_progress or data[_HEADER] == protocol.MESSAGE
                if may_be_withheld and self._is_withheld(data):
                    continue
                if not messages:
                    deadline = _soon(deadline)
                # A copy: the collector follows every view, and there are hundred thousands.
                messages.append(bytes(data[_HEADER:]))
                if self._lsns is not None:
                    self._lsns.append(int.from_bytes(data[1:9], "big"))
                size += count - _HEADER
            elif count < 0:
                self._has_ended = True
            elif caught_up or not self._more_comes(deadline, bool(messages)):
                break
        return messages, caught_up

    def _more_comes(self, deadline: float, has_messages: bool) -> bool:
        """Wait for the server, or until the deadline. Returns whether to look again."""
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        return self._wait(min(left, LINGER_SECONDS) if has_messages else left) or not has_messages

    def _is_withheld(self, data: bytes | memoryview) -> bool:
        """Take a message of a transaction in progress, if it is one, and leave out what
        applications write to the log."""
        streamed = self._in_progress
        if streamed is None or not streamed.takes(data[_HEADER]):
            return data[_HEADER] == protocol.MESSAGE and not is_ours(data[_HEADER:])
        lsn = int.from_bytes(data[1:9], "big")
        self._replayed = streamed.take(lsn, bytes(data[_HEADER:]))
        return True

    def _replay(self, messages: list[bytes], room: int) -> int:
        """Add messages of the transaction that was streamed, up to so many bytes. Returns their
        bytes."""
        assert self._replayed is not None
        size = 0
        for lsn, message in self._replayed:
            messages.append(message)
            if self._lsns is not None:
                self._lsns.append(lsn)
            size += len(message)
            if size >= room:
                return size
        self._replayed = None
        return size

    def acknowledge(self, point: LogPoint) -> None:
        assert isinstance(point, Lsn)
        self._durable = max(self._durable, point)
        with translated():
            self._answer()

    def close(self) -> None:
        self._connection.close()
        self._replayed = None  # and with it its file
        if self._in_progress is not None:
            self._in_progress.close()

    def _wait(self, seconds: float) -> bool:
        """Wait for the server, or until it is time to answer it. Returns whether it sent more."""
        due = self._answered + self._answer_every - time.monotonic()
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
        if time.monotonic() - self._answered >= self._answer_every:
            self._answer()

    def _answer(self) -> None:
        """Report to the server what is durable, and request its position. A stream that has ended
        takes no more answers; what came of it before is still read."""
        if self._has_ended:
            return
        durable, waiting = self._durable, self._in_progress
        safe = waiting.acknowledgeable(durable, self._sent) if waiting else durable
        self._acknowledged = max(self._acknowledged, safe)
        offset = self._acknowledged.value
        now = time.time_ns() // 1000 - protocol.POSTGRES_EPOCH
        self._pgconn.put_copy_data(struct.pack("!cQQQQB", b"r", offset, offset, offset, now, 1))
        self._pgconn.flush()
        self._answered = time.monotonic()

    def _is_renewal_due(self) -> bool:
        recognition = self._decoder.recognition
        is_open = self._decoder.in_transaction or self._replayed is not None
        if is_open or self._has_ended or recognition is None:
            return False
        return recognition.renewals.is_due(self._passed)

    def _renew(self) -> Iterator[TableDiffers]:
        """Begin behind what was handed on: with the stream the server forgets what is published.
        Returns the tables that are to be read since."""
        assert self._decoder.recognition is not None
        with translated():
            self._end()
        self._start_again(streaming=self._streaming is not None)
        log.info(STREAM_RENEWED, slot=self._slot, position=str(self._passed))
        return self._decoder.recognition.renewed(self._passed)

    def _end(self) -> None:
        """End the stream, so that its slot is free, and leave what comes of it meanwhile: it will
        come again. Raises SourceUnavailable."""
        deadline = time.monotonic() + _END_SECONDS
        self._pgconn.put_copy_end()
        self._pgconn.flush()
        while (count := self._pgconn.get_copy_data(1)[0]) >= 0:
            left = deadline - time.monotonic()
            if left <= 0:
                raise SourceUnavailable(
                    f"PostgreSQL did not end the replication stream within {_END_SECONDS:.0f} s",
                    hint="Capture reconnects.",
                )
            if count == 0 and select.select([self._pgconn.socket], [], [], left)[0]:
                self._pgconn.consume_input()
        while self._pgconn.get_result() is not None:
            pass

    def _go_on_without_streaming(self) -> None:
        """The server has ended the stream. If it failed where it streamed a transaction, it starts
        again without; otherwise OpenAgain, if it failed with binary values, or SourceUnavailable.

        PostgreSQL cannot decode a transaction in progress that altered a table, rolled that back to
        a savepoint and altered it again ("could not map filenumber"); as a whole it can.
        """
        result = self._pgconn.get_result()
        reason = result.error_message.decode(errors="replace").strip() if result else ""
        state = result.error_field(pq.DiagnosticField.SQLSTATE) if result else None
        is_between = not self._decoder.in_transaction
        if self._binary and state in _NO_BINARY:
            raise self._as_text(reason.splitlines()[0])
        if not (self._reconnect and self._streaming and state == _INTERNAL_ERROR and is_between):
            raise SourceUnavailable(
                f"PostgreSQL ended the replication stream: {reason or 'no reason given'}",
                hint="Capture reconnects.",
            )
        log.warning(STREAMING_OFF, slot=self._slot, reason=reason, until="the next connection")
        self._start_again(streaming=False)

    def _as_text(self, reason: str) -> Exception:
        """What to raise: this stream cannot go on, and one that brings texts can."""
        if not self._binary:
            return SourceUnavailable(
                f"PostgreSQL sent values in binary format, which was not requested: {reason}",
                hint="Capture reconnects.",
            )
        self.close()
        self._need_text(reason)
        return OpenAgain(reason)

    def _start_again(self, *, streaming: bool) -> None:
        """On another connection: servers have crashed of using the process of a failed stream
        again, and that of one that was ended ends the next at once."""
        assert self._reconnect is not None
        self._connection.close()
        self._connection = self._reconnect()
        self._pgconn = self._connection.pgconn
        if self._in_progress is not None:
            self._in_progress.close()
        self._has_ended = False
        self._start(streaming=streaming)


def _soon(deadline: float) -> float:
    """Until when a chunk is gathered that begins now."""
    return min(deadline, time.monotonic() + GATHER_SECONDS)
