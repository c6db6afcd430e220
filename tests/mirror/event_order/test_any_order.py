"""Any permutation and any duplication of events, cut into any batches: one table, one state."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.mirror.event_order.drawn import SOURCES, arrivals, many
from tests.mirror.event_order.model import Consumer, table_of
from tests.profiles import tries


@pytest.mark.clause("ST-216", "ST-217", "ST-219", "ST-229", "ST-233", "ST-248", "ST-249")
@pytest.mark.parametrize("source", SOURCES)
@settings(max_examples=tries(100, long=10_000))
@given(data=st.data())
def test_any_order_of_arrival_gives_the_same_result(source: str, data: st.DataObject) -> None:
    events, batches = data.draw(arrivals(source))
    at_once, one_by_one = Consumer(source), Consumer(source)
    at_once.apply(events)
    for batch in batches:
        one_by_one.apply(batch)
    assert at_once.table == table_of(source, events)
    assert one_by_one.table == at_once.table
    assert one_by_one.state == at_once.state


@pytest.mark.clause("ST-219")
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("seed", range(tries(2, long=100)))
def test_events_of_many_keys_at_once_give_the_same(source: str, seed: int) -> None:
    events = many(source, seed, 100)
    random = Random(seed)
    arriving = events + random.choices(events, k=len(events) // 2)
    random.shuffle(arriving)
    consumer = Consumer(source)
    while arriving:
        count = random.choice([1, 7, 50, 400])
        consumer.apply(arriving[:count])
        arriving = arriving[count:]
    assert consumer.table == table_of(source, events)
