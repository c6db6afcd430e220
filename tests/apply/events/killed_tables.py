"""Tables of events, in processes that end at a point."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from mirrorlake.apply.events.table import EventTable
from mirrorlake.errors import KeyColumnUnknown
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.model.table import TableId
from mirrorlake.storage.local import LocalStore
from tests.apply.events import drawn_files
from tests.apply.events.drawn_files import read, rows_of
from tests.mirror.event_order.model import Event

ORDERS = TableId("shop", "orders")
POINTS = [CrashPoint.KEYS_WRITTEN, CrashPoint.EVENTS_COMMITTED]


class Killed(Exception):
    """A process that ends at a point."""


def opened(root: str, source: str, dies: CrashPoint | None = None, **changed: bool) -> EventTable:
    def reached(point: CrashPoint) -> None:
        if point is dies:
            raise Killed

    settings = drawn_files.settings(source, **changed)
    return EventTable(LocalStore(Path(root)), ORDERS, settings, reached)


def rows_after(
    data: st.DataObject, source: str, batches: Sequence[Sequence[Event]]
) -> list[dict[str, Any]]:
    """The rows of a table after these batches, in each of which a process may die."""
    with tempfile.TemporaryDirectory() as root:
        table, waiting = opened(root, source), list[Event]()
        for batch in filter(None, batches):
            dies = data.draw(st.sampled_from([None, *POINTS]))
            waiting += batch
            with suppress(KeyColumnUnknown):
                if dies is not None:
                    with suppress(Killed):
                        opened(root, source, dies).apply(read(source, waiting))
                    table = opened(root, source)
                table.apply(read(source, waiting))
                waiting = []
        return rows_of(f"{root}/Tables/shop/orders")
