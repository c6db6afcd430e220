"""Commits without Delta's transaction: the next file of the log, created if it is absent."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from mirrorlake.apply.committer import BatchCommit, CompactionCommit
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.delta.write.commit import write_commit
from mirrorlake.mirror.engine import Applied, Conflicted, Counts, Failed, Outcome, Unknown
from mirrorlake.mirror.faults import UnreachableTable


class LogCommitter:
    """A `Committer` for tables without features that a commit has to care for. It resolves no
    conflicts: a table that has moved on is a conflict, whatever the other writer did."""

    def commit(self, commit: BatchCommit) -> Outcome:
        recorded = {
            "appId": commit.application,
            "version": commit.number,
            "lastUpdated": 0,
        }
        actions = [*map(json.loads, commit.actions), {"txn": recorded}]
        said = {"operation": str(commit.operation), "userMetadata": json.dumps(commit.metadata)}
        return _committed(commit, actions, commit.counts, said)

    def compact(self, commit: CompactionCommit) -> Outcome:
        actions = [json.loads(action) for action in commit.actions]
        return _committed(commit, actions, Counts(), {"operation": "OPTIMIZE"})

    def forget(self, location: str) -> None:
        """Nothing is remembered of any log."""


def _committed(
    commit: BatchCommit | CompactionCommit,
    actions: Sequence[dict[str, Any]],
    counts: Counts,
    said: dict[str, Any],
) -> Outcome:
    version, log = commit.version + 1, TableLog(commit.location)
    try:
        if log.has(version) or not log.has(commit.version):
            return Conflicted("another writer committed first")
    except OSError as error:
        return Failed(_unreachable(commit.table, error))
    try:
        done = write_commit(commit.location, version, actions, **said)
    except OSError as error:
        return Unknown(type(error).__name__)
    return Applied(version, counts) if done else Conflicted("another writer committed first")


def _unreachable(table: str, error: OSError) -> UnreachableTable:
    return UnreachableTable(
        f"its Delta log cannot be read: {error.strerror or type(error).__name__}",
        table=table,
        hint="Check that the storage answers. It is retried.",
    )
