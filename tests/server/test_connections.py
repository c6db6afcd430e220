"""Clients that send nothing, or a head byte by byte, are left after a while, and at once where
another needs their place; others are not."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from mirrorlake.server import connections
from tests.server.service import wait
from tests.server.test_tls import files_of


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Says what it was sent."""
    content = await Request(scope, receive).body()
    await PlainTextResponse(content)(scope, receive, send)


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)
    with serving(app, None) as found:
        yield found


@contextmanager
def serving(app: ASGIApp, most: int | None, *files: Path) -> Iterator[int]:
    """The port of a server of an application, which holds so many connections. files: a certificate
    and its key."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        config = uvicorn.Config(
            app,
            http=connections.BoundedConnection,
            log_config=None,
            lifespan="off",
            limit_concurrency=most,
            ssl_certfile=files[0] if files else None,
            ssl_keyfile=files[1] if files else None,
        )
        config.load()
        connections.encrypt(config)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([bound])))
        thread.start()
        try:
            wait(lambda: server.started, 120)
            yield bound.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=120)


GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.mark.full
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


@pytest.mark.full
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


POST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\n"


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHos", POST + b"ab"])
def test_clients_that_do_not_go_on_keep_nobody_out(sent: bytes) -> None:
    with serving(app, 5) as port, ExitStack() as opened:
        for _ in range(12):
            opened.enter_context(connected(port)).sendall(sent)
        with connected(port) as client:
            for _ in range(2):
                client.sendall(GET)
                assert client.recv(10_000).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01", GET])
def test_clients_that_do_not_agree_on_a_key_keep_nobody_out(tmp_path: Path, sent: bytes) -> None:
    certificate, key = files_of(tmp_path, "own")
    trusting = ssl.create_default_context(cafile=certificate)

    async def long(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse(scope["scheme"] * 100_000)(scope, receive, send)

    with serving(long, 5, certificate, key) as port, ExitStack() as opened:
        silent = [opened.enter_context(connected(port)) for _ in range(12)]
        for one in silent:
            one.sendall(sent)
        encrypted = opened.enter_context(connected(port))
        with trusting.wrap_socket(encrypted, server_hostname="lake.example.com") as client:
            for _ in range(2):
                client.sendall(GET)
                answer = b""
                while not answer.endswith(b"\r\n\r\n" + b"https" * 100_000):
                    answer += client.recv(1_000_000)
                assert answer[:12] == b"HTTP/1.1 200"
        assert all(left(one) for one in silent[:8])


def left(client: socket.socket) -> bool:
    """Whether the server closes a connection; it waits for that."""
    try:
        while client.recv(1_000):  # an alert of TLS may come before
            pass
    except ConnectionResetError:
        pass
    return True


def test_who_comes_while_others_are_given_up_is_answered() -> None:
    begun, goes_on = threading.Semaphore(0), threading.Event()

    async def busy(scope: Scope, receive: Receive, send: Send) -> None:
        begun.release()
        if scope["method"] == "GET" and not goes_on.is_set():
            goes_on.wait(120)  # holds the loop: what comes meanwhile is found in one turn
        await app(scope, receive, send)

    with serving(busy, 5) as port, ExitStack() as opened:
        for sent in (POST + b"ab", POST + b"ab", POST + b"ab", GET):
            opened.enter_context(connected(port)).sendall(sent)
            assert begun.acquire(timeout=120)
        for sent in (POST + b"ab", POST + b"ab", POST + b"ab"):
            opened.enter_context(connected(port)).sendall(sent)
        client = opened.enter_context(connected(port))
        client.sendall(GET)
        goes_on.set()
        assert client.recv(10_000).startswith(b"HTTP/1.1 200")


def test_a_connection_that_is_worked_for_is_not_given_up() -> None:
    begun, goes_on = threading.Event(), threading.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        content = await Request(scope, receive).body()
        begun.set()
        await asyncio.to_thread(goes_on.wait, 120)
        await PlainTextResponse(content + b".")(scope, receive, send)

    with serving(slow, 3) as port, ExitStack() as opened:
        asked = opened.enter_context(connected(port))
        asked.sendall(POST + b"abcdef")
        assert begun.wait(120)
        silent = [opened.enter_context(connected(port)) for _ in range(6)]
        assert all(one.recv(1) == b"" for one in silent[:4]), "the oldest leave first"
        goes_on.set()
        answer = b""
        while not answer.endswith(b"abcdef."):
            answer += asked.recv(10_000)


def test_an_answer_that_nobody_reads_keeps_nobody_out() -> None:
    async def long(scope: Scope, receive: Receive, send: Send) -> None:
        size = 50_000_000 if scope["path"] == "/long" else 1
        await PlainTextResponse(b"x" * size)(scope, receive, send)

    with serving(long, 3) as port, ExitStack() as opened:
        for _ in range(6):
            unread = opened.enter_context(connected(port))
            unread.sendall(GET.replace(b"/", b"/long", 1))
            assert unread.recv(12) == b"HTTP/1.1 200"
        with connected(port) as client:
            client.sendall(GET)
            assert client.recv(10_000).startswith(b"HTTP/1.1 200")
