"""Shows the steps of a long command: a live bar on a terminal, a line per step elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mirrorlake.cli.output import say
from mirrorlake.cli.terminal import is_live

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from mirrorlake.demo.demo import Stage


@contextmanager
def stage() -> Iterator[Stage]:
    """How to show steps: depends on whether standard error is a terminal."""
    if not is_live():
        yield _Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TimeElapsedColumn

    columns = (SpinnerColumn(finished_text="[green]✓"), "{task.description}", BarColumn(24))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as progress:
        yield _Bars(progress)


class _Lines:
    def __init__(self) -> None:
        self._what = ""

    def begin(self, what: str, total: float | None = None) -> None:
        del total
        self._what = what
        say(f"{what} ...")

    def advance(self, done: float) -> None:
        pass

    def end(self, outcome: str) -> None:
        say(f"{self._what}: {outcome}")


class _Bars:
    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None
        self._what = ""

    def begin(self, what: str, total: float | None = None) -> None:
        self._what = what
        self._task = self._progress.add_task(what, total=total)

    def advance(self, done: float) -> None:
        assert self._task is not None
        self._progress.advance(self._task, done)

    def end(self, outcome: str) -> None:
        assert self._task is not None
        self._progress.update(
            self._task, description=f"{self._what}: {outcome}", total=1, completed=1
        )
