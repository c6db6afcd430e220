"""From the texts of a column to values of its declared type (LZ-175 to LZ-187, LZ-207, LZ-208).

Each conversion takes a whole column. Arrow's own conversion is used if it accepts exactly what the
specification defines; other texts are found, or normalized, first.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.landing.text.binary import octets
from mirrorlake.landing.text.format import DECIMAL, DeclaredColumn
from mirrorlake.model.arrow import PLAIN, arrow_type, decimals, first_failing

_CLAUSES = {
    "Double": "LZ-175",
    "Single": "LZ-176",
    "Int16": "LZ-177",
    "Int32": "LZ-178",
    "Int64": "LZ-179",
    "DateTime": "LZ-207",
    "IDate": "LZ-181",
    "ITime": "LZ-183",
    "Boolean": "LZ-185",
    "ByteArray": "LZ-186",
    "Decimal": "LZ-187",
}


class Unconvertible(Exception):
    """A text is not a value of the type. index: its position in the column."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


def convert(values: pa.Array, column: DeclaredColumn) -> pa.Array:
    """Texts, or NULL, as values of the column's type in the table. Raises Unconvertible."""
    target = arrow_type(column.data_type)
    change = _CHANGES.get(column.type, _decimal)
    if column.type == "String" or not len(values):
        return values.cast(target)
    try:
        return change(values, target)
    except (pa.ArrowException, ValueError):
        raise Unconvertible(first_failing(values, lambda part: change(part, target))) from None


def expectation(column: DeclaredColumn) -> str:
    """The expected form of a text of the column, for an error."""
    kind = column.type
    if kind == DECIMAL:
        kind = f"{DECIMAL}({column.precision},{column.scale})"
    return f"not a value of type {kind} ({_CLAUSES[column.type]})"


# -- numbers --------------------------------------------------------------------------------------


