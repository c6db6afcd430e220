"""The contract of a strategy, which applies batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mirrorlake.apply.fold import SoftDeletes
from mirrorlake.apply.task.landed_rows import LandedRows
from mirrorlake.delta.schema import TableSchema
from mirrorlake.mirror.engine import Outcome
from mirrorlake.mirror.steps import ApplyFiles
from mirrorlake.mirror.strategy import Choice
from mirrorlake.mirror.table.progress import Progress
from mirrorlake.model.change import METADATA_COLUMNS
from mirrorlake.storage.options import ObjectOptions


@dataclass(frozen=True, slots=True)
class OpenBatch:
    """A batch, opened on one version of its table.

    choice: its strategy; location: of the table; version: -1 if the batch creates it, by the
    metaData action `creates`; files: the add actions of its live files; options: how to access the
    location if it is a URL.
    """

    choice: Choice
    step: ApplyFiles
    location: str
    version: int
    progress: Progress
    schema: TableSchema
    files: Sequence[Mapping[str, Any]]
    options: ObjectOptions | None = None
    creates: Mapping[str, Any] | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify rows in the table."""
        if not self.step.whole_rows:
            return self.step.key
        others = {*self.progress.computed, *METADATA_COLUMNS}
        return tuple(name for name in self.schema.schema.names if name not in others)

    @property
    def soft(self) -> SoftDeletes | None:
        """Set if the batch may mark rows as deleted."""
        if not self.step.marks:
            return None
        evidence = self.step.evidence
        position = evidence.positions[1] if evidence.positions else None
        return SoftDeletes(position, evidence.source_time)

    def rows(self, threads: int = 1) -> LandedRows:
        """The reader of its landed files, for tasks."""
        return LandedRows(
            str(self.step.table),
            self.schema,
            self.key,
            self.step.default,
            self.progress.required,
            self.step.row_checks,
            threads,
            self.step.whole_rows,
            self.step.soft,
        )


class Strategy(Protocol):
    """Applies each batch in one commit with rows, change images and the recorded number, on the
    version it was opened on, or not at all; see `mirror.engine.MirrorEngine`. Thread-safe for
    different tables."""

    def apply(
        self, batches: Sequence[OpenBatch], before_commit: Callable[[], None]
    ) -> Sequence[Outcome]:
        """Apply one batch per table. Returns the outcomes in the order of the batches."""
        ...
