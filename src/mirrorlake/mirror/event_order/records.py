"""The order records of events, which determine the later one of two events."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.mirror.event_order.numbers import as_hexadecimal
from mirrorlake.mirror.event_order.rules import SECTIONS, OrderRule
from mirrorlake.model.arrow import contiguous

SECTION_NAMES = [f"section_{index}" for index in range(SECTIONS)]

ORDER = pa.schema(
    [
        pa.field("log", pa.string()),
        pa.field("backfill", pa.bool_()),
        *(pa.field(name, pa.uint64()) for name in SECTION_NAMES),
        pa.field("deletion", pa.bool_()),
        pa.field("source_ms", pa.int64()),
        pa.field("read_ms", pa.int64()),
        pa.field("read_batch", pa.string()),
        pa.field("counter", pa.int64()),
        pa.field("content", pa.uint64()),
    ]
)
"""One row per event, without NULLs. log, section_0 to section_3: the log position, "" and 0 for a
backfill; deletion: whether it is a delete by key; source_ms, read_ms: source and read time;
read_batch, counter: the parts of its uuid (ST-367); content: a hash of the row, so that not the
order of arrival decides between events that are equal in everything else."""

ROWS = "~rows"
"""The log of `records_of_rows`; its name is the last one of all."""


UUID_PARTS = ("read_batch", "counter")
"""The columns of ORDER that follow from the uuid."""

_DIGITS = 8
_ZEROS, _ONES = np.uint64(0x3030303030303030), np.uint64(0x0101010101010101)
"""Eight digits, each of which is 0, and the bits that differ if some are 1."""


@dataclass(frozen=True, slots=True)
class CheckedRecords:
    """rows: ORDER; readable: bool per row, whether its source time and position are known. Other
    events cannot be ordered, and become dead letters (ST-253)."""

    rows: pa.Table
    readable: np.ndarray


def records(
    rule: OrderRule,
    events: pa.Table,
    *,
    backfill: np.ndarray,
    deletion: np.ndarray,
    content: np.ndarray,
) -> CheckedRecords:
    """The order records of n events.

    events: `uuid` (text), `source_timestamp` and `read_timestamp` (int64, milliseconds),
    `sort_keys` (list of texts), and the columns of the source metadata. backfill, deletion: n bool;
    content: n uint64.
    """
    places = rule.places(events)
    batch, counter = parts_of_uuids(contiguous(events.column("uuid")))
    source = contiguous(events.column("source_timestamp"))
    log, sections = places.log, places.sections
    if backfill.any():
        log = pc.if_else(pa.array(backfill), "", log)
        sections = np.where(backfill[:, None], np.uint64(0), sections)
    columns = [
        log,
        pa.array(backfill),
        *(pa.array(np.ascontiguousarray(sections[:, index])) for index in range(SECTIONS)),
        pa.array(deletion),
        pc.fill_null(source, 0),
        pc.fill_null(contiguous(events.column("read_timestamp")), 0),
        batch,
        counter,
        pa.array(content),
    ]
    timed = source.is_valid().to_numpy(zero_copy_only=False)
    return CheckedRecords(
        pa.table(columns, schema=ORDER), np.asarray(timed & (places.readable | backfill))
    )


def records_of_rows(uuid: pa.Array, source_ms: pa.Array, content: np.ndarray) -> pa.Table:
    """ORDER for rows of a table whose events are unknown: changes in a log of their own. With the
    changes of other logs they are compared by source time, and are the later ones of equal times.

    uuid: texts; source_ms: int64; content: uint64.
    """
    count = len(content)
    batch, counter = parts_of_uuids(uuid)
    false, zeros = pa.array(np.zeros(count, bool)), pa.array(np.zeros(count, np.uint64))
    columns = [
        pa.repeat(pa.scalar(ROWS), count),
        false,
        *([zeros] * SECTIONS),
        false,
        pc.fill_null(source_ms, 0),
        zeros.cast(pa.int64()),
        batch,
        counter,
        pa.array(content),
    ]
    return pa.table(columns, schema=ORDER)


def change_numbers(rule: OrderRule, rows: pa.Table) -> pa.Array:
    """The change sequence number of each record as text (ST-220): the numbers of its position as
    sections of 16 hexadecimal digits, so that texts sort as the numbers."""
    parts = [as_hexadecimal(rows.column(name).to_numpy()) for name in SECTION_NAMES[: rule.width]]
    return contiguous(pc.binary_join_element_wise(*parts, "/"))


def parts_of_uuids(uuids: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Split uuids into UUID_PARTS: read batch, and row number, which the last eight characters of a
    genuine uuid contain as binary digits (ST-367). For other texts: the whole text, and 0."""
    text = contiguous(pc.fill_null(uuids, ""))
    if not len(text):
        return text, pa.array([], pa.int64())
    ends = np.frombuffer(text.buffers()[1], np.int32, len(text) + 1, 4 * text.offset)
    ends = ends.astype(np.int64)
    # The word that ends where a text does may begin at any byte, and before the first text.
    padded = np.zeros(_DIGITS + ends[-1] - ends[0], np.uint8)
    if len(padded) > _DIGITS:
        padded[_DIGITS:] = np.frombuffer(text.buffers()[2], np.uint8)[ends[0] : ends[-1]]
    words = np.ndarray(len(padded) - _DIGITS + 1, "<u8", padded, strides=(1,))
    digits = words[ends[1:] - ends[0]]
    counted = (digits & ~_ONES == _ZEROS) & (np.diff(ends) >= _DIGITS)
    bits = (digits & _ONES).view(np.uint8).reshape(-1, _DIGITS)
    counter = np.where(counted, np.packbits(bits, axis=1)[:, 0], 0)
    # Only texts that end with digits are split: in others that might split a character.
    ending = text.filter(pa.array(counted)).cast(pa.binary())
    before = pc.binary_slice(ending, 0, -_DIGITS).cast(pa.string())
    batch = pc.replace_with_mask(text, pa.array(counted), before)
    return batch, pa.array(counter, pa.int64())