def _integer(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Digits with an optional sign; Arrow alone accepts 0x10, and rejects a plus sign."""
    if _bytes_except(values, b"0123456789-"):
        values = _matching(values, r"^[+-]?[0-9]+$")
        values = pc.utf8_ltrim(values, "+")
    return values.cast(target)


def _floating(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Digits with sign, point and exponent, NaN, Infinity; a finite number that becomes infinite
    is an error."""
    if _bytes_except(values, b"0123456789-."):
        values = _matching(values, _FLOAT)
        values = pc.utf8_ltrim(values, "+")
    numbers = values.cast(target)
    infinite = pc.is_inf(numbers)
    if (
        pc.any(infinite).as_py()
        and not pc.all(_matches(values.filter(infinite), "(?i)inf")).as_py()
    ):
        raise ValueError
    return numbers


_FLOAT = r"^[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|(?i:nan|inf|infinity))$"


def _decimal(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Digits with sign and point; more decimal places than the scale are an error, unless they
    are 0."""
    if _bytes_except(values, b"0123456789-."):
        return decimals(
            _matching(values, r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"), target
        )
    if (pc.max(pc.binary_length(values)).as_py() or 0) > PLAIN:
        return decimals(values, target)
    return values.cast(target)


def _boolean(values: pa.Array, _target: pa.DataType) -> pa.Array:
    known = pa.array(["true", "1", "false", "0"])
    indexes = pc.index_in(pc.ascii_lower(values), value_set=known)
    if indexes.null_count != values.null_count:
        raise ValueError
    return pc.less(indexes, 2)


# -- dates and times ------------------------------------------------------------------------------

_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_ZONE = r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)"
_TIME = r"([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]+)?)?"
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # of the years 1 and 9999, from 1970
_FIRST_MOMENT, _LAST_MOMENT = (_FIRST_DAY * 86_400_000_000, (_LAST_DAY + 1) * 86_400_000_000 - 1)
_ZONED = rf":[0-9.]+{_ZONE}$"


def _datetime(values: pa.Array, target: pa.DataType) -> pa.Array:
    """As UTC; more than six decimal places of a second are truncated, as in Parquet files
    (LZ-152)."""
    try:
        found = values.cast(pa.timestamp(target.unit)).cast(target)  # no zone means UTC
    except pa.ArrowInvalid:
        found = _zoned(pc.ascii_upper(values), target)
    if pc.any(pc.equal(pc.binary_length(values), len("2025-06-17 14"))).as_py():
        raise ValueError  # Arrow reads an hour without minutes
    return _within(found, _FIRST_MOMENT, _LAST_MOMENT)


def _zoned(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Date-times of which some have a zone, or more decimal places than are kept."""
    plain = pa.timestamp(target.unit)
    _matching(values, f"^{_DATE}([ T]{_TIME}{_ZONE}?)?$")
    cut = pc.replace_substring_regex(values, pattern=r"(\.[0-9]{6})[0-9]+", replacement=r"\1")
    zoned = pc.fill_null(_matches(cut, _ZONED), False)
    with_zone = pc.if_else(zoned, cut, None).cast(target)
    without = pc.if_else(zoned, None, cut).cast(plain).cast(target)
    return pc.coalesce(with_zone, without)


def _date(values: pa.Array, target: pa.DataType) -> pa.Array:
    return _within(values.cast(target), _FIRST_DAY, _LAST_DAY)


def _within(moments: pa.Array, first: int, last: int) -> pa.Array:
    """Delta and its readers support the years 1 to 9999, Arrow supports more. Raises ValueError."""
    numbers = moments.view(pa.int64() if moments.type.bit_width == 64 else pa.int32())
    found = pc.min_max(numbers).as_py()
    if found["min"] is not None and not first <= found["min"] <= found["max"] <= last:
        raise ValueError
    return moments


def _time(values: pa.Array, _target: pa.DataType) -> pa.Array:
    """A time of day, or a full date-time, in ISO form: always with seconds, and with `T` before
    the time."""
    of_day = pc.fill_null(_matches(values, f"^{_TIME}$"), False)
    times = pc.if_else(of_day, values, None)
    moments = pc.if_else(of_day, None, values)
    _datetime(moments, pa.timestamp("us", "UTC"))  # raises if it is neither
    if len(moments) - moments.null_count:
        moments = pc.ascii_upper(moments)
        moments = _matching(moments, f"^{_DATE}[ T]{_TIME}{_ZONE}?$")
        moments = pc.replace_substring_regex(moments, pattern="^(.{10}) ", replacement=r"\1T")
    found = pc.coalesce(times, moments)
    return pc.replace_substring_regex(
        found, pattern=rf"^({_DATE}T)?([0-9]{{2}}:[0-9]{{2}})({_ZONE}?)$", replacement=r"\1\2:00\3"
    )


# -- texts ----------------------------------------------------------------------------------------


def _bytes_except(values: pa.Array, usual: bytes) -> bytes:
    """The bytes of all texts without those in `usual`; as fast as copying memory."""
    offsets = pa.Array.from_buffers(
        pa.int32(), len(values) + 1, [None, values.buffers()[1]], offset=values.offset
    )
    text = memoryview(values.buffers()[2] or b"")[offsets[0].as_py() : offsets[-1].as_py()]
    return bytes(text).translate(None, usual)


def _matches(values: pa.Array, pattern: str) -> pa.Array:
    return pc.match_substring_regex(values, pattern=pattern)


def _matching(values: pa.Array, pattern: str) -> pa.Array:
    """The texts, if all of them match. Raises ValueError."""
    if pc.all(_matches(values, pattern)).as_py() is False:
        raise ValueError
    return values


_CHANGES: dict[str, Callable[[pa.Array, pa.DataType], pa.Array]] = {
    "Double": _floating,
    "Single": _floating,
    "Int16": _integer,
    "Int32": _integer,
    "Int64": _integer,
    "DateTime": _datetime,
    "IDate": _date,
    "ITime": _time,
    "Boolean": _boolean,
    "ByteArray": octets,
}
