"""Reads the progress of a table from its log."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from mirrorlake.delta.log.history import CommittedBatch, batches, named_batches
from mirrorlake.delta.log.table_log import BrokenLog, TableLog, TableSnapshot
from mirrorlake.mirror.table.progress import (
    MALFORMED,
    Progress,
    commit_metadata,
    progress_in,
    unreadable,
)
from mirrorlake.model.landed import NamedBatch


def snapshot_of(log: TableLog, table: str) -> TableSnapshot:
    """The newest version of a table. Raises ForeignTable if its log cannot be read."""
    try:
        return log.snapshot()
    except (BrokenLog, OSError) as error:
        raise unreadable(table, error) from error


def read_progress(log: TableLog, table: str) -> Progress:
    """The state of a table, from its log. Raises ForeignTable."""
    snapshot = snapshot_of(log, table)
    progress = progress_in(snapshot, table)
    if progress.restored is not None:
        return progress
    try:
        return replace(progress, restored=_restored_beneath(log, snapshot, progress))
    except (*MALFORMED, OSError) as error:
        raise unreadable(table, error) from error


def read_batches(log: TableLog, table: str) -> list[CommittedBatch]:
    """The batches of a table whose commits are still in its log. Raises ForeignTable."""
    try:
        return list(batches(log))
    except (BrokenLog, OSError) as error:
        raise unreadable(table, error) from error


def read_named_batches(log: TableLog, table: str, after: int) -> list[NamedBatch]:
    """The batches with a number greater than `after` whose commits are still in the log. Raises
    ForeignTable."""
    application = read_progress(log, table).application
    try:
        return named_batches(log, application, after)
    except (BrokenLog, OSError) as error:
        raise unreadable(table, error) from error


def _restored_beneath(log: TableLog, snapshot: TableSnapshot, progress: Progress) -> int | None:
    """The version of a RESTORE between the version that the last batch was computed on and its
    commit: Delta commits a batch of added rows in spite of it, because it conflicts with nothing.
    """
    if progress.batch is None:
        return None
    last = progress.batch.version
    rests_on = commit_metadata(snapshot.commits.get(last, {})).get("on")
    for version in range(rests_on + 1 if isinstance(rests_on, int) else last, last):
        with contextlib.suppress(FileNotFoundError):
            for action in log.actions(version):
                if (action.get("commitInfo") or {}).get("operation") == "RESTORE":
                    return version
    return None
