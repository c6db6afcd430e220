"""Add actions in columns are the same actions, and the same of them can hold some keys."""

from __future__ import annotations

import json
import pickle
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlake.delta import file_list
from mirrorlake.delta.file_list import FileList, chosen, in_columns, sizes, total_bytes
from mirrorlake.delta.schema import TableSchema
from mirrorlake.delta.statistics import candidate_indexes, candidates
from mirrorlake.model.table import Column, Schema
from mirrorlake.model.types import DATE, DOUBLE, LONG, STRING, TIMESTAMP
from tests.profiles import tries

LONGS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
OTHERS = st.one_of(st.none(), st.booleans(), LONGS, TEXTS, st.lists(LONGS, max_size=1))
DAYS = st.dates(date(1960, 1, 1), date(2040, 1, 1))
TIMES = st.datetimes(datetime(1960, 1, 1), datetime(2040, 1, 1))  # noqa: DTZ001
KINDS: dict[Any, tuple[pa.DataType, Any, Any]] = {
    LONG: (pa.int64(), LONGS, LONGS),
    STRING: (pa.string(), TEXTS, TEXTS),
    DATE: (pa.date32(), DAYS, DAYS.map(date.isoformat)),
    TIMESTAMP: (
        pa.timestamp("us", "UTC"),
        TIMES,
        TIMES.map(lambda time: time.isoformat(timespec="milliseconds") + "Z"),
    ),
    DOUBLE: (pa.float64(), st.floats(allow_nan=False), st.floats(-1e9, 1e9)),
}


@st.composite
def actions(draw: st.DrawFn, bounds: Any = LONGS) -> dict[str, Any]:
    add: dict[str, Any] = {"path": draw(TEXTS), "size": draw(st.integers(0, 2**40))}
    add["partitionValues"] = draw(st.just({}) | st.dictionaries(TEXTS, st.none() | TEXTS))
    add |= {"modificationTime": draw(LONGS), "dataChange": draw(st.booleans())}
    if draw(st.booleans()):
        add["stats"] = draw(said(bounds))
    if draw(st.booleans()):
        add["deletionVector"] = {"storageType": "u", "pathOrInlineDv": "x", "offset": 1}
    if draw(st.booleans()):
        add["tags"] = draw(st.dictionaries(TEXTS, TEXTS))
    return add


@st.composite
def said(draw: st.DrawFn, bounds: Any) -> str:
    """Statistics of one column, which hold what they should, lack something, or hold nonsense."""
    stats: dict[str, Any] = {"numRecords": draw(st.integers(0, 3))}
    for name, values in [("minValues", bounds), ("maxValues", bounds), ("nullCount", st.just(0))]:
        what = draw(st.sampled_from(["said", "said", "said", "missing", "null", "other"]))
        if what == "said":
            stats[name] = {"k": draw(values), "o": draw(OTHERS)}
        elif what == "null":
            stats[name] = draw(st.sampled_from([None, {}, {"k": None}]))
        elif what == "other" and draw(st.booleans()):
            stats[name] = {"k": draw(st.integers(0, 3) if name == "nullCount" else bounds)}
    return draw(st.sampled_from([json.dumps(stats), json.dumps(stats, ensure_ascii=False), ""]))


@settings(max_examples=tries(100))
@given(st.lists(actions(), max_size=5))
def test_actions_survive_pickling(files: list[dict[str, Any]]) -> None:
    sent = pickle.loads(pickle.dumps(FileList.of(files)))
    assert list(sent) == files
    assert [sent[index] for index in range(-len(files), len(files))] == files * 2
    assert list(sent[1:3]) == files[1:3]
    picked = [*range(len(files))][::-2]
    assert chosen(sent, picked) == chosen(files, picked) == files[::-2]
    assert sizes(sent, picked) == sizes(files, picked)
    assert total_bytes(sent) == total_bytes(files)
    with pytest.raises(IndexError):
        sent[len(files)]


@settings(max_examples=tries(400))
@given(st.data())
def test_the_same_files_can_hold_the_keys(data: st.DataObject) -> None:
    column = data.draw(st.sampled_from([*KINDS]))
    kind, values, bounds = KINDS[column]
    if data.draw(st.booleans()):
        bounds = bounds | OTHERS
    files = data.draw(st.lists(actions(bounds), max_size=6))
    keys = data.draw(st.lists(st.none() | values, max_size=4))
    sought = pa.table({"k": pa.array(keys, kind)})
    schema = _schema(column)
    assert candidate_indexes(FileList.of(files), schema, sought) == candidate_indexes(
        files, schema, sought
    )
    assert candidates(FileList.of(files), schema, sought) == candidates(files, schema, sought)


def test_few_files_stay_dictionaries_and_many_become_columns() -> None:
    stats = '{"numRecords": 9, "minValues": {"k": %d}, "maxValues": {"k": %d}}'
    files = [
        {
            "path": f"part-{n:05d}.parquet",
            "partitionValues": {},
            "size": 100,
            "modificationTime": n,
            "dataChange": True,
            "stats": stats % (n, n),
        }
        for n in range(file_list.MANY)
    ]
    assert in_columns(files[1:]) == files[1:]
    many = in_columns(files)
    assert isinstance(many, FileList)
    assert len(pickle.dumps(many)) < len(pickle.dumps(files)) / 3
    (one,) = candidates(many, _schema(LONG), pa.table({"k": [17]}))
    assert one == files[17]


@pytest.mark.parametrize(
    "odd", [{"path": 1}, {"size": "x"}, {"size": 2**70}, {"stats": {"numRecords": 1}}]
)
def test_actions_that_do_not_fit_into_columns_stay_dictionaries(
    monkeypatch: pytest.MonkeyPatch, odd: dict[str, Any]
) -> None:
    monkeypatch.setattr(file_list, "MANY", 1)
    files = [{"path": "a", "partitionValues": {}, "size": 1, **odd}]
    assert in_columns(files) is files


def _schema(column: Any) -> TableSchema:
    return TableSchema(
        Schema.of([Column("k", column), Column("o", LONG)]), ("k", "o"), (None, None)
    )
