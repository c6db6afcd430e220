"""Which changes a truncation deletes (ST-256)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlake.mirror.event_order import ORDER, RULES, is_truncated, last_truncations
from tests.mirror.event_order.drawn import SOURCES, event
from tests.mirror.event_order.model import order, place, rows_of
from tests.profiles import tries


@pytest.mark.clause("ST-212", "ST-214", "ST-256")
@pytest.mark.parametrize("source", SOURCES)
@settings(max_examples=tries(100, long=10_000))
@given(data=st.data())
def test_a_truncation_deletes_what_is_not_later_in_the_whole_order(
    source: str, data: st.DataObject
) -> None:
    """Also of the changes at its position."""
    events = data.draw(st.lists(event(source), min_size=1, max_size=6))
    drawn = data.draw(st.lists(event(source), min_size=1, max_size=3))
    like = st.sampled_from([one for one in events if not one["backfill"]] or drawn)
    drawn += data.draw(st.lists(like, max_size=2))
    truncations = [
        one | {"backfill": False, "deletion": True, "content": data.draw(st.integers(0, 30))}
        for one in drawn
    ]
    rule = RULES[source]
    last = last_truncations(rule, rows_of(source, truncations).select(ORDER.names))
    found = is_truncated(rule, rows_of(source, events), last).tolist()
    expected = []
    for one in events:
        log = [each for each in truncations if place(source, each)[0] == place(source, one)[0]]
        newest = max((order(source, each) for each in log), default=None)
        is_older = newest is not None and order(source, one) <= newest
        expected.append(is_older and not one["backfill"])
    assert found == expected
