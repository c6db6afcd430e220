"""The golden examples A and B in every form: marker first and last, as Parquet and as CSV, integer
and text markers, in one file and split over one file per row."""

from __future__ import annotations

import io
import itertools
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from mirrorlake.apply.fold import LandedBatch, fold
from mirrorlake.landing import text as delimited
from mirrorlake.landing.parquet import reader as parquet
from mirrorlake.landing.parquet.reader import Rows
from mirrorlake.landing.text.format import TextFormat
from mirrorlake.model import types
from mirrorlake.model.change import MARKER_COLUMN, Marker
from mirrorlake.model.table import Column, Schema
from tests.landing.files import encoded

KEY = "EmployeeID"
SCHEMA = Schema.of([Column(KEY, types.STRING), Column("EmployeeLocation", types.STRING)])
Change = tuple[int, str, str | None]

A: Sequence[Change] = [
    (0, "E0001", "Redmond"),
    (0, "E0002", "Redmond"),
    (0, "E0003", "Redmond"),
    (1, "E0001", "Bellevue"),
]
B: Sequence[Change] = [(0, "E0001", "Bellevue"), (2, "E0001", None), (0, "E0002", "Bellevue")]
ROWS_A = [("E0001", "Bellevue"), ("E0002", "Redmond"), ("E0003", "Redmond")]
ROWS_B = [("E0002", "Bellevue")]


def as_parquet(changes: Sequence[Change], *, first: bool, text: bool) -> Rows:
    marker = pa.array([str(c[0]) if text else c[0] for c in changes])
    data = pa.table({KEY: [c[1] for c in changes]})
    data = data.append_column("EmployeeLocation", pa.array([c[2] for c in changes], pa.string()))
    content = encoded(data.add_column(0 if first else 2, MARKER_COLUMN, marker))
    named = {"table": "t", "file": "f"}
    return parquet.read(io.BytesIO(content), len(content), SCHEMA, Marker.INSERT, **named)


def as_csv(changes: Sequence[Change], *, first: bool, text: bool) -> Rows:
    def line(marker: Any, *data: str | None) -> str:
        marker = f'"{marker}"' if text else str(marker)
        fields = [value or "" for value in data]
        return ",".join([marker, *fields] if first else [*fields, marker]) + "\r\n"

    lines = [line(*change) for change in [(MARKER_COLUMN, *SCHEMA.names), *changes]]
    content = "".join(lines).encode()
    named = {"table": "t", "file": "f"}
    return delimited.read(
        io.BytesIO(content), len(content), SCHEMA, Marker.INSERT, TextFormat(), key=[KEY], **named
    )


@pytest.mark.clause("LZ-314", "LZ-315", "LZ-316")
@pytest.mark.parametrize(("changes", "expected"), [(A, ROWS_A), (B, ROWS_B)], ids=["A", "B"])
@pytest.mark.parametrize("write", [as_parquet, as_csv])
@pytest.mark.parametrize(
    ("first", "text", "split"), list(itertools.product([True, False], repeat=3))
)
def test_the_rows_of_the_example(
    changes: Sequence[Change],
    expected: list[tuple[str, str]],
    write: Any,
    first: bool,
    text: bool,
    split: bool,
) -> None:
    parts = [[change] for change in changes] if split else [changes]
    files = [(f"f{i}", write(part, first=first, text=text)) for i, part in enumerate(parts)]
    net = fold(LandedBatch("t", SCHEMA, [KEY], files))
    assert sorted(tuple(row.values()) for row in net.rows.to_pylist()) == expected
