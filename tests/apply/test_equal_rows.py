"""Comparing a backfill chunk with the table before it is folded changes no row and no feed."""

from __future__ import annotations

import itertools
import re
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlake.apply.task import backfill_chunk, existing_deletes
from mirrorlake.apply.task.equal_rows import without_equal_rows
from mirrorlake.delta.lookup import key_range, row_cache
from mirrorlake.delta.write import data_files
from mirrorlake.landing.parquet import bounded
from mirrorlake.landing.parquet.reader import Rows
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
Numbered = tuple[int, int]


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
@given(
    drawn=landings(),
    blocks=st.tuples(st.integers(1, 5), st.integers(1, 5), st.sampled_from([0, 1 << 20])),
)
def test_comparing_first_gives_the_same_rows_and_the_same_feed(drawn, blocks) -> None:
    shape, files, landed = drawn
    compared = played(shape, files, landed, blocks, compared=1_000)
    assert compared == played(shape, files, landed, compared=0)


def played(
    shape: Shape,
    files: list[Landed],
    landed: Landed,
    blocks: tuple[int, int, int] = (100, 100, 0),
    *,
    compared: int,
) -> object:
    """blocks: rows of a landed block and of an existing one, and the size of a small file."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(backfill_chunk, "ROWS_COMPARED", compared)
        patch.setattr(bounded, "BLOCK_ROWS", blocks[0])
        patch.setattr(row_cache, "GROUP_BLOCK", blocks[1])
        patch.setattr(data_files, "ROW_GROUP", 3)
        patch.setattr(key_range, "SMALL", blocks[2])
        store = LocalStore(Path(folder))
        reader = HandmadeReader(store)
        table = Mirrored(in_process_engine(store), store, reader, shape).create()
        for file in files:
            table.apply(file)
        outcome = table.run(table.step(landed, backfill=BackfillChunk("one", 1, KeyRange())))
        if not isinstance(outcome, Applied):
            # The row is counted among those that are left.
            return type(outcome), re.sub(r"row \d+", "row", str(outcome.error))
        rows = sorted(map(repr, table.rows()))
        return (
            outcome.counts,
            rows,
            {repr(row): n for row, n in table.feed(outcome.version).items()},
        )


@st.composite
def sides(draw: st.DrawFn) -> tuple[list[list[Numbered]], list[list[Numbered]]]:
    """A chunk and what the table has, as keys with values, in blocks. Most of it is equal and in
    the order of the keys."""
    keys = sorted(draw(st.sets(st.integers(0, 9))))
    values = {key: draw(st.integers(0, 1)) for key in keys}
    landed = [(key, values[key]) for key in keys if draw(st.integers(0, 9))]
    existing = [
        (key, 1 - value if draw(st.integers(0, 9)) == 0 else value)
        for key, value in values.items()
        if draw(st.integers(0, 9))
    ]
    for _time in range(draw(st.integers(0, 3))):
        if existing and draw(st.booleans()):  # moved, as an updated row is
            existing.append(existing.pop(draw(st.integers(0, len(existing) - 1))))
        elif existing:  # there twice
            existing.append(existing[draw(st.integers(0, len(existing) - 1))])
    landed += [(key, 0) for key in draw(st.lists(st.integers(0, 9), max_size=3))]
    return in_blocks(draw, landed), in_blocks(draw, existing)


def in_blocks(draw: st.DrawFn, rows: list[Numbered]) -> list[list[Numbered]]:
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=6)))
    ends = [0, *cuts, len(rows)]
    return [rows[begin:end] for begin, end in itertools.pairwise(ends)]


@pytest.mark.clause("CF-144")
@settings(max_examples=tries(300))
@given(drawn=sides())
def test_only_equal_rows_of_keys_that_are_there_once_are_omitted(drawn) -> None:
    landed, existing = drawn
    found = without_equal_rows(map(landed_rows, landed), map(as_table, existing), ["id"])
    chunk, stored = list(itertools.chain(*landed)), list(itertools.chain(*existing))
    single = {key for key, n in Counter(key for key, _value in stored).items() if n == 1}
    if found is None:
        assert len(single) < len({key for key, _value in stored})
        return
    ascending = 1
    while ascending < len(chunk) and chunk[ascending][0] > chunk[ascending - 1][0]:
        ascending += 1
    omitted = set(Counter(stored) - as_pairs(found.existing))
    first = {key: (key, value) for key, value in reversed(chunk)}
    equal = {row for row in first.values() if row in stored and row[0] in single}
    assert equal & set(chunk[:ascending]) <= omitted <= equal
    left, spared = [], set[Numbered]()
    for row in chunk:
        if row in omitted and row not in spared:
            spared.add(row)
        else:
            left.append(row)
    assert list(zip(*found.landed.data.to_pydict().values(), strict=True)) == left


def as_table(rows: list[Numbered]) -> pa.Table:
    ids, values = (pa.array([row[i] for row in rows], pa.int64()) for i in (0, 1))
    return pa.table({"id": ids, "value": values})


def as_pairs(rows: pa.Table) -> Counter[Numbered]:
    return Counter(zip(*rows.to_pydict().values(), strict=True))


def landed_rows(rows: list[Numbered]) -> Rows:
    marker = pa.array([int(Marker.UPSERT)] * len(rows), pa.int8())
    return Rows(as_table(rows), marker, None, ("id", "value"))


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_rows_in_any_order_are_compared_with_those_of_their_keys(order: tuple[int, ...]) -> None:
    chunk = [(0, 0), (1, 0), (2, 1)]
    stored = [[(0, 0), (1, 1), (2, 1)][index] for index in order]
    found = without_equal_rows(iter([landed_rows(chunk)]), iter([as_table(stored)]), ["id"])
    assert found is not None
    assert as_pairs(found.landed.data) == Counter([(1, 0)])
    assert as_pairs(found.existing) == Counter([(1, 1)])


def test_a_chunk_of_equal_rows_is_neither_folded_nor_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, shape = LocalStore(tmp_path), SHAPES[0]
    table = Mirrored(in_process_engine(store), store, HandmadeReader(store), shape).create()
    rows: list[Row] = [(n, "x", None) for n in range(10)]
    table.apply([(Marker.INSERT, row) for row in rows])
    folded: list[int] = []
    fold = existing_deletes.fold

    def counted(landed: existing_deletes.LandedBatch) -> existing_deletes.NetChanges:
        folded.append(sum(file.data.num_rows for _name, file in landed.files))
        return fold(landed)

    monkeypatch.setattr(existing_deletes, "fold", counted)
    chunk = [(Marker.UPSERT, row) for row in rows] + [(Marker.DELETE, rows[3])]
    keys = KeyRange(None, pa.table({"id": pa.array([9], pa.int64())}))
    table.apply(chunk, backfill=BackfillChunk("one", 1, keys))
    assert folded == [1]
    assert sorted(table.rows()) == [row for row in rows if row[0] != 3]
