"""Named points before and after each durable step, at which tests end the process.

Code that makes a step durable calls a `CrashHook` with the point. In the simulator the hook raises,
in crash tests it kills the process.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum


class CrashPoint(StrEnum):
    """The points around each durable step between source and table."""

    STREAM_RECORDED = "capture.stream.recorded"
    SLOT_CREATED = "capture.slot.created"
    ESTABLISHED = "capture.established"
    LOAD_NOTED = "capture.load.noted"
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
    REPAIR_RECORDED = "capture.repair.recorded"
    REPAIR_REQUESTED = "capture.repair.requested"
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
    LEASE_TAKEN = "lease.taken"
    LEASE_RENEWED = "lease.renewed"
    LEASE_RELEASED = "lease.released"
    PROCESSED_DISCARDED = "apply.processed.discarded"
    TABLE_CREATED = "apply.table.created"
    DROP_RECORDED = "apply.table.drop_recorded"
    TABLE_DROPPED = "apply.table.dropped"
    DROPPED_DELETED = "apply.table.dropped_deleted"
    PROPERTIES_SET = "apply.properties.set"
    COLUMNS_ADDED = "apply.columns.added"
    COLUMNS_RENAMED = "apply.columns.renamed"
    COLUMNS_WRITTEN = "apply.columns.written"
    COLUMNS_ALTERED = "apply.columns.altered"
    STAGE_WRITTEN = "apply.batch.stage"
    BATCH_WRITTEN = "apply.batch.written"
    COMMIT_BEGUN = "apply.commit.begun"
    COMMITTED = "apply.committed"
    COMMIT_DURABLE = "apply.commit.durable"
    FILES_COMPACTED = "apply.compaction.written"
    COMPACTION_COMMITTED = "apply.compaction.committed"
    NAMES_RECORDED = "apply.names.recorded"
    CLEANUP_MOVED_ONE = "apply.cleanup.moved_one"
    CLEANUP_DONE = "apply.cleanup.done"
    CLEANUP_EXPIRED_ONE = "apply.cleanup.expired_one"
    CHECKPOINT_WRITTEN = "apply.checkpoint.written"
    VACUUM_BEGUN = "apply.vacuum.begun"
    VACUUM_DONE = "apply.vacuum.done"
    STATUS_WRITTEN = "apply.status.written"
    RESET_STREAM_FORGOTTEN = "reset.stream.forgotten"
    RESET_FOLDER_DELETED = "reset.folder.deleted"
    RESET_TABLE_DELETED = "reset.table.deleted"
    DETACHED = "detach.removed"
    SUBSCRIPTION_READ = "subscription.read"
    SUBSCRIPTION_STORED = "subscription.stored"
    TARGET_WRITTEN = "feed.target.written"
    TARGET_COMMITTED = "feed.target.committed"
    KEYS_WRITTEN = "events.keys.written"
    EVENTS_COMMITTED = "events.committed"
    EVENT_FILES_RECORDED = "events.files.recorded"


CrashHook = Callable[[CrashPoint], None]


def no_crash(_point: CrashPoint) -> None:
    """The hook of an ordinary run: does nothing."""
