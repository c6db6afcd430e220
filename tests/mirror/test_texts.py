"""Delimited text on a table without a key: it only grows."""

from __future__ import annotations

import io

import pytest

from mirrorlake.apply.fold import LandedBatch, fold
from mirrorlake.errors import KeyedChangeWithoutKey
from mirrorlake.landing import text as delimited
from mirrorlake.landing.text.format import TextFormat
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from mirrorlake.model.net_changes import NetChanges
from mirrorlake.model.table import Column, Schema

SCHEMA = Schema.of([Column("a", types.STRING)])


def folded(text: str, default: Marker = Marker.INSERT) -> NetChanges:
    content = text.encode()
    named = {"table": "t", "file": "f"}
    rows = delimited.read(io.BytesIO(content), len(content), SCHEMA, default, TextFormat(), **named)
    return fold(LandedBatch("t", SCHEMA, [], [("f", rows)]))


@pytest.mark.clause("LZ-034")
def test_rows_are_inserted_in_order() -> None:
    assert folded("a\n1\n1\n").rows["a"].to_pylist() == ["1", "1"]


@pytest.mark.clause("LZ-034", "LZ-043")
@pytest.mark.parametrize("marker", [1, 2, 4])
def test_nothing_else_is_possible(marker: int) -> None:
    with pytest.raises(KeyedChangeWithoutKey) as caught:
        folded(f"a,__rowMarker__\n1,0\n1,{marker}\n")
    assert caught.value.row == 2


@pytest.mark.clause("LZ-044")
def test_an_upsert_by_default_is_a_keyed_change() -> None:
    with pytest.raises(KeyedChangeWithoutKey):
        folded("a\n1\n", default=Marker.UPSERT)
