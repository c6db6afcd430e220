"""Whether the source of a mirror answers, as its capture last noted."""

from __future__ import annotations

from datetime import datetime

from mirrorlake import root
from mirrorlake.capture.record import UNREADABLE, Outage, Records
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
