"""Contents and identities of events, which are stored beside tables and must never change."""

from __future__ import annotations

import hashlib
from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.mirror.event_order.records import SECTION_NAMES
from mirrorlake.model.arrow import contiguous
from mirrorlake.model.row_hashes import content_of

_LARGEST = float(2**63)
_EXACT = Context(prec=80)


def content(rows: pa.Table, *, by_value: bool) -> np.ndarray:
    """The content of each event, uint64. rows: its columns by their names in the table. by_value:
    equal for equal numbers, so that a column may get a wider type; without it, as in tables of
    earlier releases, for equal ones of one type."""
    if not by_value:
        return content_of(rows)
    whole, rest = [*rows.columns], dict[str, pa.Array]()
    for index, (name, values) in enumerate(zip(rows.column_names, rows.columns, strict=True)):
        if pa.types.is_decimal(values.type):
            whole[index], more = _parts_of_decimals(contiguous(values))
        elif pa.types.is_floating(values.type):
            whole[index], more = _parts_of_floats(contiguous(values))
        else:
            continue
        # Names of columns in a table have neither a dot nor a plus.
        rest |= {f"{name}{part}": found for part, found in more.items()}
    if not rest:
        return content_of(rows)
    found: np.ndarray = content_of(pa.table(whole, names=rows.column_names))
    found += content_of(pa.table(rest))
    return found


def _parts_of_decimals(values: pa.Array) -> tuple[pa.Array, dict[str, pa.Array]]:
    """The digits without zeros at the end of the fraction, as a number, and how many of them are
    the fraction, if any are; what has more than 64 bits as a text."""
    count, scale = len(values), values.type.scale
    is_there = values.is_valid().to_numpy(zero_copy_only=False)
    words = np.frombuffer(values.buffers()[1] or b"", "<i8").reshape(-1, 2)
    low, high = words[values.offset : values.offset + count].T
    is_short = is_there & (high == low >> np.int64(63))
    digits = np.where(is_short, low, 0)
    places = np.where(digits == 0, 0, scale)
    left = np.flatnonzero(places)
    while len(left):
        tenth = digits[left] // 10
        ends = tenth * 10 == digits[left]
        left, tenth = left[ends], tenth[ends]
        digits[left] = tenth
        places[left] -= 1
        left = left[places[left] > 0]
    texts = dict[int, str]()
    for row in np.flatnonzero(is_there & ~is_short).tolist():
        number, places[row] = _without_zeros(values[row].as_py(), scale)
        if -(2**63) <= number < 2**63:
            digits[row], is_short[row] = number, True
        else:
            texts[row] = str(number)
    more = {".": pa.array(places, mask=places == 0)}
    if texts:
        more["+"] = pa.array([texts.get(row) for row in range(count)], pa.string())
    return pa.array(digits, mask=~is_short), more


def _without_zeros(value: Decimal, scale: int) -> tuple[int, int]:
    number = int(value.scaleb(scale, _EXACT))
    while scale and number % 10 == 0:
        number, scale = number // 10, scale - 1
    return number, scale


def _parts_of_floats(values: pa.Array) -> tuple[pa.Array, dict[str, pa.Array]]:
    """The whole numbers of 64 bits, and the others, each NULL where the other is not. Negative zero
    is one of the others."""
    wide = values.cast(pa.float64())
    numbers = pc.fill_null(wide, 0.5).to_numpy(zero_copy_only=False)
    is_whole = (np.floor(numbers) == numbers) & (np.abs(numbers) < _LARGEST)
    is_whole &= ~((numbers == 0) & np.signbit(numbers))
    whole = np.where(is_whole, numbers, 0).astype(np.int64)
    others = pc.if_else(pa.array(is_whole), pa.scalar(None, wide.type), wide)
    return pa.array(whole, mask=~is_whole), {"": others}


def identities(order: pa.Table) -> pa.Array:
    """The identity of each event, 16 bytes: its uuid if it has one, else its position, times and
    content (ST-234). order: ORDER."""
    names = ["backfill", "log", *SECTION_NAMES, "source_ms", "deletion", "content"]
    places = zip(*(order.column(name).to_pylist() for name in names), strict=True)
    named = zip(
        order.column("read_batch").to_pylist(), order.column("counter").to_pylist(), strict=True
    )
    found = [
        _digest(("u", batch, counter) if batch or counter else ("p", *place))
        for (batch, counter), place in zip(named, places, strict=True)
    ]
    return pa.array(found, pa.binary())


def _digest(what: tuple[object, ...]) -> bytes:
    return hashlib.blake2b(repr(what).encode(), digest_size=16).digest()
