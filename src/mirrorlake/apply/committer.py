"""The contract of a committer, which commits actions to a Delta table atomically."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from mirrorlake.mirror.engine import Counts, Outcome


class CommitOperation(StrEnum):
    """The operation of a batch in the history of a table."""

    WRITE = "WRITE"
    """Rows were only added."""

    CREATE = "CREATE TABLE AS SELECT"
    """The table was created with its first rows."""

    TRUNCATE = "TRUNCATE"
    """All rows were removed, and none added."""

    UPDATE_SCHEMA = "UPDATE SCHEMA"
    """Columns were altered or renamed, and rows with them where they have other values."""
    MERGE = "MERGE"


@dataclass(frozen=True, slots=True)
class BatchCommit:
    """The commit of a batch. version: the version that the tasks have read, -1 if it creates the
    table, by the metaData action `creates`; application, number: of the recorded transaction;
    actions: as JSON texts; metadata: for `userMetadata`; alters: it alters columns."""

    table: str
    location: str
    version: int
    application: str
    number: int
    actions: Sequence[str]
    counts: Counts
    metadata: Mapping[str, Any]
    truncated: bool = False
    creates: Mapping[str, Any] | None = None
    alters: bool = False

    @property
    def operation(self) -> CommitOperation:
        if self.creates is not None:
            return CommitOperation.CREATE
        if self.alters:
            return CommitOperation.UPDATE_SCHEMA
        added, removed = self.number_of("add"), self.number_of("remove")
        if self.truncated and removed and not added:
            return CommitOperation.TRUNCATE
        if added and not removed and not (self.truncated or self.counts.update):
            return CommitOperation.WRITE
        return CommitOperation.MERGE

    def number_of(self, kind: str) -> int:
        """The number of actions of a kind."""
        return sum(action.startswith(f'{{"{kind}"') for action in self.actions)


@dataclass(frozen=True, slots=True)
class CompactionCommit:
    """The commit of a compaction, which changes no rows and records no transaction."""

    table: str
    location: str
    version: int
    actions: Sequence[str]


class Committer(Protocol):
    """Commits actions, as JSON texts, on the version of a table that they were computed on.

    The commit succeeds only if the table is still at that version, and never replaces another
    commit. The outcome is Applied with the new version; Conflicted if another writer committed
    first; Failed if no commit was attempted; Unknown if the result is not known: then the caller
    reads the table. A committer does not retry, and returns these outcomes instead of raising.
    Thread-safe for different tables.
    """

    def prepare(self, location: str) -> None:
        """Load what the first commit needs, while tasks run whose actions it will commit to the
        table at a location. Raises nothing."""
        ...

    def commit(self, commit: BatchCommit) -> Outcome:
        """Commit a batch together with its transaction."""
        ...

    def compact(self, commit: CompactionCommit) -> Outcome:
        """Commit a compaction."""
        ...

    def forget(self, location: str) -> None:
        """Read the log of a table again at the next commit: another writer may have changed it."""
        ...
