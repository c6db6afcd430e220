"""Any permutation and duplication of events, cut into any batches, makes the same table."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlake.apply.events.table import EventTable
from mirrorlake.errors import KeyColumnUnknown
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.model.table import TableId
from mirrorlake.storage.local import LocalStore
from tests.apply.events import drawn_files
from tests.apply.events.drawn_files import read, rows_of, value_of
from tests.mirror.order.drawn import SOURCES, arrivals
from tests.mirror.order.model import Event, table_of
from tests.profiles import tries

ORDERS = TableId("shop", "orders")
POINTS = [CrashPoint.KEYS_WRITTEN, CrashPoint.EVENTS_COMMITTED]


class Killed(Exception):
    """A process that ends at a point."""


def opened(root: str, source: str, dies: CrashPoint | None = None, **changed: bool) -> EventTable:
    def reached(point: CrashPoint) -> None:
        if point is dies:
            raise Killed

    asked = drawn_files.settings(source, **changed)
    return EventTable(LocalStore(Path(root)), ORDERS, asked, reached)


def expected(source: str, events: Sequence[Event]) -> dict[int, int]:
    named = [event | {"payload": event["payload"]} for event in events]
    by_key = table_of(source, named)
    return {key: value_of({"key": key, "payload": payload}) for key, payload in by_key.items()}


@pytest.mark.clause("ST-219", "ST-233", "ST-248", "ST-249", "ST-254")
@pytest.mark.parametrize("source", SOURCES)
@settings(max_examples=tries(12, long=1500), deadline=None)
@given(data=st.data())
def test_any_order_with_crashes_makes_the_same_table(source: str, data: st.DataObject) -> None:
    events, batches = data.draw(arrivals(source))
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
        rows = rows_of(f"{root}/Tables/shop/orders")
    assert len(rows) == len({row["id"] for row in rows})
    assert {row["id"]: row["v"] for row in rows} == expected(source, events)
