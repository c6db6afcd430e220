"""Every change of a batch, in order: what each event would have made of the table in its turn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlake.mirror.event_order import ORDER, BatchRecords, every_change, resolve
from tests.mirror.event_order.drawn import SOURCES, arrivals
from tests.mirror.event_order.model import (
    GUARD,
    Consumer,
    Event,
    backfill_order,
    completed,
    decider,
    order,
    place,
    rows_of,
)
from tests.profiles import tries

States = list[int | None]
"""The payloads that the row of a key has had; None where there was none."""


class Watched(Consumer):
    """Keeps every change of the keys that its last batch changed several times, by key."""

    changes: dict[int, States]

    def apply(self, batch: Sequence[Event]) -> None:
        rows = rows_of(self._source, batch)
        before, derived = self._roll_back(batch, rows)
        whole = [index for index, event in enumerate(batch) if event["key"] is not None]
        events = rows.take(np.array(whole, np.int64))
        known = self._state
        found = resolve(self._rule, GUARD, ["key"], known, events, derived)
        resolved = BatchRecords(known, events, derived, ORDER.empty_table(), before)
        numbers = every_change(self._rule, GUARD, ["key"], resolved, found).tolist()
        together = resolved.together(["key", "deletion"]).to_pylist()
        payload = [batch[index]["payload"] for index in whole]
        self.changes = {}
        for number in numbers:
            row = together[number]
            value = None if row["deletion"] else payload[number - known.num_rows]
            self.changes.setdefault(row["key"], []).append(value)


def states(source: str, before: Sequence[Event], batch: Sequence[Event]) -> dict[int, States]:
    """What each event of a batch makes of its key, applied in their order after others."""
    everything = [*before, *batch]
    derived = completed(source, everything)
    old = completed(source, before)
    found: dict[int, States] = {}
    for key in {event["key"] for event in everything if event["key"] is not None}:
        known = [event for event in [*before, *old] if event["key"] == key]
        new = [event for event in [*batch, *derived] if event["key"] == key]
        last = decider(source, [*known, *new])
        if any(last is event for event in known):
            continue  # no change is left, whatever was seen in between
        new = [event for event in new if not event["backfill"] or event is last]
        now = decider(source, known)
        for event in _in_turn(source, [*known, *new], new):
            known.append(event)
            then = decider(source, known)
            is_new = any(then is one for one in new)  # not one that comes back
            if is_new and then is not now and (now is None or not _same(source, then, now)):
                found.setdefault(key, []).append(None if then["deletion"] else then["payload"])
            now = then
    return found


def _in_turn(source: str, everything: list[Event], new: list[Event]) -> list[Event]:
    last: dict[str, Event] = {}
    for event in everything:
        if not event["backfill"]:
            log = place(source, event)[0]
            last[log] = max(last.get(log, event), event, key=lambda one: order(source, one))

    def by(event: Event) -> tuple:
        if event["backfill"]:
            return 1, 0, "", backfill_order(event)
        log = place(source, event)[0]
        return 0, last[log]["source_timestamp"], log, order(source, event)

    return sorted(new, key=by)


def _same(source: str, one: Event, other: Event) -> bool:
    """Whether an event is a copy of another one, perhaps read again."""
    if one["backfill"] or other["backfill"]:
        return False
    if place(source, one) != place(source, other) or one["deletion"] != other["deletion"]:
        return False
    return one["payload"] == other["payload"]


def shown(states: States, *, is_there: bool) -> States:
    """Without deletions of what is not there."""
    found = []
    for state in states:
        if state is not None or is_there:
            found.append(state)
        is_there = state is not None
    return found


def fits(found: States, wanted: States, *, is_exact: bool) -> bool:
    """Whether changes are those that are wanted, or at least some of them and the last one."""
    rest = iter(wanted)
    in_order = all(state in rest for state in found)
    return found == wanted if is_exact else in_order and found[-1:] == wanted[-1:]


@pytest.mark.parametrize("source", SOURCES)
@settings(max_examples=tries(40, quick=12, long=3_000), deadline=None)
@given(data=st.data())
def test_every_change_is_what_each_event_makes_in_its_turn(
    source: str, data: st.DataObject
) -> None:
    _events, batches = data.draw(arrivals(source))
    consumer, before = Watched(source), list[Event]()
    for batch in batches:
        table = dict(consumer.table)
        consumer.apply(batch)
        changes = consumer.changes
        Consumer.apply(consumer, batch)
        expected = states(source, before, batch)
        before += batch
        for key in changes.keys() | expected.keys():
            wanted = shown(expected.get(key, []), is_there=key in table)
            logs = {
                place(source, event)[0]
                for event in before
                if event["key"] in {key, None} and not event["backfill"]
            }
            is_exact = len(logs) == 1  # in several, whose order are times, these may go back
            if key in changes:
                found = shown(changes[key], is_there=key in table)
                assert fits(found, wanted, is_exact=is_exact), (found, wanted)
            else:
                assert len(wanted) < 2 or not is_exact


def test_a_late_change_before_a_deletion_that_has_found_its_key_leaves_no_trace() -> None:
    """The deletion is derived again when the late change comes; it comes after it."""

    def event(key: int | None, row_id: str, ssn: int) -> Event:
        facts = {"key": key, "payload": 0, "backfill": False, "deletion": key is None, "uuid": None}
        times = {"source_timestamp": 0, "read_timestamp": 0}
        return facts | times | {"tx_id": "t", "row_id": row_id, "rs_id": "0x2.2.2", "ssn": ssn}

    deletion = event(None, "AAB", 99)
    consumer = Watched("oracle-strict")
    for batch, changes in [
        ([event(3, "AAB", 2), deletion], {3: [0, None]}),
        ([event(3, "AAA", 9)], {}),
        ([event(3, "AAC", 8), deletion], {}),
    ]:
        consumer.apply(batch)
        assert consumer.changes == changes
        Consumer.apply(consumer, batch)
        assert consumer.table == {}
