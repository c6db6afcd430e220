"""The note that a mirror was detached: its place in the source's log was given up on purpose.

It holds for the stream that began at `start`: after `reset --all` another one begins, and the note
says nothing about it.
"""

from __future__ import annotations

import json
from datetime import datetime

from mirrorlake import root
from mirrorlake.capture.records.records import Records
from mirrorlake.errors import SourceGap
from mirrorlake.model.landed import format_time, readable_time
from mirrorlake.storage.store import Store

PATH = f"{root.STATE}/detached.json"


def note(store: Store, now: datetime) -> None:
    """Remember that the stream of this mirror was detached."""
    record = Records(store, root.LANDING).stream()
    if record is not None:
        content = {"mirrorlake": 1, "time": format_time(now), "start": record.start}
        store.replace(PATH, json.dumps(content).encode())


def since(store: Store) -> str | None:
    """When the stream of this mirror was detached; None if it was not, or begins anew."""
    record = Records(store, root.LANDING).stream()
    if record is None or not record.is_established:
        return None
    try:
        noted = json.loads(store.read(PATH))
        return str(noted["time"]) if noted["start"] == record.start else None
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def error(time: str) -> SourceGap:
    """What to say to who wants to go on with a detached mirror."""
    return SourceGap(
        f"the mirror was detached at {readable_time(time)}: its replication slot was dropped, and "
        "changes since then are not captured",
        where="the source",
        hint=WAYS,
    )


WAYS = (
    "The tables can still be read. To mirror again, run `mirrorlake repair` and then "
    "`mirrorlake run`, which compares all tables with the source; or `mirrorlake reset --all`, "
    "which loads all tables again."
)
"""The ways on from there."""
