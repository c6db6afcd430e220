"""Decodes events from Avro object container files (ST-016 to ST-024)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.events import envelope
from mirrorlake.events.avro_schema import payload_columns
from mirrorlake.events.decode.avro_columns import AvroColumns
from mirrorlake.events.decode.avro_file import MOST_BLOCK, AvroBlock, AvroFile
from mirrorlake.events.decode.avro_scan import AvroWalk
from mirrorlake.events.decode.avro_types import AvroType
from mirrorlake.events.decode.batch import EventBatch, Unfit, head_of
from mirrorlake.events.decode.errors import UnreadableEvents
from mirrorlake.events.decode.fitting import fitted
from mirrorlake.events.decode.unified import unified
from mirrorlake.events.envelope import MOST_EVENT
from mirrorlake.events.rows import payload_type
from mirrorlake.events.types import EventColumn
from mirrorlake.storage.varints import PADDING

_TOGETHER = 8 << 20
"""Maximum number of bytes that are decoded at once, in blocks of a few thousand each."""

_MOST_TOGETHER = 100_000
"""Maximum number of events that are decoded at once."""

_MICROS = "timestamp-micros"


def avro_events(file: BinaryIO) -> Iterator[EventBatch]:
    """The events of a file in order, in batches of bounded size.

    Raises UnreadableEvents, also after batches: use none of them before the last one has been read.
    """
    found = AvroFile(file)
    reader = _Reader(found.schema)
    together: list[AvroBlock] = []
    first = count = size = 0
    for block in found.blocks():
        if not block.count:
            continue
        is_large = block.is_cut or len(block.data) > _TOGETHER or block.count > _MOST_TOGETHER
        is_full = size + len(block.data) > _TOGETHER or count > _MOST_TOGETHER
        if together and (is_large or is_full):
            yield reader.batch(first, together)
            first, count, size, together = first + count, 0, 0, []
        if is_large:
            yield from reader.parts(first, block)
            first += block.count
        else:
            together.append(block)
            count, size = count + block.count, size + len(block.data)
        del block  # before the next one is read
    if together:
        yield reader.batch(first, together)


class _Reader:
    """Reads the events of one schema."""

    def __init__(self, schema: AvroType) -> None:
        self._schema, self._walk = schema, AvroWalk(schema)
        try:
            self.columns = payload_columns(schema.schema)
            self._types = [payload_type(column.type) for column in self.columns]
            self._names = [column.name for column in self.columns]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UnreadableEvents(f"the schema is none of events: {str(error)[:200]}") from None
        for name in (envelope.SOURCE_METADATA, envelope.PAYLOAD):
            member = schema.member(name)
            if member is None or (member.optional or member).kind != "record":
                raise UnreadableEvents(f"the schema has no record {name}")

    def batch(self, first: int, blocks: Sequence[AvroBlock]) -> EventBatch:
        return self._batch(first, *self._rows(blocks))

    def parts(self, first: int, block: AvroBlock) -> Iterator[EventBatch]:
        """The events of a large block in parts, so that they take about twice its memory. Takes
        the data of the block."""
        data = block.taken()
        starts = self._walk.starts(data, block.count, is_cut=block.is_cut)
        whole, begin = len(starts) - 1, 0
        while begin < whole:
            beyond = int(np.searchsorted(starts, starts[begin] + _TOGETHER, "right")) - 1
            end = min(max(beyond, begin + 1), begin + _MOST_TOGETHER)
            part = starts[begin : end + 1]
            padded = _padded([memoryview(data)[int(part[0]) : int(part[-1])]])
            if end == whole:
                data = b""  # while the last part is used
            rows, sizes = self._read(padded, part - part[0])
            del padded
            yield self._batch(first + begin, rows, sizes)
            del rows
            begin = end
        if whole < block.count:
            yield self._passed(first + whole, block.count - whole)

    def _passed(self, first: int, count: int) -> EventBatch:
        """Events that were not read, because the first of them has no end in what is read of a
        block."""
        reason = (
            f"the event, or one before it in its block, has more than {MOST_EVENT} bytes, or its "
            f"block more than {MOST_BLOCK}"
        )
        head, _rejected = head_of(count, {}, {})
        payload = pa.table([pa.nulls(count, kind) for kind in self._types], names=self._names)
        if not self.columns:
            payload = head.select([])
        rejected = dict.fromkeys(range(count), reason)
        return EventBatch(first, head, self.columns, payload, np.ones(count, bool), rejected)

    def _batch(self, first: int, rows: pa.StructArray, sizes: np.ndarray) -> EventBatch:
        generic = _members(rows)
        metadata = _members(generic.pop(envelope.SOURCE_METADATA))
        given = generic.pop(envelope.PAYLOAD)
        for name in (envelope.READ_TIMESTAMP, envelope.SOURCE_TIMESTAMP):
            if name in generic and self._is_micros(name):
                generic[name] = _floored(generic[name])
        head, rejected = head_of(len(rows), generic, metadata)
        for row in np.flatnonzero(sizes > MOST_EVENT).tolist():
            rejected[row] = f"the event has {sizes[row]} bytes, more than {MOST_EVENT}"
        unfit = Unfit()
        payload = self._payload(given, unfit)
        empty = given.is_null().to_numpy(zero_copy_only=False) | (not self.columns)
        at = np.arange(first, first + len(rows))
        return unfit.batch(at, head, self.columns, payload, empty, rejected)

    def _rows(self, blocks: Sequence[AvroBlock]) -> tuple[pa.StructArray, np.ndarray]:
        """All events of some blocks, and the number of bytes of each."""
        padded = _padded([block.data for block in blocks])
        count = sum(block.count for block in blocks)
        starts = self._walk.guessed(padded[:-PADDING], blocks[0].data, count, envelope.OBJECT)
        if starts is not None and starts[0] == 0:
            try:
                return self._read(padded, starts)
            except UnreadableEvents:
                pass  # the guess or the file is wrong; walking over each block decides
        found, before = [np.zeros(0, np.int64)], 0
        for block in blocks:
            found.append(self._walk.starts(block.data, block.count)[:-1] + before)
            before += len(block.data)
        return self._read(padded, np.concatenate([*found, [before]]))

    def _read(self, padded: np.ndarray, starts: np.ndarray) -> tuple[pa.StructArray, np.ndarray]:
        rows, ends = AvroColumns(padded, self._walk).read(self._schema, starts[:-1])
        if not np.array_equal(ends, starts[1:]):
            raise UnreadableEvents("the events of a block do not begin where others end")
        return rows, np.diff(starts)

    def _payload(self, given: pa.Array, unfit: Unfit) -> pa.Table:
        members = [pa.nulls(len(given))] * len(self.columns)
        if pa.types.is_struct(given.type):
            members = [pc.struct_field(given, index) for index in range(given.type.num_fields)]
        return _fitted_payload(self.columns, self._types, members, unfit)

    def _is_micros(self, name: str) -> bool:
        member = self._schema.member(name)
        schema = (member.optional or member).schema if member is not None else None
        return isinstance(schema, dict) and schema.get("logicalType") == _MICROS


def _padded(parts: Sequence[bytes | memoryview]) -> np.ndarray:
    """These bytes, followed by PADDING; uint8."""
    size = sum(map(len, parts)) + PADDING
    # The allocator of Arrow keeps what it frees, and the next blocks have about as many bytes.
    padded = np.frombuffer(pa.allocate_buffer(size), np.uint8)
    at = 0
    for part in parts:
        padded[at : at + len(part)] = np.frombuffer(part, np.uint8)
        at += len(part)
    padded[at:] = 0
    return padded


def _fitted_payload(
    columns: Sequence[EventColumn],
    types: Sequence[pa.DataType],
    members: Sequence[pa.Array],
    unfit: Unfit,
) -> pa.Table:
    found = []
    for column, target, values in zip(columns, types, members, strict=True):
        kind = column.type
        fit, bad = fitted(values, target, lambda part, kind=kind: unified(part, kind))  # type: ignore[misc]
        found.append(fit)
        unfit.add(bad, column)
    return pa.table(found, names=[column.name for column in columns])


def _members(rows: pa.Array) -> dict[str, pa.Array]:
    """The members of a record, NULL where the record is NULL."""
    if not pa.types.is_struct(rows.type):
        return {}
    return {one.name: pc.struct_field(rows, one.name) for one in rows.type}


def _floored(micros: pa.Array) -> pa.Array:
    mask = micros.is_null().to_numpy(zero_copy_only=False)
    numbers = pc.fill_null(micros, 0).to_numpy(zero_copy_only=False)
    return pa.array(np.floor_divide(numbers, 1000), pa.int64(), mask=mask)
