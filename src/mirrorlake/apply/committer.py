"""The contract of a committer: it makes actions part of a Delta table, all of them or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from mirrorlake.mirror.engine import Counts, Outcome


class CommitOperation(StrEnum):
    """What the history of a table calls the commit of a batch."""

    WRITE = "WRITE"
    """Rows were added, and nothing else."""
    TRUNCATE = "TRUNCATE"
    """All rows were removed, and nothing else."""
    MERGE = "MERGE"


@dataclass(frozen=True, slots=True)
class BatchCommit:
    """What the commit of a batch holds. version: of the table that the tasks have read;
    application, number: what it records as applied; metadata: for `userMetadata`."""

    table: str
    location: str
    version: int
    application: str
    number: int
    actions: Sequence[str]
    counts: Counts
    metadata: Mapping[str, Any]
    truncated: bool = False

    @property
    def operation(self) -> CommitOperation:
        added, removed = self.number_of("add"), self.number_of("remove")
        if self.truncated and removed and not added:
            return CommitOperation.TRUNCATE
        if added and not removed and not (self.truncated or self.counts.update):
            return CommitOperation.WRITE
        return CommitOperation.MERGE

    def number_of(self, kind: str) -> int:
        """How many actions are of a kind."""
        return sum(action.startswith(f'{{"{kind}"') for action in self.actions)


@dataclass(frozen=True, slots=True)
class CompactionCommit:
    """What a commit holds that leaves the rows as they are, and records nothing."""

    table: str
    location: str
    version: int
    actions: Sequence[str]


class Committer(Protocol):
    """Commits actions, as JSON texts, on the version of a table that they were made for.

    The commit happens only when the table is still at that version: what another writer did is
    never overlooked, and no commit is ever replaced. The outcome is Applied with the new version,
    Conflicted when another writer was faster, Failed when nothing was sent, Unknown when it was
    sent and no answer came: then it may have happened, and the caller reads the table. A committer
    retries nothing and raises nothing of these. For several threads, and different tables.
    """

    def commit(self, commit: BatchCommit) -> Outcome:
        """Commit a batch, and in the same commit what it records."""
        ...

    def compact(self, commit: CompactionCommit) -> Outcome:
        """Commit files in the place of others."""
        ...

    def forget(self, location: str) -> None:
        """Assume nothing of a table's log at the next commit: somebody else may have written it."""
        ...
