"""Connections of clients: one on which no request arrives is closed."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

HEAD_SECONDS = 20.0
"""How long a client may take to send the head of a request, counted from its first byte, or for the
first request from the connection. Between requests a connection may be idle for longer."""
IDLE_SECONDS = 75
MOST = 200
"""Connections at the same time; of more, requests are refused."""


class BoundedConnection(H11Protocol):
    """HTTP/1.1 of uvicorn, which waits for the head of a request without end: who opened as many
    connections as there may be, and sent nothing, would keep everybody else out."""

    _closing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._look()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._forget()

    def _look(self) -> None:
        """Begin to wait for a head, or end it."""
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        if cycle is not None and not cycle.response_complete:
            self._forget()
        elif self._closing is None:
            self._closing = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _forget(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
