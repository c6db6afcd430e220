"""What changes of a table leave of a chunk that was read of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from mirrorlake.capture.backfill.reading import ReadChunk
from mirrorlake.capture.backfill.window import ChangeWindow, Spoiled
from mirrorlake.model.arrow import arrow_schema
from mirrorlake.model.change import Marker
from mirrorlake.model.keys import KeyRange
from mirrorlake.model.position import Lsn
from mirrorlake.sources.chunk import Changes
from tests.capture.streams import NARROW, START, Event, Transaction, chunks, inserts

ROWS = arrow_schema(NARROW.schema).empty_table()
READ = ReadChunk(ROWS, KeyRange(), Lsn(3), Lsn(4), START, is_last=True)


def window(*markers: Marker, ordinals: tuple[int, ...]) -> ChangeWindow:
    """After changes beyond the chunk, the last of which leaves a value out."""
    chunk = next(chunks([inserts(5, 10, *range(len(markers)))]))
    (part,) = chunk.parts
    assert isinstance(part, Changes)
    unchanged = np.zeros((len(markers), len(NARROW.schema)), bool)
    unchanged[-1, -1] = True
    told = {"marker": np.array(markers, np.int8), "ordinal": np.array(ordinals, np.int64)}
    found = ChangeWindow(NARROW, Lsn(0))
    found.take(replace(chunk, parts=[replace(part, unchanged=unchanged, **told)]))
    return found


def test_a_row_that_moves_within_the_range_takes_its_values_from_there() -> None:
    landed = window(Marker.DELETE, Marker.INSERT, ordinals=(1, 1)).behind(READ)
    assert landed.num_rows == 2


@pytest.mark.parametrize("before", [Marker.UPDATE, Marker.DELETE])
def test_a_row_that_was_not_selected_before_spoils_the_chunk(before: Marker) -> None:
    """It has no values in the range, and what is before it is another row."""
    with pytest.raises(Spoiled, match="moved into the range"):
        window(before, Marker.INSERT, ordinals=(1, 2)).behind(READ)


@pytest.mark.clause("ST-218")
def test_rows_that_were_changed_beyond_the_chunk_are_no_longer_what_was_read() -> None:
    (part,) = next(chunks([inserts(0, 2, 1, 2, 3, 4)])).parts
    assert isinstance(part, Changes)
    rows = pa.Table.from_batches([part.rows])
    read = replace(READ, rows=rows)
    found = ChangeWindow(NARROW, Lsn(0))
    assert found.unchanged(read).equals(rows)
    for chunk in chunks([inserts(1, 2, 1), inserts(5, 10, 4, 2)]):
        found.take(chunk)
    assert found.unchanged(read).equals(rows.take([0, 2]))
    for chunk in chunks([Transaction(Lsn(10), Lsn(12), (Event(1, None, 0),))]):
        found.take(chunk)
    assert found.unchanged(read).num_rows == 0
