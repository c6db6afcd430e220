"""The contract of an engine, which executes steps and makes no decisions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from datetime import timedelta
from typing import Protocol

from mirrorlake.errors import MirrorlakeError
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


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows changed by one commit. duplicates: rows of a key beyond its first (LZ-088, LZ-089)."""

    insert: int = 0
    update: int = 0
    delete: int = 0
    duplicates: int = 0

    @classmethod
    def total(cls, counts: Iterable[Counts]) -> Counts:
        """The sum of the counts of several tasks."""
        return cls(*map(sum, zip(*map(astuple, counts), strict=True)))


@dataclass(frozen=True, slots=True)
class Applied:
    """The batch was committed as this version of the table."""

    version: int
    counts: Counts = field(default_factory=Counts)


@dataclass(frozen=True, slots=True)
class AlreadyApplied:
    """The table had already recorded the batch or a later one."""

    recorded: int


@dataclass(frozen=True, slots=True)
class Conflicted:
    """Another writer committed first; nothing was committed. Read the state and plan again."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """The result of the commit is unknown. Read the recorded number; do not plan again before."""

    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The batch cannot be applied; nothing was committed."""

    error: MirrorlakeError


Outcome = Applied | AlreadyApplied | Conflicted | Unknown | Failed


class TableReader(Protocol):
    """Reads the state of tables. Thread-safe."""

    def progress(self, path: str) -> Progress:
        """The state of the table at `path`, read from its log. Raises ForeignTable."""
        ...

    def named_batches(self, path: str, after: int) -> Sequence[NamedBatch]:
        """The recorded batches of a table in timestamp mode with a number greater than `after`,
        ascending.

        Old batches may be missing, because the log of a table is truncated.
        """
        ...

    def paths(self, known: Collection[str] = ()) -> Sequence[str]:
        """The paths of all tables below the root, no matter who created them, except `known`."""
        ...

    def compaction(self, path: str) -> Compact | None:
        """The compaction that a table needs now; None if it needs none."""
        ...

    def clustering(self, path: str) -> Compact | None:
        """The clustering by key that pays for a table now; None if none does."""
        ...


class MirrorEngine(TableReader, Protocol):
    """Reads and changes tables.

    A batch commits only if the version that it was computed on has recorded `first - 1`, and it
    records `last` in the same commit: rows, change images and progress appear together or not at
    all (LZ-258, CF-150). In timestamp mode batches are numbered, and the names of the files are
    recorded too; a batch is `Conflicted` if one of its files has been replaced.
    """

    @property
    def slots(self) -> int:
        """The number of tasks that can run at the same time."""
        ...

    def creates_with_batch(self, step: CreateTable) -> bool:
        """Whether the first batch can create the table, in one commit with its rows. Raises
        TableError."""
        ...

    def create(self, step: CreateTable) -> None:
        """Create the table, with the change feed enabled from version 0 unless the step says
        otherwise. Does nothing if it exists."""
        ...

    def drop(self, step: DropTable) -> None:
        """Move the table to the folder of dropped tables. Does nothing if the table has another
        generation."""
        ...

    def vacuum(self, path: str, retention: timedelta, before_commit: Callable[[], None]) -> None:
        """Delete data files that no version of the last `retention` needs (LZ-263).

        Raises ForeignTable if the table contains another table.
        """
        ...

    def add_columns(self, step: AddColumns) -> None:
        """Add the columns that do not exist yet."""
        ...

    def rename_columns(self, step: RenameColumns, before_commit: Callable[[], None]) -> None:
        """Rename columns, in one commit that records the number of the step and the key under its
        new names. Does nothing if the number is already recorded.

        Columns are mapped already. Changes no rows. Raises TableError, also if another writer
        committed first.
        """
        ...

    def alter_columns(self, step: AlterColumns, before_commit: Callable[[], None]) -> None:
        """Rewrite all rows with their altered columns, in one commit that records the number of the
        step. Does nothing if the number is already recorded.

        The feed contains an update for each row with a changed value; a value with only a wider
        type is not changed. Raises TableError, also if another writer committed first.
        """
        ...

    def set_key(self, step: SetKey) -> None:
        """Record the key of a table that had none."""
        ...

    def set_properties(self, path: str, properties: Mapping[str, str]) -> None:
        """Set properties of the table. Changes no rows and no columns."""
        ...

    def apply(
        self, steps: Sequence[ApplyFiles], before_commit: Callable[[], None]
    ) -> Sequence[Outcome]:
        """Apply one batch per table. Returns the outcomes in the order of the steps.

        A table that a step creates appears with its rows where `creates_with_batch` allows it, and
        otherwise before them.

        before_commit: called before each commit; prevents it by raising. This method, `compact` and
        all reading methods may be called by several threads, for different tables.
        """
        ...

    def checkpoint(self, path: str) -> None:
        """Write a checkpoint of the newest version.

        May be called during a batch. If only Delta can write checkpoints of the table, the engine
        changes a property of the table, once, so that Delta does; a batch that is running is then
        retried. Raises TableError.
        """
        ...

    def compact(
        self, steps: Sequence[Compact], before_commit: Callable[[], None]
    ) -> Sequence[Outcome | None]:
        """Compact files of tables. Returns an outcome per step, None if there was nothing to do.

        Rows, change feed and progress do not change (CF-095, CF-156). A table that another writer
        changes in the meantime is not compacted.
        """
        ...

    def make_durable(self, path: str, version: int) -> None:
        """Make a version durable, before other steps depend on it."""
        ...
