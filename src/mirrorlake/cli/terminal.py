"""The capabilities of the terminal at standard error."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from contextlib import suppress
from typing import TextIO

_DUMB = {"", "dumb", "unknown"}


class Dispensable:
    """A stream for lines on which nothing depends, such as those of a log. What it cannot take is
    lost, because its disk is full or its reader is gone, and stops nobody."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):  # the latter where it is closed
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()


def is_live() -> bool:
    """Whether standard error is a terminal with cursor control."""
    return sys.stderr.isatty() and os.environ.get("TERM", "") not in _DUMB


def is_coloured() -> bool:
    """Whether colours may be used (https://no-color.org)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") not in _DUMB


def terminal_width() -> int:
    """The width of the terminal; 80 if unknown."""
    return shutil.get_terminal_size().columns


def folded(text: str, stream: TextIO, indent: str = "") -> str:
    """The text, with each line that a terminal would wrap folded between words.

    indent: printed before each line but the first. Without a terminal nothing is folded.
    """
    if not stream.isatty():
        return text
    fold = textwrap.TextWrapper(
        max(terminal_width() - 1, 40),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    ).fill
    return "\n".join(map(fold, text.split("\n")))
