"""Any permutation and duplication of events, cut into any batches, makes the same table."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.apply.events.drawn_runs import CASES, POINTS, Run, Seen, play, runs, shrunk
from tests.apply.events.killed_tables import rows_after
from tests.mirror.event_order.drawn import SOURCES, arrivals
from tests.profiles import LONG, tries

WANTED = tries(100, quick=100, long=10_000)
"""Cases of each source in which a process dies while some of their events wait in a file."""


def _numbers() -> Iterator[int]:
    """The long run looks for new cases each time."""
    return count(Random().randrange(1 << 40) if LONG else 0)


def _is_wrong(run: Run) -> bool:
    try:
        play(run, Seen())
    except AssertionError:
        return True
    return False


@pytest.mark.clause("ST-011", "ST-180", "ST-181", "ST-184", "ST-219", "ST-223", "ST-232", "ST-233")
@pytest.mark.clause("ST-248", "ST-249", "ST-256")
@pytest.mark.parametrize("source", SOURCES)
def test_any_files_in_any_order_with_crashes_make_the_same_tables(source: str) -> None:
    seen = Seen()

    @settings(deadline=None, database=None)
    @given(run=runs(source))
    def played(run: Run) -> None:
        try:
            play(run, seen)
        except AssertionError as error:
            raise AssertionError(f"wrong tables: {shrunk(run, _is_wrong)}") from error

    # From bytes of our own: by itself, hypothesis repeats most cases of an example in the next.
    for number in islice(_numbers(), 10 * WANTED // CASES):
        played.hypothesis.fuzz_one_input(Random(number).randbytes(1 << 15))
        if len(seen.crashed) >= WANTED and seen.died.keys() == {*POINTS}:
            return
    pytest.fail(f"{len(seen.crashed)} cases, {seen.died}")


@pytest.mark.clause("ST-234", "ST-239", "ST-251")
@pytest.mark.parametrize("source", SOURCES)
@settings(max_examples=tries(12, long=1_000), deadline=None)
@given(data=st.data())
def test_any_order_with_crashes_keeps_every_event_once(source: str, data: st.DataObject) -> None:
    """In a table without key, or with mode `append`."""
    events, batches = data.draw(arrivals(source))
    for number, event in enumerate(events):
        event["uuid"] = f"u{number}"
    key, is_append = data.draw(st.sampled_from([("id",), ()])), data.draw(st.booleans())
    rows = rows_after(data, source, batches, key, is_append=is_append or bool(key))
    found = {
        row["datastream_metadata"]["UUID"]: (
            None if row.get("id") is None else int(row["id"]),
            row["v"],
        )
        for row in rows
    }
    assert len(found) == len(rows)
    if key and all(one["key"] is None for one in events):
        assert not found  # a table begins when the type of its key is known
        return
    assert found == {one["uuid"]: (one["key"], one["payload"]) for one in events}
