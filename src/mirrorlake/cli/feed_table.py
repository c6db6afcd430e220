"""Changes as a table for people: one line for a change, an update as old and new value."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from mirrorlake.errors import printable

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.text import Text

    from mirrorlake.feed.reader import Feed
    from mirrorlake.feed.rows import RowChange

LINES = 500
"""Changes in a table with one header."""

_STYLES = {"insert": "green", "delete": "red", "update": "yellow"}
_NULL = "NULL"


def print_changes(found: Feed, wanted: Callable[[pa.Table], pa.Table]) -> None:
    """Print the changes of a feed."""
    from mirrorlake.feed.rows import row_changes

    for one in found.ranges:
        names = found.schema(one).names[:-3]
        lines: list[list[Text]] = []
        for commit in found.commits(one):
            for change in row_changes(wanted(commit.rows), found.key):
                lines.append(_line(commit.version, f"{commit.time:%F %T}", names, change))
                if len(lines) == LINES:
                    _print(names, lines)
                    lines = []
        if lines:
            _print(names, lines)


def _line(version: int, time: str, names: list[str], change: RowChange) -> list[Text]:
    from rich.text import Text

    before, after = change
    row = after or before
    assert row is not None
    kind = "update" if before and after else row["_change_type"]
    style = _STYLES.get(kind, "")
    cells = [Text(str(version)), Text(time), Text(kind, style)]
    for name in names:
        old, new = (_text(one[name]) if one else None for one in change)
        if old is not None and new is not None and old != new:
            cells.append(Text.assemble((old, "red strike"), " → ", (new, "bold green")))
        else:
            cells.append(Text(new if new is not None else old or ""))
    return cells


def _text(value: object) -> str:
    return _NULL if value is None else printable(value)


def _print(names: list[str], lines: list[list[Text]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else 1_000)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("version", justify="right")
    for name in ("time", "change", *names):
        table.add_column(Text(printable(name)), overflow="fold")
    for line in lines:
        table.add_row(*line)
    console.print(table)
    sys.stdout.flush()
