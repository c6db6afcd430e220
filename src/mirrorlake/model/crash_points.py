"""Whatever makes a step durable announces it to a `CrashHook`, before and afterwards.

With a hook that raises, the whole path runs under one seed; with one that kills the process, every
step is a crash test.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum


class CrashPoint(StrEnum):
    """The points at which a process may die: around each durable step between source and table."""

    STREAM_RECORDED = "capture.stream.recorded"
    SLOT_CREATED = "capture.slot.created"
    ESTABLISHED = "capture.established"
    LOAD_STAGED = "capture.load.staged"
    LOAD_MANIFEST = "capture.load.manifest"
    LOAD_PUBLISHED_ONE = "capture.load.published_one"
    LOAD_PUBLISHED = "capture.load.published"
    CHANGES_STAGED = "capture.changes.staged"
    CHANGES_PUBLISHED_ONE = "capture.changes.published_one"
    CHANGES_PUBLISHED = "capture.changes.published"
    EVENTS_ASSIGNED = "capture.events.assigned"
    EVENTS_WRITTEN_ONE = "capture.events.written_one"
    CUT_WRITTEN = "capture.cut.written"
    ACKNOWLEDGED = "capture.acknowledged"
    REPLACED_NOTED = "capture.replaced.noted"
    REPLACED_DELETED = "capture.replaced.deleted"
    BACKFILL_REQUIRED = "capture.backfill.required"
    BACKFILL_STAGED = "capture.backfill.staged"
    BACKFILL_PUBLISHED = "capture.backfill.published"
    BACKFILL_RECORDED = "capture.backfill.recorded"
    BATCH_ASSIGNED = "publish.assigned"
    BATCH_STAGED_ONE = "publish.staged_one"
    TABLE_DESCRIBED = "publish.described"
    BATCH_SEALED = "publish.sealed"
    BATCH_PUBLISHED_ONE = "publish.published_one"
    BATCH_RECORDED = "publish.recorded"
    FOLDER_DROPPED = "publish.dropped"
    PROCESSED_DISCARDED = "apply.processed.discarded"
    TABLE_CREATED = "apply.table.created"
    TABLE_DROPPED = "apply.table.dropped"
    COLUMNS_ADDED = "apply.columns.added"
    COLUMNS_WRITTEN = "apply.columns.written"
    COLUMNS_ALTERED = "apply.columns.altered"
    STAGE_WRITTEN = "apply.batch.pieces"
    BATCH_WRITTEN = "apply.batch.written"
    COMMIT_BEGUN = "apply.commit.begun"
    COMMITTED = "apply.committed"
    COMMIT_DURABLE = "apply.commit.durable"
    FILES_COMPACTED = "apply.compaction.written"
    COMPACTION_COMMITTED = "apply.compaction.committed"
    NAMES_RECORDED = "apply.names.recorded"
    CLEANUP_MOVED_ONE = "apply.cleanup.moved_one"
    CLEANUP_DONE = "apply.cleanup.done"
    SUBSCRIPTION_READ = "subscription.read"
    SUBSCRIPTION_STORED = "subscription.stored"
    TARGET_WRITTEN = "feed.target.written"
    TARGET_COMMITTED = "feed.target.committed"
    KEYS_WRITTEN = "events.keys.written"
    EVENTS_COMMITTED = "events.committed"
    EVENT_FILES_RECORDED = "events.files.recorded"


CrashHook = Callable[[CrashPoint], None]


def no_crash(_point: CrashPoint) -> None:
    """The hook of every ordinary run."""
