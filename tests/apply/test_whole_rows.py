"""Tables of which all columns are the key, by each way in which rows are found and written."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mirrorlake.model import types
from mirrorlake.model.change import ROW_POSITION, Marker
from mirrorlake.storage.local import LocalStore
from tests.conformance.apply.checks import check
from tests.conformance.apply.player import Subject, play
from tests.conformance.apply.whole_rows import WHOLE_ROWS
from tests.conformance.mirrored import Mirrored
from tests.delta.lookup_ways import Way, forced
from tests.doubles.handmade_engine import HandmadeReader, by_plain_columns, in_process_engine
from tests.histories import DECIMAL, VALUES, Shape, counted
from tests.profiles import some, tries
from tests.reference import Row, identity

KINDS = [
    *(types.BOOLEAN, types.BYTE, types.SHORT, types.INTEGER, types.LONG, types.FLOAT),
    *(types.DOUBLE, types.STRING, types.BINARY, DECIMAL, types.DATE, types.TIMESTAMP),
]
EVERY = Shape.of([], **{f"c {number}": kind for number, kind in enumerate(KINDS)})

_numbers = itertools.count(1)


@pytest.mark.parametrize("way", some(list(Way), 2))
def test_whole_rows_are_found_by_each_lookup_method(way: Way, tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "root")
    subject = Subject(lambda: in_process_engine(store), store, HandmadeReader(store))
    with forced(way):
        for played in play(subject, WHOLE_ROWS).values():
            check(played)


@st.composite
def batches(draw: st.DrawFn) -> list[list[tuple[Marker, Row]]]:
    """Changes of a few rows, each of which is deleted only while it is there."""
    values = [st.sampled_from(VALUES["decimal" if k is DECIMAL else k.name]) for k in KINDS]
    some_rows = draw(st.lists(st.tuples(*values), min_size=1, max_size=4))
    there: Counter[Row] = Counter()
    drawn = []
    for _ in range(draw(st.integers(1, 5))):
        batch = []
        for row in draw(st.lists(st.sampled_from(some_rows), max_size=8)):
            goes = there[identity(row)] > 0 and draw(st.booleans())
            there[identity(row)] += -1 if goes else 1
            batch.append((Marker.DELETE if goes else Marker.INSERT, row))
        drawn.append(batch)
    return drawn


@pytest.mark.parametrize("kind", ["direct", "merge", "partitioned"])
@settings(max_examples=tries(20), suppress_health_check=list(HealthCheck))
@given(drawn=batches())
def test_values_of_every_type_are_found(store: LocalStore, kind: str, drawn) -> None:
    partitions = by_plain_columns if kind == "partitioned" else lambda _schema: ()
    engine = in_process_engine(store, merges=kind == "merge", partitions=partitions)
    path = f"Tables/t{next(_numbers)}"
    table = Mirrored(engine, store, HandmadeReader(store), EVERY, path).create()
    there: list[Row] = []
    for batch in drawn:
        if not batch:
            continue
        table.apply(batch[: len(batch) // 2], batch[len(batch) // 2 :], whole_rows=True)
        for marker, row in batch:
            if marker is Marker.INSERT:
                there.append(row)
            else:
                there.pop(next(i for i, one in enumerate(there) if identity(one) == identity(row)))
        assert counted(table.rows()) == counted(there)


@pytest.mark.parametrize("kind", ["direct", "merge"])
@settings(max_examples=tries(20), suppress_health_check=list(HealthCheck))
@given(drawn=st.lists(st.lists(st.integers(-3, 3), max_size=8), min_size=1, max_size=4))
def test_metadata_columns_do_not_identify_rows(store: LocalStore, kind: str, drawn) -> None:
    shape = Shape.of([], v=types.LONG, **{ROW_POSITION: types.STRING})
    engine = in_process_engine(store, merges=kind == "merge")
    path = f"Tables/t{next(_numbers)}"
    table = Mirrored(engine, store, HandmadeReader(store), shape, path).create()
    there: Counter[int] = Counter()
    positions = map(str, itertools.count(1))
    for batch in drawn:
        changes = []
        for value in batch:
            if value >= 0 or there[-value]:
                there[abs(value)] += 1 if value >= 0 else -1
                marker = Marker.INSERT if value >= 0 else Marker.DELETE
                changes.append((marker, (abs(value), next(positions))))
        if changes:
            table.apply(changes, whole_rows=True)
            rows = table.rows()
            assert Counter(value for value, _position in rows) == +there
            assert len({position for _value, position in rows}) == len(rows)
