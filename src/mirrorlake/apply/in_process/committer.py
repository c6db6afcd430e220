"""Commits without Delta: creates the next file of the log if it does not exist."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from mirrorlake.apply.committer import BatchCommit, CompactionCommit
from mirrorlake.delta.log.first_commit import is_begun
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.delta.write.commit import write_commit
from mirrorlake.delta.write.table_metadata import PROTOCOL
from mirrorlake.mirror.engine import Applied, Conflicted, Counts, Failed, Outcome, Unknown
from mirrorlake.mirror.faults import UnreachableTable


class LogCommitter:
    """A `Committer` for tables without features that affect commits. It resolves no conflicts: a
    table with a newer version is always a conflict."""

    def prepare(self, location: str) -> None:
        """Does nothing: there is nothing to load."""

    def commit(self, commit: BatchCommit) -> Outcome:
        recorded = {
            "appId": commit.application,
            "version": commit.number,
            "lastUpdated": 0,
        }
        actions = [*map(json.loads, commit.actions), {"txn": recorded}]
        if commit.creates is not None:
            if not is_begun(commit.location):
                return Conflicted("its folder was removed")
            actions = [{"protocol": PROTOCOL}, {"metaData": commit.creates}, *actions]
        info = {"operation": str(commit.operation), "userMetadata": json.dumps(commit.metadata)}
        return _committed(commit, actions, commit.counts, info)

    def compact(self, commit: CompactionCommit) -> Outcome:
        actions = [json.loads(action) for action in commit.actions]
        return _committed(commit, actions, Counts(), {"operation": "OPTIMIZE"})

    def forget(self, location: str) -> None:
        """Does nothing: no log is cached."""


def _committed(
    commit: BatchCommit | CompactionCommit,
    actions: Sequence[dict[str, Any]],
    counts: Counts,
    info: dict[str, Any],
) -> Outcome:
    version, log = commit.version + 1, TableLog(commit.location)
    try:
        if log.has(version) or (version and not log.has(commit.version)):
            return Conflicted("another writer committed first")
    except OSError as error:
        return Failed(_unreachable(commit.table, error))
    try:
        done = write_commit(commit.location, version, actions, **info)
    except OSError as error:
        return Unknown(type(error).__name__)
    return Applied(version, counts) if done else Conflicted("another writer committed first")


def _unreachable(table: str, error: OSError) -> UnreachableTable:
    return UnreachableTable(
        f"its Delta log cannot be read: {error.strerror or type(error).__name__}",
        table=table,
        hint="Check that the storage answers. It is retried.",
    )
