"""Progress bars on a terminal; nothing elsewhere, because the log contains the progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from mirrorlake.app.status.amounts import duration
from mirrorlake.cli.run_facts import cut
from mirrorlake.cli.terminal import is_live
from mirrorlake.errors import printable

NAME_CELLS = 24
"""Width of a name beside its bar, so that the rest fits into 80 columns."""

if TYPE_CHECKING:
    from mirrorlake.model.table import TableId


class Show(Protocol):
    """Draws the bar of a name. note: more about what is done, such as its parts."""

    def __call__(self, name: object, done: int, total: int | None, note: str = "") -> None: ...


def _show_nothing(name: object, done: int, total: int | None, note: str = "") -> None:
    pass


@contextmanager
def bars(unit: str = "") -> Iterator[Show]:
    """A callback that draws a bar per name."""
    if not is_live():
        yield _show_nothing
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID
    from rich.text import Text

    class AmountColumn(ProgressColumn):
        """What is done, of how much, the rate and the time left, in words."""

        max_refresh = 0.25

        def render(self, task: Task) -> Text:
            of = f" of {task.total:,.0f}" if task.total is not None else ""
            rate = f", {task.speed:,.0f}/s" if task.speed else ""
            left = task.time_remaining
            more = f", {duration(left)} left" if left and task.speed else ""
            note = f", {task.fields['note']}" if task.fields["note"] else ""
            return Text(f"{task.completed:,.0f}{of} {unit}".rstrip() + rate + more + note)

    class Name(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(cut(printable(task.description), NAME_CELLS))

    shown: dict[str, TaskID] = {}
    columns = (Name(), BarColumn(10), AmountColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:

        def show(name: object, done: int, total: int | None, note: str = "") -> None:
            if str(name) not in shown:
                # The amount done before does not count for the rate.
                begun = progress.add_task(str(name), total=total, completed=done, note=note)
                shown[str(name)] = begun
            progress.update(shown[str(name)], completed=done, total=total, note=note)

        yield show


@contextmanager
def publish_progress() -> Iterator[Callable[[TableId, int], None]]:
    """A callback for a publisher that counts the rows of the current batch."""
    with bars("rows") as show:
        yield lambda table, rows: show(table, rows, None)
