"""Columns in memory: rows that are taken out of them, however many bytes their texts have."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.model import arrow
from mirrorlake.model.arrow import taken

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
