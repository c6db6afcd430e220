"""What the source keeps of its log, as people read it."""

from __future__ import annotations

from mirrorlake import root
from mirrorlake.app.status.amounts import duration, size
from mirrorlake.capture.records.files import UNREADABLE
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.watch.retention import LogRetention
from mirrorlake.storage.store import Store


def retention_of(store: Store) -> LogRetention | None:
    """As capture last noted it; None when it never did."""
    try:
        facts = Records(store, root.LANDING).retained()
        return LogRetention.parse(facts) if facts else None
    except UNREADABLE:  # whatever others have put there
        return None


def sentence(log: LogRetention) -> str:
    """How much is kept, and when it will be too much."""
    retained = f"{size(log.size)} retained by the source"
    if log.limit is None:
        return retained
    what = "capture.retained_limit" if log.is_budget else "the source's limit"
    if log.is_over:
        return f"{retained}, more than {what} of {size(log.limit)}"
    if log.seconds_left is None:
        return f"{retained}; {what} is {size(log.limit)}"
    return f"{retained}; {what} of {size(log.limit)} is reached in {duration(log.seconds_left)}"
