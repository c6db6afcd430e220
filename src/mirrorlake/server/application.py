"""The application: each route calls what the table of routes names, in a thread."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any

import structlog
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mirrorlake.app.streams.service import Service
from mirrorlake.control.checks import shown
from mirrorlake.errors import MirrorlakeError
from mirrorlake.server.errors import answer_to
from mirrorlake.server.guard import BodyTooLarge, Guard, TokenCheck, answer, body_of
from mirrorlake.server.metrics import exposition
from mirrorlake.server.pages.access import PageAccess
from mirrorlake.server.pages.routes import Pages
from mirrorlake.server.routes import OPERATIONS, ApiRoute, Call, document

log = structlog.get_logger()

REQUEST_FAILED = "request_failed"


def application(
    service: Service,
    token: str | None,
    hosts: Collection[str] | None = None,
) -> Starlette:
    """The HTTP service. token: None asks for none; hosts: see `Guard`."""
    check = TokenCheck(token) if token is not None else None
    access = PageAccess(needs_login=check is not None)
    pages = Pages(service, access, check)
    routes = [
        Route("/v1/openapi.json", _openapi, methods=["GET"]),
        Route("/healthz", _health, methods=["GET"]),
        Route("/readyz", partial(_ready, service), methods=["GET"]),
        Route("/metrics", partial(_metrics, service), methods=["GET"]),
        *pages.routes(),
    ]
    for one in OPERATIONS:
        handler = partial(_handled, service, one)
        routes.append(Route(one.address, handler, methods=[one.method]))
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, check=check, hosts=hosts, visitors=access)],
        exception_handlers={
            404: _said(404, "NOT_FOUND", "there is no such address"),
            405: _said(405, "UNIMPLEMENTED", "the address has no such method"),
            500: _said(500, "INTERNAL", "an internal error; see the log of the service"),
        },
    )


async def _handled(service: Service, route: ApiRoute, request: Request) -> Response:
    try:
        sent = await body_of(request)
        call = Call(service, request.path_params, route.read(request.query_params), sent)
        return JSONResponse(shown(await run_in_threadpool(route.handler, call)))
    except MirrorlakeError as error:
        code, body = answer_to(error)
        return JSONResponse(body, code)
    except BodyTooLarge:
        return answer(413, "INVALID_ARGUMENT", "the body is larger than 1 MiB", "too_large")
    except ClientDisconnect:
        return Response(status_code=499)  # nobody reads it
    except TimeoutError:
        return answer(408, "DEADLINE_EXCEEDED", "the body did not come in time", "slow_body")
    except Exception as error:  # noqa: BLE001  (its text may hold what was sent)
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{frame.filename}:{frame.lineno}"
        log.error(REQUEST_FAILED, route=route.summary, reason=type(error).__name__, place=place)
        return answer(500, "INTERNAL", "an internal error; see the log of the service", "internal")


def _said(code: int, status: str, message: str) -> Callable[[Request, Any], Awaitable[Response]]:
    async def handler(_request: Request, _error: Any) -> Response:
        return answer(code, status, message, status)

    return handler


async def _openapi(_request: Request) -> Response:
    return JSONResponse(document())


async def _health(_request: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _ready(service: Service, _request: Request) -> Response:
    if service.supervisor.is_ready.is_set():
        return JSONResponse({"status": "ok"})
    reason = "the supervisor of the streams has no answer yet"
    if found := service.supervisor.problem:  # who asks may be anybody, so only the kind is told
        reason = f"the supervisor of the streams failed, and tries again: {found}; see the log"
    return JSONResponse({"status": "not ready", "reason": reason}, 503)


async def _metrics(service: Service, _request: Request) -> Response:
    content, kind = await run_in_threadpool(exposition, service)
    return Response(content, media_type=kind)
