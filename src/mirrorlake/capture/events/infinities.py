"""Infinite intervals, which PostgreSQL has from version 17 on and no event can hold.

They are treated as the source treats infinite dates, by the same setting. A landing zone needs
none of it: there an interval is a text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.errors import BadValue

Infinite = Literal["clamp", "null", "error"]
"""What becomes of an infinite interval: the longest one of an event, NULL, or the table stops."""

_LATEST, _EARLIEST = "infinity", "-infinity"
_LONGEST = "P2147483647MT2147483647H9223372036854.775807S"
_LOWEST = "P-2147483648MT-2147483648H-9223372036854.775808S"
"""The greatest and the least numbers of months, hours and microseconds, as PostgreSQL itself
keeps its infinities."""


def _unnoted(table: str, column: str, count: int) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True)
class Infinities:
    """How infinite intervals are treated. noted: told of a table, a column of it, and how many of
    its values were replaced."""

    dates: Infinite = "clamp"
    noted: Callable[[str, str, int], None] = _unnoted

    def replaced(self, texts: pa.Array, *, table: str, column: str, is_key: bool) -> pa.Array:
        """The intervals of a column without infinite ones. is_key: rows are found by it. Raises
        BadValue if the settings do not allow that, or in a key where an infinity would be NULL."""
        is_latest, is_earliest = pc.equal(texts, _LATEST), pc.equal(texts, _EARLIEST)
        is_odd = pc.or_(is_latest, is_earliest)
        count = pc.sum(is_odd, min_count=0).as_py()
        if not count:
            return texts
        if self.dates == "error" or (is_key and self.dates == "null"):
            example = next(text for text in (_LATEST, _EARLIEST) if text in texts.to_pylist())
            raise _refused(f"{example!r} is no INTERVAL of an event", table, column, is_key=is_key)
        self.noted(table, column, count)
        if self.dates == "null":
            return pc.if_else(is_odd, None, texts)
        return pc.if_else(is_latest, _LONGEST, pc.if_else(is_earliest, _LOWEST, texts))


CLAMPED = Infinities()


def _refused(what: str, table: str, column: str, *, is_key: bool) -> BadValue:
    if is_key:
        what = f"{what}, and the rows of the table are found by the column"
    hint = f"Set source.extremes.dates to {'clamp' if is_key else 'clamp or null'}."
    return BadValue(what, table=table, column=column, hint=hint)
