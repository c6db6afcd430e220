"""Values that no event can hold, and that have passed the source as texts.

Infinite intervals, which PostgreSQL has from version 17 on; within arrays infinite dates and
moments, and those outside the years 1 to 9999.

They are treated as the source treats infinite dates, by the same setting. A landing zone needs
none of it: there an interval, and an array, is a text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.errors import BadValue
from mirrorlake.events.types import UnifiedKind, UnifiedType

Infinite = Literal["clamp", "null", "error"]
"""What becomes of such a value: the nearest one of an event, NULL, or the table stops."""

_LATEST, _EARLIEST = "infinity", "-infinity"
_LONGEST = "P2147483647MT2147483647H9223372036854.775807S"
_LOWEST = "P-2147483648MT-2147483648H-9223372036854.775808S"
"""The greatest and the least numbers of months, hours and microseconds, as PostgreSQL itself
keeps its infinities."""
_FIRST_DAY, _LAST_DAY = "0001-01-01", "9999-12-31"
_FIRST, _LAST = f"{_FIRST_DAY} 00:00:00", f"{_LAST_DAY} 23:59:59.999999"
_BOUNDS: Mapping[UnifiedKind, tuple[str, str]] = {
    UnifiedKind.INTERVAL: (_LOWEST, _LONGEST),
    UnifiedKind.DATE: (_FIRST_DAY, _LAST_DAY),
    UnifiedKind.TIMESTAMP: (_FIRST, _LAST),
    UnifiedKind.TIMESTAMP_WITH_TIME_ZONE: (f"{_FIRST}+00", f"{_LAST}+00"),
}
"""The least and the greatest value of an event."""
_ODD = r"^(-?infinity|\d{5,}-\d\d-\d\d( [0-9:.+-]+)?|\d{4,}-\d\d-\d\d( [0-9:.+-]+)? BC)$"
"""Infinities, and days and moments outside the years 1 to 9999."""


def _unnoted(table: str, column: str, count: int) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True)
class Infinities:
    """How such values are treated. noted: told of a table, a column of it, and how many of its
    values were replaced."""

    dates: Infinite = "clamp"
    noted: Callable[[str, str, int], None] = _unnoted

    def replaced(
        self, texts: pa.Array, kind: UnifiedType, *, table: str, column: str, is_key: bool
    ) -> pa.Array:
        """The values of a column, or the elements of its arrays, without those that no event can
        hold. is_key: rows are found by it. Raises BadValue if the settings do not allow that, or in
        a key where such a value would be NULL, or one that is no infinity another one."""
        is_infinite = pc.is_in(texts, value_set=pa.array([_LATEST, _EARLIEST]))
        is_odd = pc.fill_null(pc.match_substring_regex(texts, _ODD), False)
        count = pc.sum(is_odd, min_count=0).as_py()
        if not count:
            return texts
        odd = texts.filter(is_odd)
        finite = texts.filter(pc.and_(is_odd, pc.invert(is_infinite)))
        is_lost = is_key and (len(finite) or self.dates == "null")
        if self.dates == "error" or is_lost:
            example = (finite if len(finite) else odd)[0].as_py()
            raise _refused(
                f"{example!r} is no {kind} of an event",
                table,
                column,
                is_key=is_key,
                is_finite=bool(len(finite)),
            )
        self.noted(table, column, count)
        if self.dates == "null":
            return pc.if_else(is_odd, None, texts)
        least, greatest = _BOUNDS[kind.kind]
        is_early = pc.or_(pc.starts_with(texts, "-"), pc.ends_with(texts, " BC"))
        return pc.if_else(is_odd, pc.if_else(is_early, least, greatest), texts)


CLAMPED = Infinities()


def _refused(what: str, table: str, column: str, *, is_key: bool, is_finite: bool) -> BadValue:
    if is_key:
        what = f"{what}, and the rows of the table are found by the column"
    hint = f"Set source.extremes.dates to {'clamp' if is_key else 'clamp or null'}."
    if is_key and is_finite:
        hint = f"Change the value in the source and run `mirrorlake reset {table}`."
    return BadValue(what, table=table, column=column, hint=hint)
