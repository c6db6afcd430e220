"""The contract of a strategy: a way to apply batches that fit their tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mirrorlake.apply.task.landed_rows import LandedRows
from mirrorlake.delta.schema import TableSchema
from mirrorlake.mirror.engine import Outcome
from mirrorlake.mirror.steps import ApplyFiles
from mirrorlake.mirror.strategy import Choice
from mirrorlake.mirror.table.progress import Progress
from mirrorlake.storage.options import ObjectOptions


@dataclass(frozen=True, slots=True)
class OpenBatch:
    """A batch, and the one version of its table that all of it rests on.

    choice: by which strategy it goes; location: of the table; files: the add actions of its live
    files; options: how the location is reached when that is a URL.
    """

    choice: Choice
    step: ApplyFiles
    location: str
    version: int
    progress: Progress
    schema: TableSchema
    files: Sequence[Mapping[str, Any]]
    options: ObjectOptions | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """The columns by which its rows are found in the table."""
        if not self.step.whole_rows:
            return self.step.key
        return tuple(n for n in self.schema.schema.names if n not in self.progress.computed)

    def rows(self, threads: int = 1) -> LandedRows:
        """How tasks read its landed files."""
        return LandedRows(
            str(self.step.table),
            self.schema,
            self.key,
            self.step.default,
            self.progress.required,
            self.step.row_checks,
            threads,
            self.step.whole_rows,
        )


class Strategy(Protocol):
    """Applies batches: each in one commit, on the version it was opened on or not at all, with
    rows, change images and the recorded number; see `mirror.engine.MirrorEngine`. For several
    threads, and different tables."""

    def apply(
        self, batches: Sequence[OpenBatch], before_commit: Callable[[], None]
    ) -> Sequence[Outcome]:
        """Apply one batch per table; outcomes in their order."""
        ...
