"""Who may ask: a bearer token, a host name that is ours, bodies and logins within bounds."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections import deque
from collections.abc import Collection
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from mirrorlake.errors import InvalidRequest
from mirrorlake.server.errors import refusal

LARGEST_BODY = 1 << 20
BODY_SECONDS = 20.0
"""How long a client may take to send its body."""
LOGIN_FAILURES, LOGIN_SECONDS = 20, 60.0
"""So many wrong tokens within so many seconds are answered; then every wrong one waits."""
OPEN = ("/healthz", "/readyz")
"""Addresses that need no token: they tell nothing of any stream."""


class Guard:
    """Lets through what has a right to be answered. token: None asks for none; hosts: the names by
    which the service may be called, None for any."""

    def __init__(self, app: ASGIApp, token: str | None, hosts: Collection[str] | None) -> None:
        self._app, self._token, self._hosts = app, token, hosts
        self._failures: deque[float] = deque(maxlen=LOGIN_FAILURES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refused = self._refused(Request(scope))
        await (refused or self._app)(scope, receive, send)

    def _refused(self, request: Request) -> JSONResponse | None:
        host = request.headers.get("host", "").rsplit(":", 1)[0].strip("[]").lower()
        if self._hosts is not None and host not in self._hosts:
            return answer(421, "FAILED_PRECONDITION", "this service has another name", "host")
        if self._token is None or request.url.path in OPEN:
            return None
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        expected = self._token.encode()
        if scheme.lower() == "bearer" and hmac.compare_digest(given.encode(), expected):
            return None
        now = time.monotonic()
        recent = [one for one in self._failures if now - one < LOGIN_SECONDS]
        if len(recent) >= LOGIN_FAILURES:
            return answer(429, "RESOURCE_EXHAUSTED", "too many wrong tokens", "login_rate")
        self._failures.append(now)
        words = "a bearer token is needed: it is in the file `token` of the service's folder"
        return answer(401, "UNAUTHENTICATED", words, "unauthenticated")


def answer(code: int, status: str, message: str, reason: str) -> JSONResponse:
    return JSONResponse(refusal(code, status, message, reason), code)


class BodyTooLarge(Exception):
    """The body of a request is larger than allowed."""


async def body_of(request: Request) -> Any:
    """The body as JSON, {} for none. Raises BodyTooLarge, InvalidRequest, TimeoutError."""
    content = bytearray()
    async with asyncio.timeout(BODY_SECONDS):
        async for part in request.stream():
            content += part
            if len(content) > LARGEST_BODY:
                raise BodyTooLarge
    if not content.strip():
        return {}
    try:
        found = json.loads(content, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise InvalidRequest(
            "the body is not JSON", where="the body", hint="Send a JSON object in UTF-8."
        ) from None
    if not isinstance(found, dict):
        raise InvalidRequest(
            "the body is no JSON object", where="the body", hint="Send a JSON object."
        )
    return found


def _refuse_constant(name: str) -> None:
    raise ValueError(name)
