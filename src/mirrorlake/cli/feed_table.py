"""Changes as a table for people: one line per change, an update with old and new values."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from mirrorlake.errors import printable

if TYPE_CHECKING:
    import pyarrow as pa

    from mirrorlake.feed.reader import Feed
    from mirrorlake.feed.rows import RowChange

LINES = 500
"""Number of changes per table header."""

_STYLES = {"insert": "green", "delete": "red", "update": "yellow"}
_NULL = "NULL"
ARROW = " → "

Line = list[str | tuple[str, str]]
"""Version, time, kind and the cells of a change. A pair is a value before and after it."""


def print_changes(found: Feed, keep: Callable[[pa.Table], pa.Table]) -> None:
    """Print the changes of a feed: with colours on a terminal, as plain columns elsewhere.

    keep: filters rows.
    """
    from mirrorlake.feed.rows import row_changes

    show = _print if sys.stdout.isatty() else _print_plain
    for part in found.ranges:
        names = found.schema(part).names[:-3]
        lines: list[Line] = []
        for commit in found.commits(part):
            for change in row_changes(keep(commit.rows), found.key):
                lines.append(_line(commit.version, f"{commit.time:%F %T}", names, change))
                if len(lines) == LINES:
                    show(names, lines)
                    lines = []
        if lines:
            show(names, lines)


def _line(version: int, time: str, names: list[str], change: RowChange) -> Line:
    before, after = change
    row = after or before
    assert row is not None
    kind = "update" if before and after else row["_change_type"]
    cells: Line = [str(version), time, kind]
    for name in names:
        new = _text(row[name])
        old = _text(before[name]) if before and after else new
        cells.append(new if old == new else (old, new))
    return cells


def _text(value: object) -> str:
    return _NULL if value is None else printable(value)


def _print(names: list[str], lines: list[Line]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    def shown(cell: str | tuple[str, str]) -> Text:
        if isinstance(cell, str):
            return Text(cell)
        return Text.assemble((cell[0], "red strike"), ARROW, (cell[1], "bold green"))

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("version", justify="right")
    for name in ("time", "change", *names):
        table.add_column(Text(printable(name)), overflow="fold")
    for line in lines:
        cells = [*map(shown, line)]
        cells[2].stylize(_STYLES.get(cells[2].plain, ""))
        table.add_row(*cells)
    Console().print(table)
    sys.stdout.flush()


def _print_plain(names: list[str], lines: list[Line]) -> None:
    from mirrorlake.cli.output import print_table

    joined = [[c if isinstance(c, str) else ARROW.join(c) for c in line] for line in lines]
    print_table(["version", "time", "change", *map(printable, names)], joined)
    sys.stdout.flush()
