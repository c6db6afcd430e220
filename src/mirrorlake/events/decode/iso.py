"""Parses times as text, in every form that was observed (ST-027, ST-376), one column at a time."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_ZONE = r"(?P<zone>[Zz]|[+-][0-9]{2}(?::?[0-9]{2})?(?::[0-9]{2})?)?"
_CLOCK = (
    r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:\.(?P<part>[0-9]{1,9}))?)?"
)
_MOMENT = rf"^(?P<date>[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})(?:[T ]{_CLOCK})? ?{_ZONE}$"
_TIME = rf"^{_CLOCK} ?{_ZONE}$"
_FORMS = [re.compile(form) for form in (_MOMENT, _TIME)]

_PLACES = 6
"""Decimal places of a second in microseconds."""


@dataclass(frozen=True, slots=True)
class Moments:
    """Parsed times.

    micros: int64 since the epoch, in local time as written.
    offset: int64, the seconds by which local time is ahead of UTC, 0 without a zone.
    is_cut: bool, whether the time has a part of a microsecond, which `micros` has not.

    All are NULL for what is not a time.
    """

    micros: pa.Array
    offset: pa.Array
    is_cut: pa.Array

    @property
    def instant(self) -> pa.Array:
        """Microseconds in UTC."""
        return pc.subtract_checked(self.micros, pc.multiply(self.offset, 1_000_000))


def moments(texts: pa.Array) -> Moments:
    """Parse dates with an optional time and zone. Raises pa.ArrowInvalid for a day that does not
    exist."""
    found = pc.extract_regex(texts, _MOMENT)
    days = pc.struct_field(found, "date").cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
    micros = pc.add(pc.multiply(days, 86_400_000_000), _clock(found))
    return Moments(micros, _offset(found), _is_cut(found))


def times(texts: pa.Array) -> Moments:
    """Parse times of day, up to 24:00:00."""
    found = pc.extract_regex(texts, _TIME)
    return Moments(_clock(found), _offset(found), _is_cut(found))


def milliseconds(texts: pa.Array) -> pa.Array:
    """int64 since the epoch, from times and from milliseconds as text; NULL for anything else."""
    digits = pc.match_substring_regex(texts, "^-?[0-9]{1,18}$")
    counted = pc.if_else(digits, texts, None).cast(pa.int64())
    parsed = moments(pc.if_else(digits, None, texts)).instant
    return pc.coalesce(counted, _floored(parsed))


def flaw(text: str, *, has_zone: bool) -> str:
    """Why a text in the form of a time is none, as far as that is not obvious; "" otherwise.
    has_zone: whether times of the type have an offset, or are moments in UTC."""
    found = next((one for form in _FORMS if (one := form.match(text))), None)
    if found is None:
        return ""
    if (found["part"] or "")[_PLACES:].strip("0"):
        return "it has a part of a microsecond"
    if not has_zone and (found["zone"] or "").strip("Zz+-:0"):
        return "it has an offset from UTC"
    return ""


def _floored(micros: pa.Array) -> pa.Array:
    mask = micros.is_null().to_numpy(zero_copy_only=False)
    numbers = pc.fill_null(micros, 0).to_numpy(zero_copy_only=False)
    return pa.array(np.floor_divide(numbers, 1000), pa.int64(), mask=mask)


def _clock(found: pa.StructArray) -> pa.Array:
    """Microseconds of the day. Raises pa.ArrowInvalid for a time that does not exist."""
    hour, minute, second = (_number(found, name) for name in ("hour", "minute", "second"))
    part = pc.utf8_slice_codeunits(pc.utf8_rpad(pc.struct_field(found, "part"), 6, "0"), 0, 6).cast(
        pa.int64()
    )
    seconds = pc.add(pc.add(pc.multiply(hour, 3600), pc.multiply(minute, 60)), second)
    wrong = pc.or_(pc.greater(minute, 59), pc.or_(pc.greater(second, 60), pc.greater(hour, 24)))
    micros = pc.add(pc.multiply(seconds, 1_000_000), part)
    # Second 60 is that of a leap second: as in PostgreSQL, the first one of the next minute.
    beyond = pc.and_(pc.equal(hour, 24), pc.greater(micros, 86_400_000_000))
    if pc.any(pc.or_(wrong, beyond)).as_py():
        raise pa.ArrowInvalid("a time of day that no day has")
    return micros


def _is_cut(found: pa.StructArray) -> pa.Array:
    part = pc.struct_field(found, "part")
    length = pc.binary_length(part)
    if (pc.max(length).as_py() or 0) <= _PLACES:
        return pc.greater(length, _PLACES)
    return pc.match_substring_regex(part, f"^[0-9]{{{_PLACES}}}[0-9]*[1-9]")


def _offset(found: pa.StructArray) -> pa.Array:
    """Seconds. Raises pa.ArrowInvalid for an offset that no zone has."""
    zone = pc.replace_substring(pc.struct_field(found, "zone"), ":", "")
    plain = pc.if_else(pc.match_substring_regex(zone, "^[+-]"), zone, "+000000")
    digits = pc.utf8_rpad(plain, 7, "0")
    parts = [pc.utf8_slice_codeunits(digits, at, at + 2).cast(pa.int64()) for at in (1, 3, 5)]
    limits = zip(parts, (23, 59, 59), strict=True)
    if any(pc.any(pc.greater(part, most)).as_py() for part, most in limits):
        raise pa.ArrowInvalid("an offset of a day or more, or of more than 59 minutes or seconds")
    seconds = pc.add(pc.add(pc.multiply(parts[0], 3600), pc.multiply(parts[1], 60)), parts[2])
    return pc.if_else(pc.starts_with(digits, "-"), pc.negate(seconds), seconds)


def _number(found: pa.StructArray, name: str) -> pa.Array:
    text = pc.struct_field(found, name)
    return pc.if_else(pc.equal(text, ""), "0", text).cast(pa.int64())
