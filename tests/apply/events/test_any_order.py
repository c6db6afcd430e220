"""Any permutation and duplication of events, cut into any batches, makes the same table."""

from __future__ import annotations

from collections.abc import Iterator, Set
from itertools import count, islice
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlake.model.crash_points import CrashPoint
from tests.apply.events.drawn_runs import CASES, POINTS, Run, Seen, play, runs, shrunk
from tests.mirror.event_order.drawn import SOURCES
from tests.profiles import LONG, tries

WANTED = tries(100, quick=100, long=10_000)
"""Cases of each source in which a process dies while some of their events wait in a file."""
WANTED_OF_ALL = tries(100, quick=20, long=10_000)
"""The same of tables that keep every event."""


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
@pytest.mark.clause("ST-248", "ST-249", "ST-256", "ST-262")
@pytest.mark.parametrize("source", SOURCES)
def test_any_files_in_any_order_with_crashes_make_the_same_tables(source: str) -> None:
    _play_until(WANTED, runs(source), {*POINTS})


@pytest.mark.clause("ST-234", "ST-239", "ST-251", "ST-262")
@pytest.mark.parametrize("source", SOURCES)
def test_any_files_in_any_order_with_crashes_keep_every_event_once(source: str) -> None:
    """In a table without key, or with mode `append`."""
    points = {*POINTS} if WANTED_OF_ALL == WANTED else set[CrashPoint]()
    _play_until(WANTED_OF_ALL, runs(source, keeps_all=True), points)


def _play_until(wanted: int, drawn: st.SearchStrategy[Run], points: Set[CrashPoint]) -> None:
    """Play runs until so many cases have seen a process die, and some have at each point."""
    seen = Seen()

    @settings(deadline=None, database=None)
    @given(run=drawn)
    def played(run: Run) -> None:
        try:
            play(run, seen)
        except AssertionError as error:
            raise AssertionError(f"wrong tables: {shrunk(run, _is_wrong)}") from error

    # From bytes of our own: by itself, hypothesis repeats most cases of an example in the next.
    for number in islice(_numbers(), 10 * max(wanted, WANTED) // CASES):
        played.hypothesis.fuzz_one_input(Random(number).randbytes(1 << 15))
        if len(seen.crashed) >= wanted and seen.died.keys() >= points:
            return
    pytest.fail(f"{len(seen.crashed)} cases, {seen.died}")
