"""What a comparison of rows says is what a comparison of each row says."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.app.verification.comparison import Differences, compare
from mirrorlake.errors import TableError

SCHEMA = pa.schema([("a", pa.int32()), ("b", pa.string()), ("value", pa.float64())])
NAN = float("nan")
KEYS = st.tuples(st.integers(0, 3), st.sampled_from(["", "x", "é"]))
VALUES = st.sampled_from([None, NAN, 0.0, -0.0, 1.5])


def rows_of(rows: list[tuple[int, str, float | None]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return pa.table(
        [pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)],
        schema=SCHEMA,
    )


def narrow(values: list[float | None]) -> pa.Table:
    return pa.table({"value": pa.array(values, pa.float32())})


def wide(values: list[float | None]) -> pa.Table:
    return pa.table({"value": pa.array(values, pa.float64())})


def texts(rows: list[tuple[int, str, float | None]]) -> list[tuple[int, str, str]]:
    return [(a, b, repr(value)) for a, b, value in rows]


@pytest.mark.clause("CF-085")
@given(st.dictionaries(KEYS, VALUES), st.dictionaries(KEYS, VALUES))
def test_rows_of_a_key(
    source: dict[tuple[int, str], float | None], mirrored: dict[tuple[int, str], float | None]
) -> None:
    found = compare(
        rows_of([(*key, value) for key, value in source.items()]),
        rows_of([(*key, value) for key, value in mirrored.items()]),
        ["a", "b"],
        "t",
        most=100,
    )
    both = source.keys() & mirrored.keys()
    different = {key for key in both if repr(source[key]) != repr(mirrored[key])}
    expected = {
        "missing": source.keys() - mirrored.keys(),
        "extra": mirrored.keys() - source.keys(),
        "different": different,
    }
    for kind, keys in expected.items():
        assert getattr(found, kind) == len(keys)
        assert {(one["a"], one["b"]) for one in found.examples.get(kind, ())} == keys
    assert dict(found.columns) == ({"value": len(different)} if different else {})


@pytest.mark.clause("CF-085")
@given(st.lists(st.tuples(st.integers(0, 1), st.just("x"), VALUES)), st.data())
def test_whole_rows(source: list[tuple[int, str, float | None]], data: st.DataObject) -> None:
    mirrored = data.draw(st.permutations(source)) + data.draw(
        st.lists(st.tuples(st.integers(0, 1), st.just("x"), VALUES))
    )
    mirrored = mirrored[data.draw(st.integers(0, 3)) :]
    found = compare(rows_of(source), rows_of(mirrored), [], "t", most=3)
    left, right = Counter(texts(source)), Counter(texts(mirrored))
    assert (found.missing, found.extra) == ((left - right).total(), (right - left).total())
    assert (found.different, dict(found.columns)) == (0, {})


def test_ranges_are_joined_with_some_examples() -> None:
    one = Differences(2, 1, missing=1, columns={"a": 1}, examples={"missing": [{"a": 1}]})
    assert one.joined(one, most=1) == Differences(
        4, 2, missing=2, columns={"a": 2}, examples={"missing": [{"a": 1}]}
    )


def test_a_column_that_the_mirror_lacks_is_an_error() -> None:
    rows = rows_of([(1, "x", NAN)])
    with pytest.raises(TableError, match=r"does not have a column of the source.*column value"):
        compare(rows, rows.drop_columns("value"), ["a", "b"], "t", most=1)
    with pytest.raises(TableError, match="the types of the column differ: double and float"):
        compare(narrow([0.1, None, NAN]), wide([0.1, None, NAN]), [], "t", most=1)
    assert not compare(narrow([0.5, None, NAN]), wide([0.5, None, NAN]), [], "t", most=1).count
    other = rows.set_column(0, "a", pa.array(["one"]))
    with pytest.raises(TableError, match="the types of the column differ: string and int32"):
        compare(rows, other, ["a", "b"], "t", most=1)
