"""The contract of an engine: it executes steps, and decides nothing."""

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
    SetKey,
)
from mirrorlake.mirror.table.progress import Progress
from mirrorlake.model.landed import NamedBatch


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows of one commit. duplicates: rows beyond the first that a key had (LZ-088, LZ-089)."""

    insert: int = 0
    update: int = 0
    delete: int = 0
    duplicates: int = 0

    @classmethod
    def total(cls, counts: Iterable[Counts]) -> Counts:
        """What several tasks have counted, together."""
        return cls(*map(sum, zip(*map(astuple, counts), strict=True)))


@dataclass(frozen=True, slots=True)
class Applied:
    """The batch is in the table, in this version of it."""

    version: int
    counts: Counts = field(default_factory=Counts)


@dataclass(frozen=True, slots=True)
class AlreadyApplied:
    """The table has recorded the batch, or a later one, before."""

    recorded: int


@dataclass(frozen=True, slots=True)
class Conflicted:
    """Another writer was faster; nothing was written. Read the state and plan again."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """The commit was sent and no answer came: read back what is recorded, do not plan anew."""

    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The batch cannot be applied; nothing was written."""

    error: MirrorlakeError


Outcome = Applied | AlreadyApplied | Conflicted | Unknown | Failed


class TableReader(Protocol):
    """What tables say of themselves. For several threads."""

    def progress(self, path: str) -> Progress:
        """The state of the table at `path`, read from the table itself. Raises ForeignTable."""
        ...

    def named_batches(self, path: str, after: int) -> Sequence[NamedBatch]:
        """What the table has recorded in timestamp mode beyond batch number `after`, ascending.

        A table forgets what is old: batches may be missing.
        """
        ...

    def paths(self, known: Collection[str] = ()) -> Sequence[str]:
        """Where there are tables, of whomever, apart from known places."""
        ...

    def compaction(self, path: str) -> Compact | None:
        """What `compact` would do with a table now; None for nothing."""
        ...


class MirrorEngine(TableReader, Protocol):
    """Tables, and the one way to change them.

    A batch commits only when the table has recorded `first - 1` in the very version that the batch
    was computed on, and records `last` in the same commit: rows, change images and progress appear
    together or not at all (LZ-258, CF-150). In timestamp mode batches are counted, the names of the
    files are recorded too, and a batch of which a file is another by now is `Conflicted`.
    """

    @property
    def slots(self) -> int:
        """How many tasks run at once."""
        ...

    def create(self, step: CreateTable) -> None:
        """Make the table, with the change feed on from version 0. Exists already: nothing."""
        ...

    def drop(self, step: DropTable) -> None:
        """Put the table aside, whole, where no reader looks. Of another generation: nothing."""
        ...

    def vacuum(self, path: str, retention: timedelta, before_commit: Callable[[], None]) -> None:
        """Remove data files that no version of the last `retention` needs (LZ-263).

        Raises ForeignTable when another table lies inside.
        """
        ...

    def add_columns(self, step: AddColumns) -> None:
        """Add columns that are not there yet."""
        ...

    def alter_columns(self, step: AlterColumns, before_commit: Callable[[], None]) -> None:
        """Write all rows anew with what their columns have become, in one commit that records the
        number of the step; with this number recorded, nothing.

        The feed has an update for each row whose values have changed; of values that only got a
        wider type it tells nothing. Raises TableError, also when another writer was faster.
        """
        ...

    def set_key(self, step: SetKey) -> None:
        """Remember the key of a table that had none."""
        ...

    def set_properties(self, path: str, properties: Mapping[str, str]) -> None:
        """Give properties of the table other values. Changes no row, and no column."""
        ...

    def apply(
        self, steps: Sequence[ApplyFiles], before_commit: Callable[[], None]
    ) -> Sequence[Outcome]:
        """Apply one batch per table; outcomes in the order of the steps.

        before_commit is called before each commit, and refuses it by raising. May be called in
        several threads at once, for different tables; so may `compact`, and whatever only reads.
        """
        ...

    def checkpoint(self, path: str) -> None:
        """Let readers of the newest version begin there instead of with the first commit.

        Between two batches or during one: it changes no row. An engine that has to leave them to
        Delta changes a property of the table, once, so that Delta writes them from then on; a batch
        that is under way is tried again then. Raises TableError.
        """
        ...

    def compact(
        self, steps: Sequence[Compact], before_commit: Callable[[], None]
    ) -> Sequence[Outcome | None]:
        """Write files of tables anew, where there is a need; None where there is none.

        Rows, feed and progress are what they were (CF-095, CF-156). A table that another writer
        changes meanwhile is left alone.
        """
        ...

    def make_durable(self, path: str, version: int) -> None:
        """Make a version durable before anything rests on it."""
        ...
