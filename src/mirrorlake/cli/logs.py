"""Logs on standard error: an event and its facts, never values of rows, never secrets."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, MutableMapping
from functools import partial
from typing import Any

import structlog
from structlog.typing import Processor

from mirrorlake.errors import printable


def configure(
    *, verbose: bool = False, quiet: bool = False, as_json: bool = False
) -> Callable[[], None]:
    """Log from warnings on when quiet, everything when verbose; as_json: an object on each line.

    Returns what does the same in a process that we start.
    """
    level = logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%Y-%m-%dT%H:%M:%SZ", utc=True),
            _without_absent,
            *_rendering(as_json=as_json),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    return partial(_again, verbose=verbose, quiet=quiet, as_json=as_json)


def _again(*, verbose: bool, quiet: bool, as_json: bool) -> None:
    configure(verbose=verbose, quiet=quiet, as_json=as_json)


def _rendering(*, as_json: bool) -> list[Processor]:
    if as_json:
        return [structlog.processors.JSONRenderer()]
    if sys.stderr.isatty():
        return [_on_one_line, structlog.dev.ConsoleRenderer(colors=True, pad_event_to=22)]
    order = ["timestamp", "level", "event"]
    return [
        _on_one_line,
        structlog.processors.KeyValueRenderer(key_order=order, repr_native_str=False),
    ]


def _without_absent(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> Mapping[str, Any]:
    return {name: value for name, value in event.items() if value is not None}


def _on_one_line(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """Names may contain line breaks and control characters."""
    return {
        name: printable(value) if isinstance(value, str) else value for name, value in event.items()
    }
