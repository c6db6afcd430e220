"""What the terminal at standard error can show."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap

_DUMB = {"", "dumb", "unknown"}


def is_live() -> bool:
    """Whether it is a terminal that can be drawn on."""
    return sys.stderr.isatty() and os.environ.get("TERM", "") not in _DUMB


def is_coloured() -> bool:
    """Whether a terminal may be written to in colour (https://no-color.org)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") not in _DUMB


def folded(line: str) -> str:
    """A line that is folded between words where it would wrap, with the indent of its text."""
    if not sys.stderr.isatty():
        return line
    indent = " " * (9 if not line.startswith(" ") else len(line) - len(line.lstrip()))
    width = max(shutil.get_terminal_size().columns - 1, 40)
    return textwrap.fill(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
