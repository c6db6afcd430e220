"""Clients that send nothing, or a head byte by byte, are left after a while; others are not."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from mirrorlake.server import connections
from tests.server.service import wait


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Says what it was sent."""
    content = await Request(scope, receive).body()
    await PlainTextResponse(content)(scope, receive, send)


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        config = uvicorn.Config(
            app, http=connections.BoundedConnection, log_config=None, lifespan="off"
        )
        server = uvicorn.Server(config)
        serving = threading.Thread(target=lambda: asyncio.run(server.serve([bound])))
        serving.start()
        wait(lambda: server.started, 120)
        yield bound.getsockname()[1]
        server.should_exit = True
        serving.join()


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=120)


GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHos"])
@pytest.mark.parametrize("is_first", [True, False])
def test_who_sends_no_whole_request_is_left(port: int, sent: bytes, *, is_first: bool) -> None:
    with connected(port) as client:
        if not is_first:
            client.sendall(GET)
            assert client.recv(10_000).startswith(b"HTTP/1.1 200")
            sent = sent or b"G"
        client.sendall(sent)
        assert client.recv(10_000) == b""


def test_who_sends_a_long_body_or_asks_again_is_answered(port: int) -> None:
    with connected(port) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\n")
        for part in (b"ab", b"cd", b"ef"):
            threading.Event().wait(0.3)
            client.sendall(part)
        answer = b""
        while not answer.endswith(b"abcdef"):
            answer += client.recv(10_000)
        threading.Event().wait(0.6)
        client.sendall(GET)
        assert client.recv(10_000).startswith(b"HTTP/1.1 200")
