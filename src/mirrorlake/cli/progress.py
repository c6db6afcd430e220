"""Progress bars on a terminal; elsewhere nothing, because the log contains it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirrorlake.capture.sink import LoadProgress
    from mirrorlake.model.table import TableId


@contextmanager
def bars(unit: str = "") -> Iterator[Callable[[object, int, int | None], None]]:
    """A callback that draws a bar for each name: the name, what is done, and of how much."""
    if not sys.stderr.isatty():
        yield lambda _name, _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TimeElapsedColumn

    shown: dict[str, TaskID] = {}
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), unit, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:

        def show(name: object, done: int, total: int | None) -> None:
            if str(name) not in shown:
                shown[str(name)] = progress.add_task(str(name), total=total)
            progress.update(shown[str(name)], completed=done, total=total)

        yield show


@contextmanager
def load_progress() -> Iterator[Callable[[LoadProgress], None]]:
    """A callback for capture that draws a bar per table while it is loaded."""
    with bars() as show:

        def loaded(loading: LoadProgress) -> None:
            total = max(loading.expected or 0, loading.rows) or None
            show(loading.table, loading.rows, loading.rows if loading.done else total)

        yield loaded


@contextmanager
def apply_progress() -> Iterator[Callable[[TableId, int], None]]:
    """A callback for apply that draws a bar per table while its files are applied."""
    most: dict[TableId, int] = {}
    with bars("files") as show:

        def applied(table: TableId, pending: int) -> None:
            if pending or table in most:
                most[table] = max(most.get(table, 0), pending)
                show(table, most[table] - pending, most[table])

        yield applied


@contextmanager
def publish_progress() -> Iterator[Callable[[TableId, int], None]]:
    """A callback for a publisher that counts the rows of the current batch."""
    with bars("rows") as show:
        yield lambda table, rows: show(table, rows, None)
