"""Columns in memory: rows that are taken out of them, however many bytes their texts have, and as
Python values, whatever their years."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.model import arrow
from mirrorlake.model.arrow import python_rows, taken

TEXTS = st.lists(st.none() | st.text(max_size=20), min_size=1, max_size=30)


@given(texts=TEXTS, data=st.data(), room=st.integers(1, 60))
def test_rows_are_taken_by_their_numbers(
    texts: list[str | None], data: st.DataObject, room: int
) -> None:
    whole = pa.table(
        {
            "text": pa.chunked_array([texts, texts[:3]], pa.string()),
            "bytes": pa.chunked_array(
                [[t and t.encode() for t in [*texts, *texts[:3]]]], pa.binary()
            ),
            "number": range(len(texts) + len(texts[:3])),
        }
    )
    indexes = np.array(data.draw(st.permutations(range(whole.num_rows))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow, "ROOM", room)
        found = taken(whole, indexes)
    assert found.schema == whole.schema
    assert found.to_pylist() == whole.take(pa.array(indexes)).to_pylist()


@pytest.mark.long
def test_texts_that_exceed_one_array_become_several_chunks() -> None:
    text = pa.repeat("x" * 1_000, 600_000)
    rows = pa.table({"t": pa.chunked_array([text] * 4), "n": np.arange(2_400_000)})
    found = taken(rows, np.arange(2_400_000)[::-1])
    assert found["n"][0].as_py() == 2_399_999
    assert found["t"].num_chunks > 1
    assert found["t"][0].as_py() == found["t"][-1].as_py() == "x" * 1_000


MICROS = st.none() | st.integers(-(2**63) + 1, 2**63 - 1) | st.integers(-(10**15), 10**15)
DAYS = st.none() | st.integers(-(2**31), 2**31 - 1) | st.integers(-30_000, 30_000)


@given(rows=st.lists(st.tuples(MICROS, DAYS), max_size=20), zone=st.sampled_from(["UTC", None]))
def test_rows_have_the_moments_that_python_lacks_as_texts(
    rows: list[tuple[int | None, int | None]], zone: str | None
) -> None:
    moments, days = ([row[index] for row in rows] for index in (0, 1))
    table = pa.table(
        {
            "t": pa.array(moments, pa.int64()).cast(pa.timestamp("us", zone)),
            "d": pa.array(days, pa.int32()).cast(pa.date32()),
            "n": pa.array(range(len(rows)), pa.int32()),
        }
    )
    found = python_rows(table)
    assert [row["n"] for row in found] == list(range(len(rows)))
    for row, micros, day in zip(found, moments, days, strict=True):
        same_moment(row["t"], micros, zone)
        same_day(row["d"], day)


def same_moment(found: Any, micros: int | None, zone: str | None) -> None:
    if isinstance(found, str):
        text = found.removesuffix("+00:00")
        assert (text != found) is (zone is not None)
        assert not 1 <= int(re.match(r"[+-]?\d+", text)[0]) <= 9999  # type: ignore[index]
        assert np.datetime64(text.removeprefix("+"), "us").astype(np.int64) == micros
    else:
        assert found == pa.scalar(micros, pa.timestamp("us", zone)).as_py()


def same_day(found: Any, day: int | None) -> None:
    if isinstance(found, str):
        assert not 1 <= int(re.match(r"[+-]?\d+", found)[0]) <= 9999  # type: ignore[index]
        assert np.datetime64(found.removeprefix("+"), "D").astype(np.int64) == day
    else:
        assert found == pa.scalar(day, pa.date32()).as_py()
