"""When events were read, and how large they are: what a load and a file are made of."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mirrorlake import root
from mirrorlake.capture.events import build, files
from mirrorlake.capture.events.build import TakenRows
from mirrorlake.capture.events.files import FileMaker
from mirrorlake.capture.events.load import EventLoader
from mirrorlake.capture.events.settings import EventsSettings
from mirrorlake.capture.events.state import EventState, written
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.sink import Loaded
from mirrorlake.events.decode import avro_events
from mirrorlake.events.decode.json import lines as json_lines
from mirrorlake.events.paths import EventExtension
from mirrorlake.events.reading import read_events
from mirrorlake.model.arrow import arrow_schema
from mirrorlake.model.crash_points import no_crash
from mirrorlake.model.position import Lsn
from mirrorlake.model.table import Column, Schema
from mirrorlake.model.types import LONG
from mirrorlake.sources.base import Snapshot
from mirrorlake.sources.table import SnapshotPart, SourceTable
from tests.capture.streams import ID, NARROW
from tests.doubles.clock import START, SteppedClock
from tests.doubles.memory_store import MemoryStore
from tests.events.values import decoded

MOST = 2_000
BEGAN = int(START.timestamp() * 1000)


class Slow:
    """A snapshot of which each batch takes a minute to be read."""

    point = Lsn(10)
    shared = ""
    recognising = None

    def __init__(self, clock: SteppedClock, sizes: Sequence[int]) -> None:
        self._clock, self._sizes = clock, sizes
        self.taken = clock.now()

    def parts(self, table: SourceTable) -> Sequence[SnapshotPart]:
        return [SnapshotPart(table)]

    def read(self, part: SnapshotPart) -> Iterator[pa.RecordBatch]:
        for number, size in enumerate(self._sizes):
            self._clock.advance(60)
            schema = arrow_schema(part.table.schema)
            yield pa.RecordBatch.from_pydict({"id": [number], "note": ["x" * size]}, schema=schema)


@pytest.mark.clause("ST-171")
@pytest.mark.parametrize("extension", [EventExtension.AVRO, EventExtension.JSON])
@pytest.mark.parametrize("width", [2, 40])
def test_files_are_as_large_as_they_may_be(extension: EventExtension, width: int) -> None:
    """As they are written: metadata and names of columns are more than the values of a narrow
    table."""
    schema = Schema.of([Column(f"column_{number}", LONG) for number in range(width)])
    table = SourceTable(ID, schema, ("column_0",), "1")
    settings = EventsSettings("s", Path("there"), extension=extension, rotation_bytes=100_000)
    columns = [pa.array(range(10**12, 10**12 + 2_000), pa.int64())] * width
    rows = pa.table(columns, schema=arrow_schema(schema))
    event_object = build.described(table, settings)
    events = build.loaded(event_object, table, rows, "0" * 16, 0, 0, 0)
    sizes = [len(file.content) for file in FileMaker(settings, 1).files(event_object, events)]
    assert len(sizes) > 2
    assert all(60_000 < size < 140_000 for size in sizes[:-1])


def loaded(sizes: Sequence[int]) -> tuple[list[dict[str, Any]], Records]:
    """The events of a load whose batches have these sizes, each a file of its own."""
    clock = SteppedClock()
    store = MemoryStore(clock)
    records = Records(store, root.LANDING)
    EventState("there", 1).write(records)
    settings = EventsSettings("s", Path("there"))
    loader = EventLoader(records, settings, store, 1, clock, no_crash, lambda _progress: None)
    snapshot: Snapshot = Slow(clock, sizes)
    with ThreadPoolExecutor(1) as pool:
        (done,) = (one for one in loader.run(snapshot, [NARROW], pool) if one)
    assert isinstance(done, Loaded)
    found = [
        event
        for path, file in store.files.content.items()
        if path.startswith("shop_orders/")
        for event in decoded(file.content)
    ]
    return sorted(found, key=lambda event: event["payload"]["id"]), records


@pytest.mark.clause("ST-042", "ST-218")
def test_rows_of_a_load_say_when_each_of_them_was_read() -> None:
    events, _records = loaded([1, 1, 1])
    assert {event["source_timestamp"] for event in events} == {BEGAN}
    assert [event["read_timestamp"] - BEGAN for event in events] == [60_000, 120_000, 180_000]


@pytest.mark.clause("ST-177", "ST-253")
def test_a_row_that_is_too_large_for_an_event_is_counted_and_the_load_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(files, "MOST_EVENT", MOST)
    events, records = loaded([1, MOST, 2])
    assert [event["payload"]["id"] for event in events] == ["0", "2"]
    counted = written(records)[str(ID)]
    assert (counted.events, counted.unsupported) == (2, 1)


@pytest.mark.clause("ST-177", "ST-253", "ST-357")
@pytest.mark.parametrize("form", EventExtension)
def test_what_is_written_is_read_up_to_the_last_byte_of_an_event(
    monkeypatch: pytest.MonkeyPatch, form: EventExtension
) -> None:
    """And no event is written that the reader refuses."""
    for module in (files, avro_events, json_lines):
        monkeypatch.setattr(module, "MOST_EVENT", MOST)
    sizes = [*range(MOST - 700, MOST + 10)]
    settings = EventsSettings("s", Path("there"), extension=form)
    event_object = build.described(NARROW, settings)
    count = len(sizes)
    rows = pa.RecordBatch.from_pydict(
        {"id": [1] * count, "note": ["x" * size for size in sizes]},
        schema=arrow_schema(NARROW.schema),
    )
    zeros = np.zeros(count, np.int64)
    taken = TakenRows(
        NARROW,
        rows,
        np.zeros(count, np.int8),
        zeros,
        pa.array(["1"] * count),
        np.full(count, 7, np.uint64),
        np.zeros(count, bool),
    )
    events = build.changes(event_object, taken, "0123456789abcdef", 0, 0)
    maker = FileMaker(settings, 1)
    (file,) = maker.files(event_object, events)
    (batch,) = read_events(io.BytesIO(file.content))
    assert not batch.rejected
    found = [len(text) for text in batch.payload.column("note").to_pylist()]
    assert found == sizes[: len(found)]
    assert 0 < len(found) == count - maker.too_large < count
    # One byte more than the largest of them is what the reader refuses.
    monkeypatch.setattr(files, "MOST_EVENT", MOST + 1)
    (file,) = maker.files(event_object, events)
    (batch,) = read_events(io.BytesIO(file.content))
    assert list(batch.rejected) == [len(found)]
