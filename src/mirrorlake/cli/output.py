"""How commands print: tables and sentences for people, JSON for programs."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

from mirrorlake.cli.terminal import folded, terminal_width
from mirrorlake.errors import MirrorlakeError, printable


def say(line: str, indent: str = "") -> None:
    """Print a sentence to standard error."""
    print(folded(line, sys.stderr, indent), file=sys.stderr, flush=True)  # noqa: T201


def show(line: str, indent: str = "") -> None:
    """Print a sentence that is part of the output."""
    print(folded(line, sys.stdout, indent))  # noqa: T201


def program() -> str:
    """This program as a shell finds it: by its name, or by the path with which it was called."""
    called = Path(sys.argv[0])
    if called.suffix == ".py":
        return f"{shlex.quote(sys.executable)} -m mirrorlake.cli.main"
    found = shutil.which(called.name)
    if found and Path(found).absolute() == called.absolute():
        return called.name
    return shlex.quote(str(called))


def print_json(facts: Any) -> None:
    print(json.dumps(facts, indent=2, ensure_ascii=False, default=str))  # noqa: T201


def print_table(
    header: Sequence[str], rows: Iterable[Sequence[Any]], *, optional: Sequence[str] = ()
) -> None:
    """Print rows with a header.

    On a terminal that is too narrow, optional columns are omitted in their order. If that is not
    enough, each row is printed as a block of lines.
    """
    from rich.cells import cell_len, set_cell_size

    found = list(rows)
    cells = [["" if value is None else printable(value) for value in row] for row in found]
    widths = [max(map(cell_len, column)) for column in zip(header, *cells, strict=True)]
    shown = list(range(len(header)))
    if sys.stdout.isatty():
        room = terminal_width()

        def is_too_wide() -> bool:
            return sum(widths[index] + 2 for index in shown) - 2 > room

        for name in optional:
            if is_too_wide():
                shown.remove(list(header).index(name))
        if is_too_wide():
            _print_blocks(header, cells)
            return
    is_number = [
        name in _NUMBERS or any(isinstance(row[index], int | float | Decimal) for row in found)
        for index, name in enumerate(header)
    ]

    def line(row: Sequence[str]) -> str:
        padded = (
            " " * (widths[index] - cell_len(row[index])) + row[index]
            if is_number[index]
            else set_cell_size(row[index], widths[index])
            for index in shown
        )
        return "  ".join(padded).rstrip()

    for row in [header, *cells]:
        print(line(row))  # noqa: T201


def _print_blocks(header: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    width = max(map(len, header)) + 2
    for index, row in enumerate(cells):
        if index:
            show("")
        for name, cell in zip(header, row, strict=True):
            if cell:
                show(f"{name:<{width}}{cell}", " " * width)


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
    """Print an error and exit with its code."""
    if as_json:
        print_json({"error": error.facts()})
    else:
        say(f"mirrorlake: {error}")
    sys.exit(error.exit_code)
