"""Progress bars on a terminal, and nothing in between elsewhere: the log has it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mirrorlake.capture.sink import LoadProgress
from mirrorlake.model.table import TableId


@contextmanager
def load_progress() -> Iterator[Callable[[LoadProgress], None]]:
    """A callback for capture that draws a bar per table while it is loaded."""
    if not sys.stderr.isatty():
        yield lambda _progress: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TimeElapsedColumn

    bars: dict[str, TaskID] = {}
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:

        def show(loading: LoadProgress) -> None:
            name = str(loading.table)
            if name not in bars:
                bars[name] = progress.add_task(name, total=loading.expected)
            total = max(loading.expected or 0, loading.rows) or None
            progress.update(
                bars[name], completed=loading.rows, total=loading.rows if loading.done else total
            )

        yield show


@contextmanager
def apply_progress() -> Iterator[Callable[[TableId, int], None]]:
    """A callback for apply that draws a bar per table while its files are applied."""
    if not sys.stderr.isatty():
        yield lambda _table, _files: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TimeElapsedColumn

    bars: dict[str, tuple[TaskID, int]] = {}
    columns = (
        "{task.description}",
        BarColumn(),
        MofNCompleteColumn(),
        "files",
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:

        def show(table: TableId, pending: int) -> None:
            name = str(table)
            if name not in bars:
                if not pending:
                    return
                bars[name] = progress.add_task(name, total=pending), pending
            bar, most = bars[name]
            bars[name] = bar, max(most, pending)
            progress.update(bar, completed=bars[name][1] - pending, total=bars[name][1])

        yield show


@contextmanager
def publish_progress() -> Iterator[Callable[[TableId, int], None]]:
    """A callback for a publisher that counts the rows of the batch at hand."""
    if not sys.stderr.isatty():
        yield lambda _table, _rows: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

    counts: dict[str, TaskID] = {}
    columns = (
        SpinnerColumn(),
        "{task.description}",
        TextColumn("{task.completed:,.0f} rows"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:

        def show(table: TableId, rows: int) -> None:
            name = str(table)
            if name not in counts:
                counts[name] = progress.add_task(name, total=None)
            progress.update(counts[name], completed=rows)

        yield show
