"""Logs on standard error: events and their facts, never row values or secrets.

No process ends because its log takes no more: what it would have said is lost.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, MutableMapping
from functools import partial
from pathlib import Path
from typing import Any, TextIO, cast

import structlog
from structlog.typing import Processor

from mirrorlake.cli.terminal import Dispensable, is_coloured
from mirrorlake.errors import UsageError, printable


def configure(
    *,
    verbose: bool = False,
    quiet: bool = False,
    as_json: bool = False,
    file: Path | None = None,
) -> Callable[[], None]:
    """Configure logging. quiet: only warnings and errors; verbose: everything; as_json: an object
    per line; file: append to it instead of writing to standard error.

    Returns a function that configures a child process in the same way.
    """
    stream = sys.stderr if file is None else _opened(file)
    level = logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%Y-%m-%dT%H:%M:%SZ", utc=True),
            _without_absent,
            *_rendering(as_json=as_json, is_terminal=stream.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", Dispensable(stream))),
    )
    return later(verbose=verbose, quiet=quiet, as_json=as_json, file=file)


def later(*, verbose: bool, quiet: bool, as_json: bool, file: Path | None) -> Callable[[], None]:
    """A function that configures logging when it is called, also in a child process."""
    return partial(_again, verbose=verbose, quiet=quiet, as_json=as_json, file=file)


def _again(*, verbose: bool, quiet: bool, as_json: bool, file: Path | None) -> None:
    configure(verbose=verbose, quiet=quiet, as_json=as_json, file=file)


def _opened(file: Path) -> TextIO:
    """The log file; several processes append to it line by line. Raises UsageError."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        return file.open("a", buffering=1, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"the log file cannot be written: {(error.strerror or 'failed').lower()}",
            where=str(file),
            hint="Name another file with --log.",
        ) from error


def _rendering(*, as_json: bool, is_terminal: bool) -> list[Processor]:
    if as_json:
        return [structlog.processors.JSONRenderer()]
    if is_terminal:
        colors = is_coloured()
        return [_on_one_line, structlog.dev.ConsoleRenderer(colors=colors, pad_event_to=22)]
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
