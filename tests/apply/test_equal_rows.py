"""Comparing a backfill chunk with the table before it is folded changes no row and no feed."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlake.apply.task import batch
from mirrorlake.mirror.engine import Applied
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from mirrorlake.model.keys import KeyRange
from mirrorlake.model.landed import BackfillChunk
from mirrorlake.storage.local import LocalStore
from tests.conformance.mirrored import Mirrored
from tests.doubles.handmade_engine import HandmadeReader, in_process_engine
from tests.histories import Shape
from tests.profiles import tries
from tests.reference import UNCHANGED, Row

SHAPES = [
    Shape.of(["id"], id=types.LONG, a=types.STRING, b=types.DOUBLE),
    Shape.of(["b", "id"], id=types.LONG, a=types.STRING, b=types.STRING),
]
VALUES: dict[str, list[Any]] = {
    "string": ["x", "y"],
    "double": [None, 0.0, -0.0, float("nan")],
}
Landed = list[tuple[Marker, Row]]


@st.composite
def landings(draw: st.DrawFn) -> tuple[Shape, list[Landed], Landed]:
    """A table, the files of its rows, and a chunk of all keys with changes behind it."""
    shape = draw(st.sampled_from(SHAPES))

    def row(key: int) -> Row:
        kinds = [column.type.name for column in shape.schema]
        return tuple(
            key if kind == "long" else draw(st.sampled_from(VALUES[kind])) for kind in kinds
        )

    keys = st.integers(1, 6)
    rows = [row(key) for key in draw(st.lists(keys, max_size=8))]
    cut = draw(st.integers(0, len(rows)))
    # Rows that are inserted twice are there twice, which a mirror lives with.
    files = [[(Marker.INSERT, one) for one in part] for part in (rows[:cut], rows[cut:]) if part]
    by_key = {tuple(one[i] for i in shape.indexes): one for one in rows}
    there = [one for one in by_key.values() if draw(st.integers(0, 4))]
    there += [row(key) for key in draw(st.sets(keys, max_size=2))]
    chunk = {tuple(one[i] for i in shape.indexes): one for one in there}
    landed: Landed = [(Marker.UPSERT, chunk[key]) for key in sorted(chunk)]
    for key in draw(st.lists(keys, max_size=3)):
        one = row(key)
        marker = draw(st.sampled_from([Marker.UPSERT, Marker.DELETE, Marker.UPDATE]))
        if marker is Marker.UPDATE and draw(st.booleans()):
            kept = draw(st.sampled_from([i for i in range(3) if i not in shape.indexes]))
            one = (*one[:kept], UNCHANGED, *one[kept + 1 :])
        landed.append((marker, one))
    return shape, files, landed


@pytest.mark.clause("CF-144")
@settings(max_examples=tries(60), deadline=None)
@given(drawn=landings())
def test_comparing_first_gives_the_same_rows_and_the_same_feed(drawn) -> None:
    shape, files, landed = drawn
    assert played(shape, files, landed, compared=1_000) == played(shape, files, landed, compared=0)


def played(shape: Shape, files: list[Landed], landed: Landed, *, compared: int) -> object:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch, "ROWS_COMPARED", compared)
        store = LocalStore(Path(folder))
        reader = HandmadeReader(store)
        table = Mirrored(in_process_engine(store), store, reader, shape).create()
        for file in files:
            table.apply(file)
        outcome = table.run(table.step(landed, backfill=BackfillChunk("one", 1, KeyRange())))
        if not isinstance(outcome, Applied):
            return type(outcome), str(outcome.error)
        rows = sorted(map(repr, table.rows()))
        return (
            outcome.counts,
            rows,
            {repr(row): n for row, n in table.feed(outcome.version).items()},
        )


def test_a_chunk_of_equal_rows_is_neither_folded_nor_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, shape = LocalStore(tmp_path), SHAPES[0]
    table = Mirrored(in_process_engine(store), store, HandmadeReader(store), shape).create()
    rows: list[Row] = [(n, "x", None) for n in range(10)]
    table.apply([(Marker.INSERT, row) for row in rows])
    folded: list[int] = []
    fold = batch.fold

    def counted(landed: batch.LandedBatch) -> batch.NetChanges:
        folded.append(sum(file.data.num_rows for _name, file in landed.files))
        return fold(landed)

    monkeypatch.setattr(batch, "fold", counted)
    chunk = [(Marker.UPSERT, row) for row in rows] + [(Marker.DELETE, rows[3])]
    keys = KeyRange(None, pa.table({"id": pa.array([9], pa.int64())}))
    table.apply(chunk, backfill=BackfillChunk("one", 1, keys))
    assert folded == [1]
    assert sorted(table.rows()) == [row for row in rows if row[0] != 3]
