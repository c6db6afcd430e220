"""Tables of events, in processes that end at a point."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from mirrorlake.apply.events import lookups
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


@contextmanager
def looked_up(*, early: bool) -> Iterator[None]:
    """Look up the keys of each batch while its events are checked, however few these are."""
    with pytest.MonkeyPatch.context() as patch:
        if early:
            patch.setattr(lookups, "MANY", 0)
        yield


def rows_after(
    data: st.DataObject,
    source: str,
    batches: Sequence[Sequence[Event]],
    key: Sequence[str] = ("id",),
    **changed: bool,
) -> list[dict[str, Any]]:
    """The rows of a table after these batches, in each of which a process may die. changed: other
    settings."""
    with tempfile.TemporaryDirectory() as root, looked_up(early=data.draw(st.booleans())):
        table, waiting = opened(root, source, **changed), list[Event]()
        for batch in filter(None, batches):
            dies = data.draw(st.sampled_from([None, *POINTS]))
            waiting += batch
            events = partial(read, source, waiting, key=key, **changed)
            with suppress(KeyColumnUnknown):
                if dies is not None:
                    with suppress(Killed):
                        opened(root, source, dies, **changed).apply(events())
                    table = opened(root, source, **changed)
                table.apply(events())
                waiting = []
        return rows_of(f"{root}/Tables/shop/orders")
