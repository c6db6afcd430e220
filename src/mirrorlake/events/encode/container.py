"""Avro object container files (ST-020, ST-024): header, blocks of encoded rows, sync marks."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from mirrorlake.events.encode.avro import avro_rows
from mirrorlake.events.encode.fragments import data_of, offsets_of, varint
from mirrorlake.events.rows import EventObject, EventRows

_MAGIC = b"Obj\x01"
BLOCK_BYTES = 1 << 20


def container(
    described: EventObject, rows: EventRows, *, deflate: bool = False
) -> Iterator[bytes | memoryview]:
    """The file, in fragments. Deterministic: the same rows give the same bytes."""
    yield from container_of(described, avro_rows(described, rows), deflate=deflate)


def container_of(
    described: EventObject, encoded: pa.Array, *, deflate: bool = False
) -> Iterator[bytes | memoryview]:
    """The file of events that are encoded already (`avro_rows`)."""
    header = json.dumps(described.schema, separators=(",", ":"), ensure_ascii=False).encode()
    facts = {"avro.schema": header} | ({"avro.codec": b"deflate"} if deflate else {})
    mark = hashlib.md5(header, usedforsecurity=False).digest()
    yield _MAGIC + _map(facts) + mark
    for count, data in blocks(encoded):
        stored = _deflated(data) if deflate else data
        yield varint(count) + varint(len(stored))
        yield stored
        yield mark


def blocks(rows: pa.Array) -> Iterator[tuple[int, memoryview]]:
    """The rows in blocks of BLOCK_BYTES; a larger row is a block of its own."""
    ends = offsets_of(rows).astype(np.int64)
    ends = ends - ends[0]
    data = memoryview(data_of(rows))
    start = 0
    while start < len(rows):
        stop = int(np.searchsorted(ends, ends[start] + BLOCK_BYTES, "right")) - 1
        stop = max(stop, start + 1)
        yield stop - start, data[ends[start] : ends[stop]]
        start = stop


def _map(facts: dict[str, bytes]) -> bytes:
    entries = [_sized(name.encode()) + _sized(value) for name, value in facts.items()]
    return varint(len(entries)) + b"".join(entries) + varint(0)


def _sized(value: bytes) -> bytes:
    return varint(len(value)) + value


def _deflated(data: memoryview) -> bytes:
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()
