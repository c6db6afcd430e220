"""Columns of values in the binary format of PostgreSQL, as Arrow arrays.

The format of a value is that of the send function of its type (`src/backend/utils/adt`): numbers in
network byte order, days and microseconds since 2000-01-01, digits of base 10000 for `numeric`. All
values of a column are read together, from where they are in the output of a COPY.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

import numpy as np
import pyarrow as pa

from mirrorlake.model.arrow import arrow_type
from mirrorlake.sources.postgresql.types.mapping import Form
from mirrorlake.sources.postgresql.types.values import ColumnDecoder

MOST_DIGITS = 18
"""The precision up to which a `numeric` is read as a number of 64 bits."""

_EPOCH = datetime(2000, 1, 1)  # noqa: DTZ001  (days and microseconds without a zone)
_UNIX_DAYS = (_EPOCH - datetime(1970, 1, 1)).days  # noqa: DTZ001
_DAY = 86_400_000_000
_FIRST_DAY, _LAST_DAY = (
    (day - _EPOCH).days
    for day in (datetime(1, 1, 1), datetime(9999, 12, 31))  # noqa: DTZ001
)
_FIRST_MOMENT, _LAST_MOMENT = _FIRST_DAY * _DAY, (_LAST_DAY + 1) * _DAY - 1
_POWERS = 10 ** np.arange(MOST_DIGITS + 1, dtype=np.int64)
_BASE_DIGITS = 4  # of a digit of base 10000
_NEGATIVE, _NAN = 0x4000, 0xC000
_NAMES = {_NAN: "NaN", 0xD000: "Infinity", 0xF000: "-Infinity"}
"""Of signs; these are all above those of numbers."""

HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_HYPHENS = (8, 13, 18, 23)
_JSONB_VERSION = 1


class NotItsType(ValueError):
    """A value that is not one of the type that its column was described with."""


@dataclass(frozen=True, slots=True)
class Fields:
    """The values of a column within a block of bytes.

    content: uint8, of at least 8 bytes; begin, size: int64, ascending, where the bytes of each
    value are, of which NULL has none; is_null: bool, or None where no value is.
    """

    content: np.ndarray
    begin: np.ndarray
    size: np.ndarray
    is_null: np.ndarray | None

    def numbers(self, kind: str, offset: int | np.ndarray = 0) -> np.ndarray:
        """The numbers of a numpy type that begin at an offset in each value; of NULL any."""
        at = self.begin + offset
        if self.is_null is not None:  # the last ones may have no bytes behind them
            at = np.minimum(at, len(self.content) - np.dtype(kind).itemsize)
        return numbers_at(self.content, kind, at)

    def without(self, is_odd: np.ndarray) -> Fields:
        """With these as NULL as well."""
        is_null = is_odd if self.is_null is None else is_odd | self.is_null
        return replace(self, is_null=is_null)

    def only(self, rows: np.ndarray) -> Fields:
        """Those of some rows, none of which is NULL."""
        return Fields(self.content, self.begin[rows], self.size[rows], None)

    def validity(self) -> pa.Buffer | None:
        """For Arrow."""
        if self.is_null is None:
            return None
        return pa.py_buffer(np.packbits(~self.is_null, bitorder="little"))

    def nulls(self) -> int:
        return 0 if self.is_null is None else int(self.is_null.sum())

    def check_size(self, expected: int | np.ndarray) -> None:
        """Raises NotItsType."""
        is_wrong = self.size != expected
        if self.is_null is not None:
            is_wrong &= ~self.is_null
        if is_wrong.any():
            raise NotItsType(f"{self.size[is_wrong][0]} bytes are not a value of its type")


Read = Callable[[Fields], pa.Array]
"""Reads the values of a column. Raises BadValue, NotItsType, pa.ArrowInvalid."""


def numbers_at(content: np.ndarray, kind: str, at: np.ndarray) -> np.ndarray:
    """The numbers of a numpy type at any places of a block, in the byte order of this machine."""
    wanted = np.dtype(kind)
    every = np.ndarray((len(content) - wanted.itemsize + 1,), wanted, content, strides=(1,))
    found: np.ndarray = every[at].astype(wanted.newbyteorder("="))
    return found


def binary_reader(oid: int, decoder: ColumnDecoder) -> Read | None:
    """What reads the values of a type of the server for a column of a table; None for those that
    have to come as text."""
    form, target = decoder.type.form, arrow_type(decoder.type.type)
    if form is Form.NUMBER:
        sent, natural = _NUMBERS.get(oid, ("", None))
        return partial(_numbers, sent=sent, target=target) if natural == target else None
    if form is Form.DECIMAL and target.precision > MOST_DIGITS:
        return None
    if read := _READERS.get((form, oid)):
        return read
    decoded = _DECODED.get((form, oid))
    return (lambda fields: decoded(fields, decoder)) if decoded else None


def texts(fields: Fields) -> pa.Array:
    """Texts of any encoding."""
    return _slices(fields, pa.string())


def tids(fields: Fields) -> pa.Array:
    """Values of `tid` as int64: the number of the page, and in 16 bits that of the row in it."""
    fields.check_size(6)
    page, row = fields.numbers(">u4").astype(np.int64), fields.numbers(">u2", 4)
    return _array(fields, page << 16 | row, pa.int64())


def transactions(fields: Fields) -> pa.Array:
    """Values of `xid` as int64."""
    return _numbers(fields, ">u4", pa.int64())


def _numbers(fields: Fields, sent: str, target: pa.DataType) -> pa.Array:
    fields.check_size(np.dtype(sent).itemsize)
    values = fields.numbers(sent)
    if pa.types.is_floating(target):
        values[np.isnan(values)] = np.nan  # the text of each NaN is the same
    return _array(fields, values.astype(target.to_pandas_dtype(), copy=False), target)


def booleans(fields: Fields) -> pa.Array:
    fields.check_size(1)
    return pa.array(fields.numbers("u1") != 0, pa.bool_(), mask=fields.is_null)


def _days(fields: Fields, decoder: ColumnDecoder) -> pa.Array:
    fields.check_size(4)
    days = fields.numbers(">i4")
    fields, days = _within(fields, days, _FIRST_DAY, _LAST_DAY, decoder, _text_of_day)
    return _array(fields, days + np.int32(_UNIX_DAYS), pa.date32())


def _moments(fields: Fields, decoder: ColumnDecoder, zone: str = "") -> pa.Array:
    fields.check_size(8)
    moments = fields.numbers(">i8")
    first, last = _FIRST_MOMENT, _LAST_MOMENT
    text = partial(_text_of_moment, zone=zone)
    fields, moments = _within(fields, moments, first, last, decoder, text)
    return _array(fields, moments + _UNIX_DAYS * _DAY, pa.timestamp("us", "UTC"))


def _within(
    fields: Fields,
    values: np.ndarray,
    first: int,
    last: int,
    decoder: ColumnDecoder,
    text: Callable[[int], str],
) -> tuple[Fields, np.ndarray]:
    """Treat values beyond the calendar of the table as the settings say. text: of such a value, as
    PostgreSQL writes it."""
    is_odd = (values < first) | (values > last)
    if fields.is_null is not None:
        is_odd &= ~fields.is_null
    if not is_odd.any():
        return fields, values
    replaced, bounds = values[is_odd], np.iinfo(values.dtype)
    finite = replaced[(replaced != bounds.min) & (replaced != bounds.max)]
    example = (finite if len(finite) else replaced)[0]
    decoder.note_moments(len(replaced), lambda: text(int(example)), is_finite=bool(len(finite)))
    if decoder.extremes.dates == "clamp":
        return fields, np.clip(values, first, last)
    return fields.without(is_odd), values


def _text_of_day(days: int) -> str:
    if days in {np.iinfo(np.int32).min, np.iinfo(np.int32).max}:
        return "infinity" if days > 0 else "-infinity"
    year, month, day = str(np.datetime64(days + _UNIX_DAYS, "D")).rsplit("-", 2)
    if int(year) > 0:
        return f"{int(year):04d}-{month}-{day}"
    return f"{1 - int(year):04d}-{month}-{day} BC"  # the year 0 is 1 BC


def _text_of_moment(moment: int, zone: str) -> str:
    if moment in {np.iinfo(np.int64).min, np.iinfo(np.int64).max}:
        return "infinity" if moment > 0 else "-infinity"
    day, time = divmod(moment, _DAY)
    date, *era = _text_of_day(day).split(" ")
    clock = (_EPOCH + timedelta(microseconds=time)).time().isoformat()
    return " ".join([date, clock + zone, *era])


def _decimals(fields: Fields, decoder: ColumnDecoder) -> pa.Array:
    """The number of digits of base 10000, the power of the first, sign, scale; then the digits."""
    target = arrow_type(decoder.type.type)
    head = fields.numbers(">i8")
    if fields.is_null is not None:
        head[fields.is_null] = 0
    count, power = head >> 48, (head >> 32).astype(np.int16).astype(np.int64)
    sign = head >> 16 & 0xFFFF
    fields.check_size(8 + 2 * count)
    is_odd = sign >= _NAN
    if is_odd.any():
        decoder.note_numbers(int(is_odd.sum()), lambda: _NAMES[int(sign[is_odd][0])])
        fields = fields.without(is_odd)
    value = np.zeros(len(head), np.int64)
    for number in range(int(count.max(initial=0))):
        has = count > number
        digit = fields.numbers(">i2", np.where(has, 8 + 2 * number, 0)).astype(np.int64) * has
        exponent = (power - number) * _BASE_DIGITS + target.scale
        if number == 0:
            _check_fits(digit, exponent, target.precision)
        up, down = _POWERS[np.clip(exponent, 0, MOST_DIGITS)], _POWERS[np.clip(-exponent, 0, 4)]
        if (digit % down).any():
            raise NotItsType(f"a number has more decimal places than {decoder.type.type}")
        value += digit * up // down
    value = np.where(sign == _NEGATIVE, -value, value)
    words = np.empty((len(value), 2), np.int64)
    words[:, 0], words[:, 1] = value, value >> 63
    return pa.Array.from_buffers(
        target, len(value), [fields.validity(), pa.py_buffer(words)], fields.nulls()
    )


def _check_fits(digit: np.ndarray, exponent: np.ndarray, precision: int) -> None:
    """Check that numbers with these first digits are below the limit, so that nothing overflows."""
    free = precision - exponent  # decimal places from the last of the digit to the limit
    limit = _POWERS[np.clip(free, 0, MOST_DIGITS)]
    if ((free < _BASE_DIGITS) & (digit >= limit) & (digit > 0)).any():
        raise NotItsType(f"a number has more than {precision} digits")


def _checked_texts(fields: Fields, decoder: ColumnDecoder) -> pa.Array:
    return decoder.decode(texts(fields))


def _jsonb(fields: Fields, decoder: ColumnDecoder) -> pa.Array:
    return decoder.decode(jsonb_texts(fields))


def jsonb_texts(fields: Fields) -> pa.Array:
    """A version, then the text."""
    is_known = fields.numbers("u1") == _JSONB_VERSION
    version = np.ones(len(is_known), np.int64)  # the bytes of it
    if fields.is_null is not None:
        is_known |= fields.is_null
        version[fields.is_null] = 0
    if not is_known.all():
        raise NotItsType("a value of jsonb has an unknown version")
    later = replace(fields, begin=fields.begin + version, size=fields.size - version)
    return texts(later)


def uuids(fields: Fields) -> pa.Array:
    fields.check_size(16)
    values = np.stack([fields.numbers("u1", index) for index in range(16)], axis=1)
    digits = np.empty((len(values), 36), np.uint8)
    digits[:, _HYPHENS] = ord("-")
    at = [index for index in range(36) if index not in _HYPHENS]
    digits[:, at[0::2]], digits[:, at[1::2]] = HEX[values >> 4], HEX[values & 15]
    offsets = np.arange(len(values) + 1, dtype=np.int32) * 36
    buffers = [fields.validity(), pa.py_buffer(offsets), pa.py_buffer(digits)]
    return pa.Array.from_buffers(pa.string(), len(values), buffers, fields.nulls())


def _slices(fields: Fields, target: pa.DataType) -> pa.Array:
    """The bytes of each value, copied to where they follow each other."""
    count = len(fields.begin)
    if not count:
        return pa.array([], target)
    is_long = len(fields.content) > MOST_BYTES
    # Values and what is between them, alternately, of which every other one is taken.
    bounds = np.empty(2 * count, np.int64 if is_long else np.int32)
    bounds[::2], bounds[1::2] = fields.begin, fields.begin + fields.size
    source = _LONG[target] if is_long else target
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(fields.content)]
    every = pa.Array.from_buffers(source, 2 * count - 1, buffers)
    found = every.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32))).cast(target)
    if fields.is_null is None:
        return found
    _valid, offsets, data = found.buffers()
    return pa.Array.from_buffers(target, count, [fields.validity(), offsets, data], fields.nulls())


MOST_BYTES = (1 << 31) - 1
"""Of a block for which offsets of 32 bits suffice."""

_LONG = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}


def _array(fields: Fields, values: np.ndarray, target: pa.DataType) -> pa.Array:
    buffers = [fields.validity(), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(target, len(values), buffers, fields.nulls())


_NUMBERS: Mapping[int, tuple[str, pa.DataType]] = {
    20: (">i8", pa.int64()),
    21: (">i2", pa.int16()),
    23: (">i4", pa.int32()),
    26: (">u4", pa.int64()),  # oid
    28: (">u4", pa.int64()),  # xid
    29: (">u4", pa.int64()),  # cid
    700: (">f4", pa.float32()),
    701: (">f8", pa.float64()),
}
"""By the oid of a type how it is sent, and the type of the values."""

_READERS: Mapping[tuple[Form, int], Read] = {
    (Form.BOOLEAN, 16): booleans,
    (Form.BYTEA, 17): partial(_slices, target=pa.binary()),
    (Form.TEXT, 2950): uuids,
}
_DECODED: Mapping[tuple[Form, int], Callable[[Fields, ColumnDecoder], pa.Array]] = {
    (Form.DATE, 1082): _days,
    (Form.TIMESTAMP, 1114): _moments,
    (Form.INSTANT, 1184): partial(_moments, zone="+00"),  # timestamptz
    (Form.DECIMAL, 1700): _decimals,
    (Form.TEXT, 19): _checked_texts,  # name
    (Form.TEXT, 25): _checked_texts,  # text
    (Form.TEXT, 114): _checked_texts,  # json
    (Form.TEXT, 1042): _checked_texts,  # bpchar
    (Form.TEXT, 1043): _checked_texts,  # varchar
    (Form.TEXT, 3802): _jsonb,
}
