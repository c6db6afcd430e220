"""Errors in the form of the original API (FD-081)."""

from __future__ import annotations

from mirrorlake.control.reports import Document
from mirrorlake.errors import (
    FeedError,
    IllegalMove,
    InvalidRequest,
    LeaseHeld,
    MirrorlakeError,
    NotOffered,
    OperatorError,
    ResourceExists,
    ResourceNotFound,
    Unavailable,
    UsageError,
)

_STATUSES: tuple[tuple[type[MirrorlakeError], int, str], ...] = (
    (ResourceNotFound, 404, "NOT_FOUND"),
    (ResourceExists, 409, "ALREADY_EXISTS"),
    (InvalidRequest, 400, "INVALID_ARGUMENT"),
    (IllegalMove, 400, "FAILED_PRECONDITION"),
    (NotOffered, 501, "UNIMPLEMENTED"),
    (LeaseHeld, 409, "ABORTED"),
    (Unavailable, 503, "UNAVAILABLE"),
    (UsageError, 400, "INVALID_ARGUMENT"),
    (OperatorError, 400, "FAILED_PRECONDITION"),
    (MirrorlakeError, 500, "INTERNAL"),
)


_FEED_STATUSES = {
    **dict.fromkeys(("invalid_argument", "invalid_range", "start_missing"), "INVALID_ARGUMENT"),
    **dict.fromkeys(("expired", "not_recorded", "beyond_latest"), "OUT_OF_RANGE"),
}


def answer_to(error: MirrorlakeError) -> tuple[int, Document]:
    """The HTTP status and the body for an error."""
    if isinstance(error, FeedError):
        status = _FEED_STATUSES.get(error.reason, "FAILED_PRECONDITION")
        return 400, refusal(400, status, str(error), f"feed_{error.reason}", error.where)
    code, status = next((c, s) for kind, c, s in _STATUSES if isinstance(error, kind))
    return code, refusal(code, status, str(error), error.code, error.where)


def refusal(code: int, status: str, message: str, reason: str, where: str = "") -> Document:
    """The body of an error."""
    details = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": reason.upper(),
        "domain": "mirrorlake",
        "metadata": {"where": where} if where else {},
    }
    return {"error": {"code": code, "message": message, "status": status, "details": [details]}}
