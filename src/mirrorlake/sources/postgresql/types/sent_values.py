"""Columns of values as pgoutput sends them in binary format, as Arrow arrays.

A COPY can be asked for the text of a column, and pgoutput has one format for all of them. So more
types are read here than by `binary_values`: their values become the text that PostgreSQL would
write, from the formats of the send functions (`src/backend/utils/adt`).
Types of which that takes longer than to read their text, as `interval` and `inet`, are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.sources.postgresql.types.binary_values import (
    Fields,
    Read,
    binary_reader,
    booleans,
    jsonb_texts,
    texts,
    uuids,
)
from mirrorlake.sources.postgresql.types.mapping import Form
from mirrorlake.sources.postgresql.types.sent_arrays import Elements, arrays
from mirrorlake.sources.postgresql.types.sent_texts import (
    characters,
    macs,
    numbers,
    times,
    zoned_times,
)
from mirrorlake.sources.postgresql.types.values import ColumnDecoder

Write = Callable[[Fields], pa.Array]
"""Writes values as PostgreSQL does: string. Raises NotItsType, for what has to come as text."""


class TextNeeded(Exception):
    """Values came in a binary format that is not read here: they have to come as text."""


def sent_reader(decoder: ColumnDecoder) -> Read | None:
    """What reads the values of a column; None for those that have to come as text."""
    sent, form = decoder.type.sent, decoder.type.form
    if form is Form.ARRAY:
        elements = _ELEMENTS.get(sent)
        if elements is None:
            return None
        return lambda fields: decoder.decode(arrays(fields, elements))
    if read := binary_reader(sent, decoder):
        return read
    write = _TEXTS.get(sent)
    if write is None or form not in {Form.TEXT, Form.DECIMAL}:
        return None
    return lambda fields: decoder.decode(write(fields))


def _integers(fields: Fields, sent: str) -> pa.Array:
    fields.check_size(np.dtype(sent).itemsize)
    values = fields.numbers(sent).astype(np.int64)
    return pa.array(values, mask=fields.is_null).cast(pa.string())


def _letters(fields: Fields) -> pa.Array:
    """Texts of `boolean`."""
    return pc.if_else(booleans(fields), "t", "f")


_TEXTS: Mapping[int, Write] = {
    18: characters,
    774: partial(macs, count=8),
    829: partial(macs, count=6),
    1083: times,
    1266: zoned_times,
    1700: numbers,
}
"""By the oid of a type what writes its values."""

_ANY_TEXT = Elements(texts, is_quoted=True)
_ELEMENTS: Mapping[int, Elements] = {
    16: Elements(_letters, 1),
    18: Elements(characters, 1, is_quoted=True),
    20: Elements(partial(_integers, sent=">i8"), 8),
    21: Elements(partial(_integers, sent=">i2"), 2),
    23: Elements(partial(_integers, sent=">i4"), 4),
    26: Elements(partial(_integers, sent=">u4"), 4),  # oid
    829: Elements(partial(macs, count=6), 6),
    1083: Elements(times, 8),
    1700: Elements(numbers),
    2950: Elements(uuids, 16),
    3802: Elements(jsonb_texts, is_quoted=True),
    **dict.fromkeys((19, 25, 114, 1042, 1043), _ANY_TEXT),  # name, text, json, bpchar, varchar
}
"""By the oid of their type."""
