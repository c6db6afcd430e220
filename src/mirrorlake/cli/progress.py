"""Progress bars on a terminal; elsewhere nothing, because the log contains it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mirrorlake.app.status.amounts import duration
from mirrorlake.cli.run_facts import cut
from mirrorlake.cli.terminal import is_live
from mirrorlake.errors import printable

NAME_CELLS = 24
"""Of a name beside its bar, so that a line of 80 columns has room for the rest."""

if TYPE_CHECKING:
    from mirrorlake.capture.sink import LoadProgress
    from mirrorlake.model.table import TableId


@contextmanager
def bars(unit: str = "") -> Iterator[Callable[[object, int, int | None], None]]:
    """A callback that draws a bar for each name: the name, what is done, and of how much."""
    if not is_live():
        yield lambda _name, _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID
    from rich.text import Text

    class Told(ProgressColumn):
        """What is done, of how much, the rate and the time left, in words."""

        max_refresh = 0.25

        def render(self, task: Task) -> Text:
            of = f" of {task.total:,.0f}" if task.total is not None else ""
            rate = f", {task.speed:,.0f}/s" if task.speed else ""
            left = task.time_remaining
            more = f", {duration(left)} left" if left and task.speed else ""
            return Text(f"{task.completed:,.0f}{of} {unit}".rstrip() + rate + more)

    class Name(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(cut(printable(task.description), NAME_CELLS))

    shown: dict[str, TaskID] = {}
    columns = (Name(), BarColumn(10), Told())
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
