"""The history of streams for the plots, and how it is drawn."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.app.status.amounts import p50_p99
from mirrorlake.app.status.mirror_status import Status
from mirrorlake.app.status.table_status import TableStatus
from mirrorlake.app.streams.supervisor import Work
from mirrorlake.control.names import ResourceName
from mirrorlake.model.applied import Totals
from mirrorlake.model.state import TableState
from mirrorlake.server.pages.drawing import HEIGHT, WIDTH, Series, nice, plot
from mirrorlake.server.pages.history import (
    POINT_SECONDS,
    POINTS,
    Histories,
    StreamHistory,
    clock_of,
)

START = 1_800_000_000.0
NAME = ResourceName.parse("projects/p/locations/l/streams/shop")


def table(
    rows: int, now: float, late: float | None = 1.0, state: TableState = TableState.REPLICATING
) -> TableStatus:
    """A table that was committed just now, `late` seconds after its source."""
    synced = datetime.fromtimestamp(now, UTC)
    return TableStatus(
        table="s.t",
        state=state,
        path="Tables/s/t",
        version=1,
        last_file=1,
        pending_files=0,
        position=None,
        total=Totals(insert=rows),
        lag_seconds=0.0,
        error=None,
        synced=synced,
        source_time=None if late is None else synced - timedelta(seconds=late),
    )


def status(*tables: TableStatus) -> Status:
    return Status("shop", "capture", "apply", list(tables))


def test_the_first_look_counts_nothing_and_later_ones_what_is_new() -> None:
    history = StreamHistory(START)
    assert history.rate(START) is None
    history.observe(status(table(1_000_000, START)), START)
    assert history.rate(START) == 0.0
    assert history.freshness(START) is None
    for second in (10, 20):
        now = START + second
        history.observe(status(table(1_000_000 + 6 * second, now, late=second / 10)), now)
    assert history.rate(START + 20) == 6.0
    assert history.freshness(START + 20) == (2.0, 2.0)
    assert history.rate(START + 90) == 0.0
    assert history.freshness(START + 90) is None


def test_a_load_and_an_unknown_time_have_no_freshness() -> None:
    history = StreamHistory(START)
    history.observe(status(), START)
    history.observe(status(table(5, START + 1, state=TableState.SNAPSHOTTING)), START + 1)
    history.observe(status(table(6, START + 2, late=None)), START + 2)
    assert history.freshness(START + 2) is None
    assert [point.rows for point in history.points()] == [6]


def test_a_table_that_begins_anew_takes_nothing_away() -> None:
    history = StreamHistory(START)
    history.observe(status(table(100, START)), START)
    history.observe(status(table(7, START + 1)), START + 1)
    history.observe(status(table(9, START + 2)), START + 2)
    assert history.points()[-1].rows == 2


@given(st.lists(st.tuples(st.floats(0, 900), st.integers(0, 1_000)), max_size=60))
def test_every_change_is_in_one_minute_and_the_minutes_are_bounded(
    looks: list[tuple[float, int]],
) -> None:
    history, now, rows = StreamHistory(START), START, 0
    history.observe(status(table(0, now)), now)
    told = 0
    for pause, more in looks:
        end = now + pause
        while now + 1 < end and end - now > POINT_SECONDS:
            now += POINT_SECONDS
            history.observe(None, now)
        now, rows = end, rows + more
        history.observe(status(table(rows, now)), now)
        told += more
    points = history.points()
    assert len(points) <= POINTS + 1
    assert [point.begun for point in points] == sorted({point.begun for point in points})
    if len(points) <= POINTS:
        assert sum(point.rows for point in points) == told


def test_hours_without_a_change_take_no_more_room() -> None:
    history = StreamHistory(START)
    history.observe(status(), START)
    for minute in range(2 * POINTS):
        history.observe(None, START + minute * POINT_SECONDS)
    assert len(history.points()) == POINTS + 1


def test_the_history_of_a_stream_that_is_gone_is_forgotten() -> None:
    histories = Histories()
    histories.observe([Work(NAME)], START)
    assert histories.of(str(NAME)) is not None
    histories.observe([], START + 1)
    assert histories.of(str(NAME)) is None


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
