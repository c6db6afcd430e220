"""The routes of the pages, and how they are rendered."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import structlog
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from mirrorlake.app.running.batches import POINT_SECONDS, HistoryPoint
from mirrorlake.app.status.amounts import size
from mirrorlake.app.streams.service import Service
from mirrorlake.errors import MirrorlakeError, UsageError, printable
from mirrorlake.model.landed import parse_time
from mirrorlake.server.guard import BodyTooLarge, TokenCheck, TokenVerdict, content_of
from mirrorlake.server.pages.access import HOME, LOGIN, LOGOUT, PageAccess, local_target
from mirrorlake.server.pages.changes import feed_of
from mirrorlake.server.pages.drawing import Plot, Series, clock_of, plot
from mirrorlake.server.pages.remedies import BackfillVerb
from mirrorlake.server.pages.views import Looking, stream_name, utc

log = structlog.get_logger()

PAGE_FAILED = "page_failed"
LONGEST_TEXT = 2_000
LARGEST_FORM = 4_096
_ASSETS = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_STREAM = "/streams/{project}/{location}/{id}"

Facts = dict[str, Any]
View = Callable[[Request], Facts]


class Pages:
    """The pages of one service. check: None where it asks for no token."""

    def __init__(self, service: Service, access: PageAccess, check: TokenCheck | None) -> None:
        self._looking = Looking(service)
        self._access, self._check = access, check
        self._templates = _environment()

    def routes(self) -> list[Route]:
        views: dict[str, tuple[str, View]] = {
            HOME: ("overview.html", self._overview),
            _STREAM: ("stream.html", self._stream),
            f"{_STREAM}/table": ("table.html", self._table),
            f"{_STREAM}/changes": ("changes.html", self._changes),
        }
        return [
            *(
                Route(path, partial(self._shown, template, view), methods=["GET"])
                for path, (template, view) in views.items()
            ),
            Route(f"{_STREAM}/backfill", self._ask_backfill, methods=["POST"]),
            Route(LOGIN, self._login, methods=["GET"]),
            Route(LOGIN, self._enter, methods=["POST"]),
            Route(LOGOUT, self._leave, methods=["POST"]),
            Route("/assets/{name}", _asset, methods=["GET"]),
        ]

    # -- what is shown --------------------------------------------------------------------------

    def _overview(self, _request: Request) -> Facts:
        return {"streams": self._looking.streams()}

    def _stream(self, request: Request) -> Facts:
        find = request.query_params.get("find", "")[:200]
        sight = self._looking.stream(_name(request), find)
        return {"sight": sight, "find": find, "plots": _plots(sight.points)}

    def _table(self, request: Request) -> Facts:
        name = request.query_params.get("name", "")
        return {"sight": self._looking.table(_name(request), name)}

    def _changes(self, request: Request) -> Facts:
        asked = request.query_params.get("until", "")
        until = int(asked) if asked.isascii() and asked.isdigit() and len(asked) < 19 else None
        name = request.query_params.get("name", "")
        stream, project, table = self._looking.table_of(_name(request), name)
        feed = feed_of(project, table, until)
        return {"stream": stream, "table": table, "feed": feed, "until": until}

    async def _shown(self, template: str, view: View, request: Request) -> Response:
        def shown() -> Response:
            return self._page(template, request, view(request))

        return await self._answered(template, shown, request)

    async def _answered(
        self, page: str, work: Callable[[], Response], request: Request
    ) -> Response:
        """What work in a thread answers, or a page that says why it does not."""
        try:
            return await run_in_threadpool(work)
        except UsageError as error:
            return self._page("problem.html", request, {"error": error}, 404)
        except MirrorlakeError as error:
            return self._page("problem.html", request, {"error": error}, 409)
        except Exception as error:  # noqa: BLE001  (its text may hold values of rows)
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{frame.filename}:{frame.lineno}"
            log.error(
                PAGE_FAILED,
                page=page,
                reason=type(error).__name__,
                place=place,
            )
            problem = MirrorlakeError(
                "the page cannot be shown", hint="See the log of the service, and report it."
            )
            return self._page("problem.html", request, {"error": problem}, 500)

    def _page(self, template: str, request: Request, facts: Facts, code: int = 200) -> Response:
        known = self._access.needs_login and self._access.is_known(request)
        content = self._templates.get_template(template).render(facts, can_leave=known)
        return HTMLResponse(content.encode("utf-8", "replace"), code, _HEADERS)

    # -- what is asked for -----------------------------------------------------------------------

    async def _ask_backfill(self, request: Request) -> Response:
        sent = await _form(request)
        if sent is None:
            return _no_form()

        def asked() -> Response:
            verb = sent.get("verb", "")
            if verb not in list(BackfillVerb):
                raise UsageError("this is not asked of a backfill", hint="Use the page of a table.")
            table = sent.get("name", "")
            url = self._looking.ask_backfill(_name(request), table, BackfillVerb(verb))
            return RedirectResponse(url, 303, _HEADERS)

        return await self._answered("backfill", asked, request)

    # -- who may see it -------------------------------------------------------------------------

    async def _login(self, request: Request) -> Response:
        target = local_target(request.query_params.get("next", ""))
        if not self._access.needs_login or self._access.is_known(request):
            return RedirectResponse(target, 303, _HEADERS)
        return self._page("login.html", request, {"target": target, "problem": ""})

    async def _enter(self, request: Request) -> Response:
        sent = await _form(request)
        if sent is None:
            return _no_form()
        target = local_target(sent.get("next", ""))
        given = sent.get("token", "").strip()
        verdict = self._check.verdict(given) if self._check else TokenVerdict.RIGHT
        if verdict is TokenVerdict.RIGHT:
            answer = RedirectResponse(target, 303, _HEADERS)
            self._access.enter(request, answer)
            return answer
        too_many = verdict is TokenVerdict.TOO_MANY
        words = "Too many wrong tokens were sent. Wait a minute." if too_many else "Wrong token."
        code = 429 if too_many else 401
        return self._page("login.html", request, {"target": target, "problem": words}, code)

    async def _leave(self, request: Request) -> Response:
        answer = RedirectResponse(LOGIN, 303, _HEADERS)
        self._access.leave(request, answer)
        return answer


async def _form(request: Request) -> dict[str, str] | None:
    """The fields of a form, each with its first value; None for what is no form of ours."""
    try:
        content = await content_of(request, LARGEST_FORM)
        sent = parse_qs(content.decode(errors="replace"), max_num_fields=10)
    except (BodyTooLarge, ClientDisconnect, TimeoutError, ValueError):
        return None
    return {name: values[0] for name, values in sent.items()}


def _no_form() -> Response:
    return PlainTextResponse("This is no form of these pages.\n", 400, _HEADERS)


def _name(request: Request) -> Any:
    found = request.path_params
    return stream_name(found["project"], found["location"], found["id"])


def _plots(points: Sequence[HistoryPoint]) -> list[Plot]:
    if not points:
        return []
    times = [point.begun for point in points]
    rates = [point.rows / POINT_SECONDS for point in points]
    p50 = [point.freshness[0] if point.freshness else None for point in points]
    p99 = [point.freshness[1] if point.freshness else None for point in points]

    def series(name: str, values: Any) -> Series:
        return Series(name, list(zip(times, values, strict=True)))

    return [
        plot("Throughput", "changes per second", [series("applied", rates)], clock_of),
        plot("Freshness", "seconds", [series("p50", p50), series("p99", p99)], clock_of),
    ]


async def _asset(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _ASSETS:
        return PlainTextResponse("There is no such file.\n", 404, _HEADERS)
    content = await run_in_threadpool((Path(__file__).parent / "assets" / name).read_bytes)
    headers = {**_HEADERS, "Cache-Control": "no-cache"}
    return Response(content, 200, headers, media_type=_ASSETS[name])


def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("mirrorlake.server", "pages/templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_readable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"size": size, "utc": utc, "seconds": _seconds, "prose": _prose}
    found.filters["moment"] = lambda text: utc(parse_time(text))
    return found


def _readable(value: Any) -> Any:
    """Text from outside as it can be shown: without control characters, and not endless."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    text = value if len(value) <= LONGEST_TEXT else f"{value[:LONGEST_TEXT]}…"
    return text if text.isprintable() else printable(text)


def _prose(text: str) -> Markup:
    """A sentence in which `names` are marked as code."""
    parts = str(_readable(text)).split("`")
    marked = (
        Markup("<code>{}</code>").format(part) if n % 2 else escape(part)
        for n, part in enumerate(parts)
    )
    return Markup("").join(marked)


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value < 10 else f"{value:,.0f} s"
