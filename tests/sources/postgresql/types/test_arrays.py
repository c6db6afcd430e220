"""Arrays become JSON, many at a time, as a reader of one character at a time would do it."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mirrorlake.sources.postgresql.types.arrays import arrays_to_json, json_to_array
from mirrorlake.sources.postgresql.types.mapping import Element
from tests.sources.postgresql.array_texts import read_array, write_array

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=8)
ODD_TEXTS = st.text('",\\{}[]=NULnul \t\n\x01\x1f\x7fé😀', max_size=8)
NUMBERS = st.sampled_from(["0", "-1", "1.50", "1e+20", "-1e-07", "NaN", "Infinity", "-Infinity"])
JSON_TEXTS = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS | ODD_TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
).map(lambda value: json.dumps(value, ensure_ascii=False))


@st.composite
def arrays(draw: st.DrawFn, elements: st.SearchStrategy[str]) -> list[Any]:
    """Nested lists of one to three dimensions, all lists of a dimension of one length."""
    lengths = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))

    def build(left: list[int]) -> Any:
        if not left:
            return draw(st.none() | elements)
        return [build(left[1:]) for _ in range(left[0])]

    return draw(st.just([]) | st.just(build(lengths)))


def columns(elements: st.SearchStrategy[str]) -> st.SearchStrategy[list[list[Any] | None]]:
    return st.lists(st.none() | arrays(elements), max_size=6)


def converted(column: list[list[Any] | None], element: Element) -> list[Any]:
    texts = [None if value is None else write_array(value) for value in column]
    found = arrays_to_json(pa.array(texts, pa.string()), element)
    found.validate(full=True)
    return [None if text is None else json.loads(text) for text in found.to_pylist()]


def mapped(value: Any, leaf: Any) -> Any:
    """The nested lists with `leaf` of every element that is not None."""
    if isinstance(value, list):
        return [mapped(each, leaf) for each in value]
    return None if value is None else leaf(value)


@given(columns(TEXTS | ODD_TEXTS))
def test_what_is_written_is_read_by_the_plain_reader(column: list[list[Any] | None]) -> None:
    for value in column:
        assert value is None or read_array(write_array(value)) == value


@given(columns(TEXTS | ODD_TEXTS))
@example([["\x01", "a\x02", "\x03b"], None, [["\x1f"]]])
def test_texts_come_through(column: list[list[Any] | None]) -> None:
    assert converted(column, Element.TEXT) == column


@given(columns(NUMBERS))
def test_numbers_are_numbers_and_those_json_lacks_are_texts(column: list[Any]) -> None:
    lacking = {"NaN", "Infinity", "-Infinity"}
    expected = mapped(column, lambda text: text if text in lacking else float(text))
    assert converted(column, Element.NUMBER) == expected


@given(columns(st.sampled_from(["t", "f"])))
def test_truth_values_are_truth_values(column: list[Any]) -> None:
    assert converted(column, Element.BOOLEAN) == mapped(column, lambda text: text == "t")


@given(columns(JSON_TEXTS))
def test_json_stands_in_the_array_as_it_is(column: list[Any]) -> None:
    assert converted(column, Element.JSON) == mapped(column, json.loads)


@given(st.lists(st.tuples(st.sampled_from(["", "[0:1]=", "[-5:-4][2:2]="]), arrays(TEXTS))))
def test_lower_bounds_are_left_out(rows: list[tuple[str, list[Any]]]) -> None:
    texts = [bounds + write_array(value) for bounds, value in rows]
    found = arrays_to_json(pa.array(texts, pa.string()), Element.TEXT)
    assert [json.loads(text) for text in found.to_pylist()] == [read_array(t) for t in texts]


@given(columns(TEXTS | ODD_TEXTS), st.integers(0, 3))
def test_a_slice_of_a_column_is_converted_like_a_column(column: list[Any], start: int) -> None:
    texts = pa.array([None if v is None else write_array(v) for v in column], pa.string())
    whole = arrays_to_json(texts, Element.TEXT).to_pylist()
    assert arrays_to_json(texts.slice(start), Element.TEXT).to_pylist() == whole[start:]


@pytest.mark.parametrize("texts", [[], [None], [None, None]])
def test_a_column_without_values_stays_as_it_is(texts: list[None]) -> None:
    assert arrays_to_json(pa.array(texts, pa.string()), Element.TEXT).to_pylist() == texts


@given(columns(TEXTS | ODD_TEXTS))
def test_what_became_json_becomes_the_array_again(column: list[Any]) -> None:
    texts = [write_array(value) for value in column if value is not None]
    found = arrays_to_json(pa.array(texts, pa.string()), Element.TEXT).to_pylist()
    assert [read_array(json_to_array(text)) for text in found] == [read_array(t) for t in texts]
