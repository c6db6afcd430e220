"""An engine that starts Spark to write something, and not to find that there is nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta

from mirrorlake.apply.engine import Engine
from mirrorlake.mirror.engine import Outcome
from mirrorlake.mirror.steps import (
    AddColumns,
    AlterColumns,
    ApplyFiles,
    Compact,
    CreateTable,
    DropTable,
    RenameColumns,
    SetKey,
)
from mirrorlake.mirror.table.progress import Progress
from mirrorlake.model.landed import NamedBatch


class DeferredEngine:
    """A `MirrorEngine`. reading: what reads logs and flushes files, which takes no Spark; make:
    makes the engine that does the rest, and the reading from then on."""

    def __init__(self, reading: Engine, make: Callable[[], Engine]) -> None:
        self._engine, self._make, self._is_started = reading, make, False
        self._lock = threading.Lock()

    def start(self) -> Engine:
        with self._lock:
            if not self._is_started:
                self._engine, self._is_started = self._make(), True
        return self._engine

    @property
    def slots(self) -> int:
        return self.start().slots

    def progress(self, path: str) -> Progress:
        return self._engine.progress(path)

    def named_batches(self, path: str, after: int) -> Sequence[NamedBatch]:
        return self._engine.named_batches(path, after)

    def paths(self, known: Collection[str] = ()) -> Sequence[str]:
        return self._engine.paths(known)

    def compaction(self, path: str) -> Compact | None:
        return self._engine.compaction(path)

    def clustering(self, path: str) -> Compact | None:
        return self._engine.clustering(path)

    def make_durable(self, path: str, version: int) -> None:
        self._engine.make_durable(path, version)

    def creates_with_batch(self, step: CreateTable) -> bool:
        return self.start().creates_with_batch(step)

    def create(self, step: CreateTable) -> None:
        self.start().create(step)

    def drop(self, step: DropTable) -> None:
        self.start().drop(step)

    def vacuum(self, path: str, retention: timedelta, before_commit: Callable[[], None]) -> None:
        self.start().vacuum(path, retention, before_commit)

    def add_columns(self, step: AddColumns) -> None:
        self.start().add_columns(step)

    def rename_columns(self, step: RenameColumns, before_commit: Callable[[], None]) -> None:
        self.start().rename_columns(step, before_commit)

    def alter_columns(self, step: AlterColumns, before_commit: Callable[[], None]) -> None:
        self.start().alter_columns(step, before_commit)

    def set_key(self, step: SetKey) -> None:
        self.start().set_key(step)

    def set_properties(self, path: str, properties: Mapping[str, str]) -> None:
        self.start().set_properties(path, properties)

    def apply(
        self, steps: Sequence[ApplyFiles], before_commit: Callable[[], None]
    ) -> Sequence[Outcome]:
        return self.start().apply(steps, before_commit)

    def checkpoint(self, path: str) -> None:
        self.start().checkpoint(path)

    def compact(
        self, steps: Sequence[Compact], before_commit: Callable[[], None]
    ) -> Sequence[Outcome | None]:
        return self.start().compact(steps, before_commit)
