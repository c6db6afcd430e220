"""Connections of clients: one on which no request arrives is closed, at once where another client
needs its place."""

from __future__ import annotations

import asyncio
import ssl
from functools import partial
from typing import Any, cast

from uvicorn import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

HEAD_SECONDS = 20.0
"""How long a client may take to send the head of a request, counted from its first byte, or for the
first request from the connection. Between requests a connection may be idle for longer."""
IDLE_SECONDS = 75
MOST = 200
"""Connections at the same time. Of more, the one that has waited longest for its client is given
up; while the service works for all of them, requests of further ones are refused."""
TASKS_PER_CONNECTION = 5
"""Requests worked for at the same time, as a multiple of the connections: those of clients that
left are among them. The one of a connection that is given up ends within three turns of the loop,
so that given up connections alone never reach it."""


class BoundedConnection(H11Protocol):
    """HTTP/1.1 of uvicorn, which waits for a client without end: who opened as many connections as
    there may be, and sent nothing, would keep everybody else out."""

    _closing: asyncio.TimerHandle | None = None
    _most: int | None = None
    """Connections that there may be; `limit_concurrency`, which the base class compares with the
    number of connections and with that of requests worked for, is what this one may use."""
    _is_admitted = False
    since = 0.0
    """When its client last did a whole step: connected, sent a head, or was answered."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.since = self.loop.time()
        self._most = self.limit_concurrency
        self._admit()
        self._look()

    def data_received(self, data: bytes) -> None:
        if not self._is_admitted:
            self._admit()
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self.since = self.loop.time()
        self._look()

    def on_response_complete(self) -> None:
        self.since = self.loop.time()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._forget()

    def _admit(self) -> None:
        """Take a place, of those that have waited longest where all are taken. Without one, each
        request of this connection is refused."""
        if self._most is None:
            self._is_admitted = True
            return
        others = (cast("BoundedConnection", one) for one in self.connections if one is not self)
        waiting = sorted((one for one in others if one.waits()), key=lambda one: one.since)
        for one in waiting[: max(len(self.connections) - self._most, 0)]:
            self.connections.discard(one)  # at once: the transport reports it later
            one.transport.abort()
        self._is_admitted = len(self.connections) <= self._most
        self.limit_concurrency = TASKS_PER_CONNECTION * self._most if self._is_admitted else 0

    def waits(self) -> bool:
        """Whether the next step is the client's: it has to send the rest of a request, or to read
        an answer."""
        return self._waits_for_head() or self.cycle.more_body or self.flow.write_paused

    def _waits_for_head(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        return cycle is None or cycle.response_complete

    def _look(self) -> None:
        """Begin to wait for a head, or end it."""
        if not self._waits_for_head():
            self._forget()
        elif self._closing is None:
            self._closing = self.loop.call_later(HEAD_SECONDS, self._leave)

    def _leave(self) -> None:
        self.transport.close()  # which may be another than at first

    def _forget(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None


class EncryptedConnection(BoundedConnection):
    """The same over TLS. Its place is taken when the client connects, not when they have agreed on
    a key: who opened many connections and sent nothing would use up the files of the process."""

    def __init__(self, context: ssl.SSLContext, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._context = context
        self._is_agreed, self._early = False, bytearray()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        transport.pause_reading()  # what comes first is not for the base class
        super().connection_made(transport)
        self._agreeing = self.loop.create_task(self._agree(transport))

    def data_received(self, data: bytes) -> None:
        if self._is_agreed:
            super().data_received(data)
        else:  # the first request may come with the end of the handshake
            self._early += data

    async def _agree(self, transport: asyncio.Transport) -> None:
        """Agree with the client on a key."""
        encrypted, failure = None, None
        try:
            encrypted = await self.loop.start_tls(
                transport,
                self,
                self._context,
                server_side=True,
                ssl_handshake_timeout=HEAD_SECONDS,
                ssl_shutdown_timeout=HEAD_SECONDS,
            )
        except OSError as error:  # that of `ssl` is one
            failure = error
        if encrypted is None:  # it failed, or the connection was given up meanwhile
            self.connection_lost(failure)
            return
        self.transport, self.flow, self.scheme = encrypted, FlowControl(encrypted), "https"
        self._is_agreed = True
        if self._early and not encrypted.is_closing():
            super().data_received(bytes(self._early))
        self._early.clear()


def encrypt(config: Config) -> None:
    """Let the connections of a loaded configuration that has a certificate begin TLS themselves."""
    if config.ssl is not None:
        of_context = partial(EncryptedConnection, config.ssl)
        config.ssl, config.http_protocol_class = None, cast("type[asyncio.Protocol]", of_context)
