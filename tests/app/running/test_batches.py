"""The history of streams for the plots, and how it is drawn."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.app.running.batches import POINT_SECONDS, POINTS, AppliedBatch, ServiceBatches
from mirrorlake.app.status.amounts import p50_p99
from mirrorlake.server.pages.drawing import HEIGHT, WIDTH, Series, clock_of, nice, plot

START = 1_800_000_000.0
NAME = "projects/p/locations/l/streams/shop"


class Told:
    """Batches of one stream, by a clock that a test turns."""

    def __init__(self) -> None:
        self.now = START
        self.batches = ServiceBatches(lambda: self.now)
        self.batches.follow({NAME})

    def note(self, rows: int, late: float | None = 1.0) -> None:
        self.batches.note(AppliedBatch(NAME, "s.t", rows, late, late))


def test_rate_and_freshness_are_of_the_last_minute() -> None:
    told = Told()
    assert told.batches.rate(NAME) == 0.0
    assert told.batches.freshness(NAME) is None
    for second in (10, 20):
        told.now = START + second
        told.note(60, late=second / 10)
    assert told.batches.rate(NAME) == 6.0
    assert told.batches.freshness(NAME) == (2.0, 2.0)
    told.now = START + 90
    assert told.batches.rate(NAME) == 0.0
    assert told.batches.freshness(NAME) is None


def test_a_load_counts_and_has_no_freshness() -> None:
    told = Told()
    told.note(6, late=None)
    assert told.batches.freshness(NAME) is None
    assert [point.rows for point in told.batches.points(NAME)] == [6]


@given(st.lists(st.tuples(st.floats(0, 900), st.integers(0, 1_000)), max_size=60))
def test_every_change_is_in_one_minute_and_the_minutes_are_bounded(
    noted: list[tuple[float, int]],
) -> None:
    told, total = Told(), 0
    for pause, rows in noted:
        told.now += pause
        told.note(rows)
        total += rows
    points = told.batches.points(NAME)
    assert len(points) <= POINTS + 1
    begun = [point.begun for point in points]
    assert begun == [begun[0] + n * POINT_SECONDS for n in range(len(begun))]
    assert begun[-1] <= told.now < begun[-1] + POINT_SECONDS
    if len(points) <= POINTS:
        assert sum(point.rows for point in points) == total


@pytest.mark.parametrize("minutes", [2 * POINTS, 10**9, -(10**6)])
def test_no_turn_of_the_clock_takes_more_room(minutes: int) -> None:
    told = Told()
    told.note(1)
    told.now += minutes * POINT_SECONDS
    told.note(2)
    assert len(told.batches.points(NAME)) == (POINTS + 1 if minutes > 0 else 1)
    assert told.batches.points(NAME)[-1].rows == (2 if minutes > 0 else 3)


def test_a_stream_that_is_not_applied_here_is_unknown() -> None:
    told = Told()
    told.note(1)
    told.batches.keep(set())
    told.note(1)  # it came late
    assert told.batches.rate(NAME) is told.batches.freshness(NAME) is None
    assert told.batches.points(NAME) == []


@given(st.lists(st.floats(0, 1e9) | st.none(), max_size=40))
def test_percentiles_are_of_what_is_known(found: list[float | None]) -> None:
    known = sorted(one for one in found if one is not None)
    told = p50_p99(found)
    assert (told is None) == (not known)
    if told is not None:
        assert known[0] <= told[0] <= told[1] <= known[-1]


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_the_end_of_an_axis_is_not_below_its_values(highest: float) -> None:
    end = nice(highest)
    assert end > 0
    if 0 < highest < 1e300:
        assert end >= highest


@given(
    st.lists(
        st.tuples(st.integers(0, 30_000), st.floats(0, 1e12) | st.none()),
        unique_by=lambda one: one[0],
        max_size=50,
    )
)
def test_a_plot_stays_within_its_drawing(found: list[tuple[int, float | None]]) -> None:
    values = [(START + time, value) for time, value in sorted(found)]
    drawn = plot("Throughput", "changes", [Series("applied", values)], clock_of)
    (line,) = drawn.series
    ends = [tuple(map(float, one.split(","))) for run in line.lines for one in run.split()]
    assert len(ends) + len(line.dots) == sum(value is not None for _, value in values)
    for x, y in [*ends, *line.dots]:
        assert 0 <= x <= WIDTH
        assert 0 <= y <= HEIGHT
    assert all(re.fullmatch(r"\d\d:\d\d", tick.label) for tick in drawn.across)
    assert drawn.summary.startswith("Throughput. ")
