"""The geometry of the drawings: the data flow, and plots over time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

WIDTH, HEIGHT = 720.0, 180.0
LEFT, RIGHT, TOP, BOTTOM = 64.0, 8.0, 10.0, 24.0
LEAST_SECONDS = 600.0
"""A plot shows at least so much time."""
_TIMES = 6


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on an axis, in the units of the drawing."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Line:
    """One series: lines, each as the points of an SVG polyline, interrupted where nothing is known;
    dots: values that stand alone."""

    name: str
    lines: Sequence[str]
    dots: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot that only has to be written down. summary: the same in a sentence."""

    title: str
    unit: str
    series: Sequence[Line]
    across: Sequence[Tick]
    up: Sequence[Tick]
    summary: str
    width: float = WIDTH
    height: float = HEIGHT
    left: float = LEFT
    right: float = WIDTH - RIGHT
    top: float = TOP
    bottom: float = HEIGHT - BOTTOM


@dataclass(frozen=True, slots=True)
class Series:
    """Values by time, None where nothing is known."""

    name: str
    values: Sequence[tuple[float, float | None]] = field(default_factory=tuple)


def plot(title: str, unit: str, series: Sequence[Series], clock: Callable[[float], str]) -> Plot:
    """Draw series of one unit. clock: writes a time of the axis down."""
    times = [time for one in series for time, _ in one.values]
    known = [value for one in series for _, value in one.values if value is not None]
    last = max(times, default=0.0)
    first = min(min(times, default=0.0), last - LEAST_SECONDS)
    highest = nice(max(known, default=0.0))

    def x(time: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * (time - first) / (last - first), 1)

    def y(value: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / highest, 1)

    drawn = []
    for one in series:
        runs: list[list[tuple[float, float]]] = [[]]
        for time, value in one.values:
            if value is None:
                runs.append([])
            else:
                runs[-1].append((x(time), y(value)))
        lines = [" ".join(f"{a},{b}" for a, b in run) for run in runs if len(run) > 1]
        drawn.append(Line(one.name, lines, [run[0] for run in runs if len(run) == 1]))
    steps = [first + (last - first) * n / _TIMES for n in range(_TIMES + 1)]
    across = [Tick(x(step), clock(step)) for step in steps] if times else []
    up = [Tick(y(highest * n / 2), f"{highest * n / 2:,.6g}") for n in range(3)]
    return Plot(title, unit, drawn, across, up, _summary(title, unit, series))


def nice(highest: float) -> float:
    """The end of an axis that is not below a value: 1, 2 or 5 times a power of ten."""
    if not highest > 0 or not math.isfinite(highest):
        return 1.0
    power = 10.0 ** math.floor(math.log10(highest))
    return next(step * power for step in (1.0, 2.0, 5.0, 10.0) if step * power >= highest)


def _summary(title: str, unit: str, series: Sequence[Series]) -> str:
    summaries = []
    for one in series:
        known = [value for _, value in one.values if value is not None]
        if known:
            summaries.append(f"{one.name}: last {known[-1]:,.3g} {unit}, highest {max(known):,.3g}")
    return f"{title}. {'; '.join(summaries) or 'Nothing was seen yet'}."


def clock_of(moment: float) -> str:
    """Hours and minutes, in UTC."""
    return f"{datetime.fromtimestamp(moment, UTC):%H:%M}"
