"""What goes wrong with a stream and is no error of ours."""

from __future__ import annotations

import traceback

import structlog

from mirrorlake.errors import InternalError, MirrorlakeError, StorageUnavailable

log = structlog.get_logger()

STREAM_FAULT = "stream_fault"


def named(error: Exception, stream: str) -> MirrorlakeError:
    """As an error of ours, without what a foreign one may repeat of rows; the log says where it
    was raised."""
    if isinstance(error, MirrorlakeError):
        return error
    if isinstance(error, OSError) and (unavailable := StorageUnavailable.of(error)) is not None:
        return unavailable
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{frame.filename}:{frame.lineno}"
    log.error(STREAM_FAULT, stream=stream, reason=type(error).__name__, place=place)
    return InternalError(
        f"the stream met an unexpected {type(error).__name__}",
        where=stream,
        hint="See the log of the service, and report it.",
    )
