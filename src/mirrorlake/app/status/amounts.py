"""Amounts as people read them: sizes, durations, percentiles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def duration(seconds: float) -> str:
    whole = max(round(seconds), 0)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def size(count: int) -> str:
    value = float(max(count, 0))
    units: Sequence[str] = ("B", "KiB", "MiB", "GiB", "TiB")
    for unit in units:
        if value < 1024 or unit == units[-1]:
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def p50_p99(found: Iterable[float | None]) -> tuple[float, float] | None:
    """The two percentiles of what is known; None when nothing is."""
    known = sorted(one for one in found if one is not None)
    if not known:
        return None
    return known[len(known) // 2], known[min(int(len(known) * 0.99), len(known) - 1)]
