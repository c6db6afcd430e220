"""Clustering: the same rows, in files that follow each other by key."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlake.delta.write import compact as clustering
from mirrorlake.delta.write.compact import cluster
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from tests.delta.handmade import HandmadeTable
from tests.delta.write.test_rewrite import net_of
from tests.histories import Landing, Shape, counted
from tests.profiles import tries
from tests.reference import Change

FLOATS = st.sampled_from([float("nan"), float("-inf"), -0.0, 0.0, 1.5, 2.5])
SHAPE = Shape.of(["name", "id"], name=types.STRING, id=types.LONG)
EMPTY = pa.table({"x": pa.array([], pa.float64())})


def sorted_as_arrow(values: list[float | None]) -> pa.Table:
    table = pa.table({"x": pa.array(values, pa.float64())})
    return table.sort_by("x")


KEYS = st.tuples(st.none() | st.text("abc", max_size=3), st.integers(0, 20))


def table_of(path: Path, files: list[set[tuple[Any, ...]]]) -> HandmadeTable:
    """A table whose rows come in batches; a key of a later batch replaces an earlier row."""
    table = HandmadeTable(path, SHAPE.schema)
    for keys in files:
        rows = tuple(Change(Marker.UPSERT, key) for key in keys)
        if rows:
            table.apply(net_of(SHAPE, Landing((rows,))))
    return table


@given(files=st.lists(st.sets(KEYS, max_size=12), min_size=1, max_size=6), into=st.integers(1, 5))
@settings(max_examples=tries(20))
def test_rows_stay_and_files_follow_each_other(
    files: list[set[tuple[Any, ...]]], into: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(clustering, "SAMPLED", 1)
        table = table_of(Path(folder), files)
        before, old = counted(table.rows()), table.files
        if not old:
            return
        actions = cluster(table.path, old, table.schema, SHAPE.key, into)
        version = table.commit(actions)
        assert counted(table.rows()) == before
        assert not table.feed(version)
        assert len(table.files) <= into
        assert all(action[kind]["dataChange"] is False for action in actions for kind in action)
        names = [
            [row[0] for row in table.rows_in(table.path, add) if row[0] is not None]
            for add in table.files
        ]
        ends = sorted((min(each), max(each)) for each in names if each)
        assert all(left[1] < right[0] for left, right in pairwise(ends))


def test_rows_with_one_value_are_not_put_together_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_of(tmp_path, [{("a", 10 * part + key) for key in range(10)} for part in range(6)])
    before = counted(table.rows())
    monkeypatch.setattr(clustering, "ROWS_PER_FILE", 20)
    monkeypatch.setattr(clustering, "SAMPLED", 1)
    table.commit(cluster(table.path, table.files, table.schema, SHAPE.key, 3))
    assert counted(table.rows()) == before
    assert [json.loads(add["stats"])["numRecords"] for add in table.files] == [20, 20, 20]


@given(
    files=st.lists(
        st.lists(st.none() | FLOATS, max_size=12).map(sorted_as_arrow), min_size=1, max_size=6
    ),
    into=st.integers(1, 5),
)
def test_each_row_is_in_one_part_with_every_float(files: list[pa.Table], into: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clustering, "SAMPLED", 1)
        parts = list(clustering._parts(files, "x", into))
    before, after = (
        Counter(map(repr, pa.concat_tables(some)["x"].to_pylist()))
        for some in ([*files, EMPTY], [*parts, EMPTY])
    )
    assert after == before
