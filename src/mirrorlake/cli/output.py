"""How commands print: tables for people, JSON for programs, errors in one sentence."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NoReturn

from mirrorlake.errors import MirrorlakeError


def say(line: str) -> None:
    """A line about what goes on, beside the output."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201


def program() -> str:
    """This program as a shell would find it again: by its name, or by the way it was called."""
    called = Path(sys.argv[0])
    if called.suffix == ".py":
        return f"{shlex.quote(sys.executable)} -m mirrorlake.cli.main"
    found = shutil.which(called.name)
    if found and Path(found).absolute() == called.absolute():
        return called.name
    return shlex.quote(str(called))


def print_json(facts: Any) -> None:
    print(json.dumps(facts, indent=2, ensure_ascii=False, default=str))  # noqa: T201


def print_table(header: Sequence[str], rows: Iterable[Sequence[Any]], title: str = "") -> None:
    """Rows with a header; plain lines when nobody looks at a terminal."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 1_000)
    table = Table(title=title or None, box=None, pad_edge=False, header_style="bold")
    found = list(rows)
    for index, name in enumerate(header):
        values = [row[index] for row in found]
        is_number = name in _NUMBERS
        # A number that is cut, or goes on in the next line, is another number.
        whole = is_number or any(isinstance(value, int | float | Decimal) for value in values)
        least = max((len(str(value)) for value in values), default=0) if whole else None
        justify: Literal["left", "right"] = "right" if is_number else "left"
        table.add_column(name, justify=justify, overflow="fold", min_width=least, no_wrap=whole)
    for row in found:
        table.add_row(*("" if value is None else str(value) for value in row))
    console.print(table, crop=False)


_NUMBERS = {
    "rows",
    "inserts",
    "updates",
    "deletes",
    "upserts",
    "version",
    "versions",
    "files",
    "lag",
    "size",
}


def fail(error: MirrorlakeError, *, as_json: bool) -> NoReturn:
    """Print an error of ours, and end with its code."""
    if as_json:
        print_json({"error": error.facts()})
    else:
        say(f"mirrorlake: {error}")
    sys.exit(error.exit_code)
