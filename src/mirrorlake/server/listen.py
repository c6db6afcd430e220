"""The process of the service: it listens, supervises, and ends on a signal within five seconds."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType

import uvicorn

from mirrorlake.app.streams.projects import ServiceFolders
from mirrorlake.app.streams.service import opened
from mirrorlake.config import Project
from mirrorlake.control.secrets import write_private
from mirrorlake.errors import UsageError
from mirrorlake.server.application import application
from mirrorlake.server.connections import (
    IDLE_SECONDS,
    MOST,
    BoundedConnection,
    encrypt,
)

TOKEN, ADDRESS = "token", "serve.json"
_LOCAL = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  (nothing is bound here)
"""By the address that stands for all of them: the one of this machine alone."""
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_DATE_SECONDS = 1.0
_ANSWER_SECONDS = 2
"""How long requests may take to be answered after the signal; streams end meanwhile."""
_EXIT_SECONDS = 4.5
"""After so long the process leaves, whatever still runs: a crash would leave no less."""


class _Server(uvicorn.Server):
    """Wakes up when it has to end, and once a second for the date that its answers bear, instead of
    ten times a second."""

    _wake: Callable[[], object] = staticmethod(lambda: None)

    def __init__(self, config: uvicorn.Config, asked: Callable[[], None]) -> None:
        """asked: called when a signal asks it to end, before it waits for its connections."""
        super().__init__(config)
        self._asked = asked

    async def main_loop(self) -> None:
        loop, ends = asyncio.get_running_loop(), asyncio.Event()
        self._wake = partial(loop.call_soon_threadsafe, ends.set)
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(ends.wait(), _DATE_SECONDS)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._asked()
        self._wake()


@dataclass(frozen=True, slots=True)
class Listening:
    """Where the service listens, and with which certificate."""

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None
    needs_token: bool = True

    @property
    def scheme(self) -> str:
        return "https" if self.certificate else "http"


def listen(
    places: ServiceFolders,
    listening: Listening,
    say: Callable[[str], None],
    *,
    database: str | None = None,
    prepare: Callable[[], None] | None = None,
    applies: bool = True,
    listed: Sequence[Project] = (),
    file: str = "",
) -> None:
    """Serve until SIGTERM or SIGINT. Raises LeaseHeld, UsageError, StorageUnavailable."""
    stop = threading.Event()
    with opened(
        places,
        stop,
        database=database,
        prepare=prepare,
        applies=applies,
        listed=listed,
        file=file,
    ) as service:
        bound = _bound(listening)
        token = _token(places.folder) if listening.needs_token else None
        url = _url(listening, listening.host, bound)
        is_local = not listening.certificate
        hosts = {"127.0.0.1", "localhost", "::1"} if is_local else None
        config = uvicorn.Config(
            application(service, token, hosts),
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            ssl_certfile=listening.certificate,
            ssl_keyfile=listening.key,
            timeout_graceful_shutdown=_ANSWER_SECONDS,
            http=BoundedConnection,
            timeout_keep_alive=IDLE_SECONDS,
            limit_concurrency=MOST,
        )
        _load(config, listening)

        def end() -> None:
            if not stop.is_set():
                last = threading.Timer(_EXIT_SECONDS, os._exit, [0])
                last.daemon = True
                last.start()
                # Not in the handler of the signal, which may have interrupted who holds its lock.
                threading.Thread(target=service.supervisor.end, daemon=True, name="end").start()

        server = _Server(config, end)

        def signalled(_number: int, _frame: object) -> None:
            end()
            server.should_exit = True

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signalled)
        supervising = threading.Thread(target=service.supervisor.run, name="supervisor")
        supervising.start()
        write_private(places.folder / ADDRESS, json.dumps(_address(listening, bound)))
        say(f"Serving {url}/v1 for {places.folder}" + ("" if token else ", without a token"))
        say(f"The page for people is {url}/" + (", its login the token" if token else ""))
        try:
            server.run(sockets=[bound])
        finally:
            end()
            supervising.join()
            (places.folder / ADDRESS).unlink(missing_ok=True)
    os._exit(0)  # threads may still wait for a source that does not answer


def _load(config: uvicorn.Config, listening: Listening) -> None:
    """Raises UsageError for a certificate or a key that cannot be used."""
    try:
        config.load()
    except OSError as error:  # that of `ssl` is one
        raise UsageError(
            f"certificate and key cannot be used: {error.strerror or error}",
            where=f"{listening.certificate}, {listening.key}",
            hint="Name two files in PEM that belong together.",
        ) from None
    encrypt(config)


def _url(listening: Listening, host: str, bound: socket.socket) -> str:
    named = f"[{host}]" if ":" in host else host
    return f"{listening.scheme}://{named}:{bound.getsockname()[1]}"


def _address(listening: Listening, bound: socket.socket) -> dict[str, str | int]:
    """How the commands on this machine reach the service: its certificate is for the names by which
    other machines know it, so they are told which one to expect."""
    host = _LOCAL.get(listening.host, listening.host)
    found: dict[str, str | int] = {"url": _url(listening, host, bound), "pid": os.getpid()}
    if listening.certificate is not None:
        # Its own is the first; the file may have others, and the key.
        text = listening.certificate.read_text(encoding="ascii", errors="replace")
        if own := _CERTIFICATE.search(text):
            found["certificate"] = own[0]
    return found


def _bound(listening: Listening) -> socket.socket:
    family = socket.AF_INET6 if ":" in listening.host else socket.AF_INET
    # With the protocol named, asyncio sends each answer at once (TCP_NODELAY).
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((listening.host, listening.port))
    except OSError as error:
        found.close()
        raise UsageError(
            f"cannot listen there: {(error.strerror or 'refused').lower()}",
            where=f"{listening.host}, port {listening.port}",
            hint="Choose another port with --port.",
        ) from None
    return found


def _token(folder: Path) -> str:
    """The token of the environment, or the one of the folder, made at the first start. Raises
    UsageError for one that no client can send."""
    if given := os.environ.get("MIRRORLAKE_TOKEN"):
        return given
    path = folder / TOKEN
    try:
        if found := path.read_bytes().decode("latin-1").strip():
            if not (found.isascii() and found.isprintable()):
                raise UsageError(
                    "the token of the service is damaged",
                    where=str(path),
                    hint="Restore the file, or delete it: a new token is made, for all clients.",
                )
            return found
    except FileNotFoundError:
        pass
    made = secrets.token_urlsafe(32)
    write_private(path, made)
    return made
