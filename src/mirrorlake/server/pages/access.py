"""Who may see the pages: who has logged in with the token, from a form that is ours.

A session is a random name in a cookie that no script and no other site can use. It opens pages
only: the API asks for the token itself, so that no page of another site acts through a browser.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from mirrorlake.server.guard import READING

SESSION_SECONDS = 12 * 3600
MOST_SESSIONS = 1_000
"""Of more the oldest end."""
HOME, LOGIN, LOGOUT, ASSETS, STREAMS = "/", "/login", "/logout", "/assets/", "/streams/"


class LoginSessions:
    """Who is logged in, until this process ends. For any number of threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._ends: OrderedDict[bytes, float] = OrderedDict()

    def begin(self) -> str:
        """A new session."""
        name = secrets.token_urlsafe(32)
        with self._lock:
            self._ends[_key(name)] = self._clock() + SESSION_SECONDS
            while len(self._ends) > MOST_SESSIONS:
                self._ends.popitem(last=False)
        return name

    def holds(self, name: str) -> bool:
        with self._lock:
            return self._ends.get(_key(name), 0.0) > self._clock()

    def end(self, name: str) -> None:
        with self._lock:
            self._ends.pop(_key(name), None)


class PageAccess:
    """Guards the pages. needs_login: False where the service asks for no token."""

    def __init__(self, *, needs_login: bool, sessions: LoginSessions | None = None) -> None:
        self.needs_login, self.sessions = needs_login, sessions or LoginSessions()

    def owns(self, path: str) -> bool:
        return path in (HOME, LOGIN, LOGOUT) or path.startswith((ASSETS, STREAMS))

    def refused(self, request: Request) -> Response | None:
        if request.method not in READING and "origin" not in request.headers:
            return PlainTextResponse("Only forms of these pages are accepted.\n", 403)
        path = request.url.path
        if not self.needs_login or path == LOGIN or path.startswith(ASSETS):
            return None
        if self.is_known(request):
            return None
        query = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(f"{LOGIN}?next={quote(path + query, safe='')}", 303)

    def is_known(self, request: Request) -> bool:
        return self.sessions.holds(request.cookies.get(cookie_name(request), ""))

    def enter(self, request: Request, answer: Response) -> None:
        """Begin a session, whose cookie the response sets."""
        answer.set_cookie(
            cookie_name(request),
            self.sessions.begin(),
            max_age=SESSION_SECONDS,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )

    def leave(self, request: Request, answer: Response) -> None:
        self.sessions.end(request.cookies.get(cookie_name(request), ""))
        answer.delete_cookie(cookie_name(request), httponly=True, samesite="strict")


def cookie_name(request: Request) -> str:
    """Browsers send cookies to every port of a host: services beside each other have their own."""
    return f"mirrorlake_{request.url.port or request.url.scheme}"


def local_target(text: str) -> str:
    """Where to go after the login: one of our pages, whatever was asked for."""
    is_ours = text.startswith(STREAMS) and text.isascii() and text.isprintable()
    return text if is_ours and "\\" not in text else HOME


def _key(name: str) -> bytes:
    return hashlib.sha256(name.encode(errors="replace")).digest()
