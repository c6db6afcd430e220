"""Whether the source of a mirror answers, and takes snapshots, as its capture last noted."""

from __future__ import annotations

from datetime import datetime

from mirrorlake import root
from mirrorlake.app.status.amounts import duration
from mirrorlake.capture.records.files import UNREADABLE
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.records.source_state import Outage, SnapshotWait
from mirrorlake.model.landed import readable_time
from mirrorlake.storage.lease import holder_of
from mirrorlake.storage.store import Store


def outage_of(store: Store, now: datetime) -> Outage | None:
    """The outage that capture waits for to end; None while the source answers, and when no capture
    runs that would ask it."""
    try:
        found = Records(store, root.LANDING).outage()
    except UNREADABLE:  # whatever others have put there
        return None
    return found if found is not None and holder_of(store, "capture", now) else None


def wait_of(store: Store, now: datetime) -> SnapshotWait | None:
    """The transaction of others for which a snapshot waits; None when there is none, and when no
    capture runs that would take it."""
    try:
        found = Records(store, root.LANDING).awaited()
    except UNREADABLE:  # whatever others have put there
        return None
    return found if found is not None and holder_of(store, "capture", now) else None


def sentence(wait: SnapshotWait, now: datetime) -> str:
    """What does not go on, for what, and how old that is."""
    began, age = wait.transaction.began, ""
    if began is not None:
        age = f", open for {duration((now - began).total_seconds())} since {readable_time(began)}"
    return (
        f"since {readable_time(wait.since)} no table can be loaded or read again before this "
        f"ends: {wait.transaction.name}{age}"
    )
