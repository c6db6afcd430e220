"""Identities of events, which are stored beside tables and must never change."""

from __future__ import annotations

import hashlib

import pyarrow as pa

from mirrorlake.mirror.event_order.records import SECTION_NAMES


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
