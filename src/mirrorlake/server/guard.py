"""Who may ask: a bearer token, a host name that is ours, bodies and logins within bounds."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections import deque
from collections.abc import Collection
from enum import Enum
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from mirrorlake.errors import InvalidRequest
from mirrorlake.server.errors import refusal

LARGEST_BODY = 1 << 20
BODY_SECONDS = 20.0
"""How long a client may take to send its body."""
LOGIN_FAILURES, LOGIN_SECONDS = 20, 60.0
"""So many wrong tokens within so many seconds are answered; then every wrong one waits."""
READING = ("GET", "HEAD")
"""Methods that change nothing."""
OPEN = ("/healthz", "/readyz")
"""Addresses that need no token: they show nothing of any stream."""


class TokenVerdict(Enum):
    """What is to be answered to who gives a token."""

    RIGHT = "right"
    WRONG = "wrong"
    TOO_MANY = "too many"  # so many wrong ones came that no more are counted for a while


class TokenCheck:
    """Compares what clients give with the token of the service, and counts the wrong ones."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self._failures: deque[float] = deque(maxlen=LOGIN_FAILURES)

    def verdict(self, given: str) -> TokenVerdict:
        """The right token is always recognised, however many wrong ones came."""
        if hmac.compare_digest(given.encode(errors="replace"), self._token):
            return TokenVerdict.RIGHT
        now = time.monotonic()
        recent = [one for one in self._failures if now - one < LOGIN_SECONDS]
        if len(recent) >= LOGIN_FAILURES:
            return TokenVerdict.TOO_MANY
        self._failures.append(now)
        return TokenVerdict.WRONG


class Visitors(Protocol):
    """Who may see the pages for people, which browsers ask for without a bearer token."""

    def owns(self, path: str) -> bool:
        """Whether an address is that of a page."""
        ...

    def refused(self, request: Request) -> Response | None:
        """What to answer instead of a page; None lets the request through."""
        ...


class Guard:
    """Lets through what has a right to be answered. check: None asks for no token; hosts: the names
    by which the service may be called, None for any; visitors: of the pages."""

    def __init__(
        self,
        app: ASGIApp,
        check: TokenCheck | None,
        hosts: Collection[str] | None,
        visitors: Visitors,
    ) -> None:
        self._app, self._check, self._hosts, self._visitors = app, check, hosts, visitors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refused = self._refused(Request(scope))
        await (refused or self._app)(scope, receive, send)

    def _refused(self, request: Request) -> Response | None:
        host = request.headers.get("host", "").rsplit(":", 1)[0].strip("[]").lower()
        if self._hosts is not None and host not in self._hosts:
            return answer(421, "FAILED_PRECONDITION", "this service has another name", "host")
        if request.method not in READING and is_from_elsewhere(request):
            words = "requests that another site lets a browser send are refused"
            return answer(403, "PERMISSION_DENIED", words, "cross_site")
        return self._unknown(request)

    def _unknown(self, request: Request) -> Response | None:
        """What to answer to who has not shown a right to ask."""
        path = request.url.path
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if self._visitors.owns(path) and not scheme:
            return self._visitors.refused(request)
        if self._check is None or path in OPEN:
            return None
        match self._check.verdict(given if scheme.lower() == "bearer" else ""):
            case TokenVerdict.RIGHT:
                return None
            case TokenVerdict.TOO_MANY:
                return answer(429, "RESOURCE_EXHAUSTED", "too many wrong tokens", "login_rate")
            case TokenVerdict.WRONG:
                words = (
                    "a bearer token is needed: it is in the file `token` of the service's folder"
                )
                return answer(401, "UNAUTHENTICATED", words, "unauthenticated")


def is_from_elsewhere(request: Request) -> bool:
    """Whether a page of another site sent a request: browsers say so, and pages cannot change what
    they say. Other clients say nothing."""
    here = request.headers.get("host", "").lower()
    origin = request.headers.get("origin", f"http://{here}").lower()
    site = request.headers.get("sec-fetch-site", "same-origin")
    return origin not in (f"http://{here}", f"https://{here}") or site != "same-origin"


def answer(code: int, status: str, message: str, reason: str) -> JSONResponse:
    return JSONResponse(refusal(code, status, message, reason), code)


class BodyTooLarge(Exception):
    """The body of a request is larger than allowed."""


async def content_of(request: Request, most: int = LARGEST_BODY) -> bytes:
    """The body, of at most so many bytes. Raises BodyTooLarge, TimeoutError."""
    content = bytearray()
    async with asyncio.timeout(BODY_SECONDS):
        async for part in request.stream():
            content += part
            if len(content) > most:
                raise BodyTooLarge
    return bytes(content)


async def body_of(request: Request) -> Any:
    """The body as JSON, {} for none. Raises BodyTooLarge, InvalidRequest, TimeoutError."""
    content = await content_of(request)
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
