"""Metadata columns: each landed row says which change of the source it comes from."""

from __future__ import annotations

import io
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.capture.landing.outbox import Outbox
from mirrorlake.capture.origins import METADATA, ORDINALS, Committed, as_of, ended, with_metadata
from mirrorlake.capture.staged.staged_file import DamagedStagedFile
from mirrorlake.landing.parquet.unchanged import packed, unpacked
from mirrorlake.landing.scan import data_files
from mirrorlake.model.change import (
    MARKER_COLUMN,
    METADATA_COLUMNS,
    UNCHANGED_COLUMN,
)
from mirrorlake.model.position import Lsn
from tests.capture.landing import FOLDER, outbox, roll, take, with_a_flipped_bit
from tests.capture.streams import Transaction, chunks, inserts, streams
from tests.conformance.store import names
from tests.doubles.clock import SteppedClock
from tests.doubles.memory_store import Effect, MemoryStore

Told = tuple[int, int, str, str, datetime]
"""Marker, value, position, transaction and time."""


def told(store: MemoryStore) -> list[Told]:
    found: list[Told] = []
    for file in data_files(FOLDER, store.list(FOLDER)):
        rows = pq.ParquetFile(io.BytesIO(store.read(file.path))).read()
        wanted = [MARKER_COLUMN, "id", *METADATA_COLUMNS]
        found += [tuple(row[name] for name in wanted) for row in rows.to_pylist()]  # type: ignore[misc]
    return found


def expected(stream: Iterable[Transaction]) -> list[Told]:
    return [
        (
            event.marker,
            event.value,
            f"{transaction.end}:{event.ordinal}",
            str(transaction.end.value),
            transaction.time,
        )
        for transaction in stream
        for event in transaction.events
        if event.marker is not None
    ]


def with_origins(store: MemoryStore, file_bytes: int) -> Outbox:
    box = outbox(store, file_bytes=file_bytes)
    box.metadata = True
    return box


@given(streams(), st.data(), st.sampled_from([1, 150, 1 << 30]))
def test_every_landed_row_tells_its_change(
    stream: list[Transaction], data: st.DataObject, file_bytes: int
) -> None:
    store = MemoryStore(SteppedClock())
    steps = sum(len(t.events) + 1 for t in stream)
    stops = data.draw(st.sets(st.integers(1, steps)))
    box = with_origins(store, file_bytes)
    for chunk in chunks(stream, stops):
        take(box, chunk)
        if data.draw(st.booleans()):
            roll(box)
        if not box.has_open() and data.draw(st.integers(0, 5)) == 0:
            roll(box)
            box = with_origins(store, file_bytes)  # another process, which goes on from there
    roll(box)
    assert told(store) == expected(stream)
    assert not [name for name in names(store, FOLDER) if name.startswith("_")]


def test_a_damaged_file_of_an_open_transaction_lands_nothing_and_is_read_again() -> None:
    """Its rows are read once more when the transaction has ended, to tell its position."""
    store, stream, damaged = MemoryStore(SteppedClock()), [inserts(0, 10, 1, 2)], list[str]()

    def damage(effect: Effect) -> None:
        if effect.name == "staged" and effect.done and not damaged:
            content = store.files.content[effect.path].content
            store.files.put(effect.path, with_a_flipped_bit(content))
            damaged.append(effect.path)

    box = with_origins(store.reopened(damage), file_bytes=1)
    for chunk in chunks(stream, {1}):
        take(box, chunk)
    with pytest.raises(DamagedStagedFile) as refused:
        roll(box)
    assert damaged == [refused.value.where]
    assert told(store) == []
    box = with_origins(store, file_bytes=1)  # another process
    for chunk in chunks(stream, {1}):
        take(box, chunk)
    roll(box)
    assert told(store) == expected(stream)
    assert not [name for name in names(store, FOLDER) if name.startswith("_")]


@given(
    st.integers(1, 20),
    st.lists(st.lists(st.booleans(), min_size=20, max_size=20), min_size=1, max_size=5),
)
def test_masks_stay_those_of_the_columns_that_were_there(
    columns: int, matrix: list[list[bool]]
) -> None:
    mask = np.array(matrix)[:, :columns]
    bits = packed(mask)
    data = {f"c{n}": list(range(len(mask))) for n in range(columns)}
    data[UNCHANGED_COLUMN] = pa.nulls(len(mask), pa.binary()) if bits is None else bits
    data[MARKER_COLUMN] = pa.array([1] * len(mask), pa.int8())
    rows = with_metadata(pa.table(data), as_of("1:0", len(mask)))
    assert rows.column_names[columns:] == [*METADATA_COLUMNS, UNCHANGED_COLUMN, MARKER_COLUMN]
    found = unpacked(rows[UNCHANGED_COLUMN].combine_chunks(), columns + len(METADATA))
    assert (found[:, :columns] == mask).all()
    assert not found[:, columns:].any()


@pytest.mark.parametrize("columns", [5, 6, 7, 8, 13, 14])
def test_masks_of_a_transaction_that_was_open_stay_those_of_its_columns(columns: int) -> None:
    mask = np.eye(2, columns, dtype=bool)
    data = {f"c{n}": [1, 2] for n in range(columns)} | {UNCHANGED_COLUMN: packed(mask)}
    ordinals = pa.table([[1, 2]], schema=ORDINALS)
    rows = ended(with_metadata(pa.table(data), ordinals), Committed(Lsn(1), None, ""))
    assert rows.column_names[columns:] == [*METADATA_COLUMNS, UNCHANGED_COLUMN]
    found = unpacked(rows[UNCHANGED_COLUMN].combine_chunks(), columns + len(METADATA))
    assert (found[:, :columns] == mask).all()
    assert not found[:, columns:].any()


def test_rows_that_were_read_tell_the_position_and_nothing_that_nobody_knows() -> None:
    found: list[dict[str, Any]] = as_of("0/1:0", 2).to_pylist()
    assert found == [dict(zip(METADATA_COLUMNS, ("0/1:0", None, None), strict=True))] * 2


@pytest.mark.parametrize("file_bytes", [1, 1 << 30])
def test_without_the_setting_there_are_no_such_columns(file_bytes: int) -> None:
    store = MemoryStore(SteppedClock())
    box = outbox(store, file_bytes=file_bytes)
    for chunk in chunks([inserts(0, 10, 1, 2)], {1}):
        take(box, chunk)
    roll(box)
    for file in data_files(FOLDER, store.list(FOLDER)):
        found = pq.ParquetFile(io.BytesIO(store.read(file.path))).schema_arrow.names
        assert not set(found) & set(METADATA_COLUMNS)
