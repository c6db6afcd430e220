"""Keys as numbers: equal keys, and only these, get equal codes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mirrorlake.model import keys
from mirrorlake.model.arrow import arrow_type
from tests.histories import SHAPES, VALUES, Shape
from tests.reference import identity


@st.composite
def key_rows(draw: st.DrawFn) -> tuple[Shape, pa.Table, list[tuple]]:
    """Rows of the key columns of some table."""
    shape = draw(st.sampled_from(list(SHAPES.values())))
    one = st.tuples(*(st.sampled_from(VALUES[column.type.name]) for column in shape.schema))
    rows = draw(st.lists(one, max_size=12))
    found = [tuple(row[index] for index in shape.indexes) for row in rows]
    return shape, shape.arrow(rows).select(list(shape.key)), found


@given(key_rows())
@pytest.mark.clause("LZ-256", "LZ-257")
def test_keys_have_equal_codes_exactly_if_they_are_equal(drawn) -> None:
    _shape, table, rows = drawn
    code = keys.encode(table).code
    for i, one in enumerate(rows):
        for j, other in enumerate(rows):
            assert (code[i] == code[j]) == (identity(one) == identity(other))


@given(key_rows())
def test_codes_count_up_in_the_order_in_which_keys_first_occur(drawn) -> None:
    _shape, table, rows = drawn
    seen = list(dict.fromkeys(identity(row) for row in rows))
    assert keys.encode(table).code.tolist() == [seen.index(identity(row)) for row in rows]


@given(key_rows())
def test_the_first_row_of_each_key_is_returned(drawn) -> None:
    _shape, table, rows = drawn
    same = [identity(row) for row in rows]
    assert keys.encode(table).first.tolist() == [same.index(key) for key in dict.fromkeys(same)]


@given(
    st.lists(
        st.sampled_from([["x"] * 4, [True] * 4, [1, 2, 1, 2], [1, 1, 2, 2], [1, 2, 3, 1]]),
        min_size=1,
        max_size=4,
    )
)
def test_columns_of_one_value_or_few_tell_no_less_apart(columns) -> None:
    rows = list(zip(*columns, strict=True))
    seen = list(dict.fromkeys(rows))
    table = pa.table(columns, names=[str(index) for index in range(len(columns))])
    assert keys.encode(table).code.tolist() == [seen.index(row) for row in rows]


@given(key_rows(), st.integers(1, 4))
def test_chunks_make_no_difference(drawn, size: int) -> None:
    _shape, table, rows = drawn
    parts = [table.slice(start, size) for start in range(0, len(rows), size)]
    chunked = pa.concat_tables([table.slice(0, 0), *parts])
    assert keys.encode(chunked).code.tolist() == keys.encode(table).code.tolist()


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-9, 9), max_size=40), st.data())
def test_whole_numbers_have_the_codes_that_texts_of_them_have(
    numbers: list[int], data: st.DataObject
) -> None:
    """Close together they are looked up in another way than far apart, or beside a NULL."""
    near = data.draw(st.integers(-(2**63), 2**63 - 20 * keys.CLOSE), "near")
    close = [near + number % (20 * keys.CLOSE) for number in numbers]
    for values in (numbers, close, [*close, None]):
        found = keys.encode(pa.table({"k": pa.array(values, pa.int64())}))
        texts = pa.array([None if v is None else str(v) for v in values], pa.string())
        as_text = keys.encode(pa.table({"k": texts}))
        assert found.code.tolist() == as_text.code.tolist()
        assert found.first.tolist() == as_text.first.tolist()


@pytest.mark.parametrize(
    ("arrow", "numbers", "layout"),
    [
        (
            pa.float64(),
            "<d",
            [b"\0\0\0\0\0\0\xf8\x7f", b"\0\0\0\0\0\0\xf8\xff", b"\1\0\0\0\0\0\xf0\x7f"],
        ),
        (pa.float32(), "<f", [b"\0\0\xc0\x7f", b"\0\0\xc0\xff", b"\1\0\x80\x7f"]),
    ],
)
def test_every_nan_is_the_same_key(arrow: pa.DataType, numbers: str, layout: list[bytes]) -> None:
    values = np.frombuffer(b"".join(layout), numbers)
    assert all(np.isnan(values))
    assert keys.encode(pa.table({"k": pa.array(values, arrow)})).code.tolist() == [0, 0, 0]


def test_zero_and_minus_zero_are_two_keys() -> None:
    table = pa.table({"k": pa.array([0.0, -0.0, 0.0], pa.float64())})
    assert keys.encode(table).code.tolist() == [0, 1, 0]


def test_many_rows_of_many_columns_do_not_collide() -> None:
    n = 200_000
    numbers = np.arange(n)
    table = pa.table({f"k{i}": pa.array(numbers // 3**i) for i in range(6)})
    assert keys.encode(table).code.tolist() == numbers.tolist()


RANGED = [
    shape
    for shape in SHAPES.values()
    if all(keys.is_ordered(arrow_type(shape.schema[name].type)) for name in shape.key)
]


@st.composite
def ranges(draw: st.DrawFn) -> tuple[Shape, pa.Table, list[tuple], keys.KeyRange, list]:
    """Rows of the key columns of some table, and a range: also as plain bounds."""
    shape = draw(st.sampled_from(RANGED))
    known = [
        [value for value in VALUES[shape.schema[name].type.name] if value is not None]
        for name in shape.key
    ]
    values = [st.sampled_from([*some, None]) for some in known]
    rows = draw(st.lists(st.tuples(*values), max_size=12))
    kinds = [arrow_type(shape.schema[name].type) for name in shape.key]
    ends = []
    for _ in range(2):
        width = draw(st.integers(0, len(known)))
        ends.append(tuple(draw(st.sampled_from(some)) for some in known[:width]))
    low, high = (_table(shape.key, kinds, [end]) if end else None for end in ends)
    table = _table(shape.key, kinds, rows)
    place = draw(st.integers(0, len(known) - 1))
    limits = []
    for _ in range(2):
        value = draw(st.none() | st.sampled_from(known[place]))
        ends.append(None if value is None else (place, value))
        name, kind = shape.key[place], kinds[place]
        limits.append(None if value is None else pa.table({name: pa.array([value], kind)}))
    is_closed = draw(st.booleans())
    return shape, table, rows, keys.KeyRange(low, high, is_closed, *limits), ends


def _table(names, kinds, rows) -> pa.Table:
    columns = [
        [row[index] for row in rows] for index in range(min(map(len, rows), default=len(kinds)))
    ]
    return pa.table(
        [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=False)],
        names=list(names)[: len(columns)],
    )


def _sortable(row: tuple) -> tuple:
    """NULL is greater than every value."""
    found = (value.encode() if isinstance(value, str) else value for value in row)
    return tuple((value is None, value if value is not None else 0) for value in found)


@given(ranges())
def test_a_range_contains_the_keys_between_its_bounds(drawn) -> None:
    _shape, table, rows, asked, (low, high, least, below) = drawn
    expected = []
    for row in map(_sortable, rows):
        above = not low or row[: len(low)] > _sortable(low)
        above = above or (asked.is_closed and row[: len(low)] == _sortable(low))
        inside = above and (not high or row[: len(high)] <= _sortable(high))
        inside &= least is None or row[least[0]] >= _sortable(least[1:])[0]
        expected.append(inside and (below is None or row[below[0]] < _sortable(below[1:])[0]))
    assert asked.contains(table).tolist() == expected
    assert keys.KeyRange.parse(asked.as_record()) == asked
    assert keys.KeyRange.parse(asked.as_record()).contains(table).tolist() == expected


@given(ranges())
def test_rows_are_ascending_if_each_key_is_greater_than_the_one_before(drawn) -> None:
    shape, table, rows, _asked, _ends = drawn
    found = list(map(_sortable, rows))
    assume(not any(None in row for row in rows))
    assert keys.is_ascending(table, shape.key) == (found == sorted(set(found)))


def test_the_parts_of_a_range_have_its_limits() -> None:
    low, high = (pa.table({"a": [n]}) for n in (1, 5))
    least, below = (pa.table({"b": [n]}) for n in (10, 20))
    asked = keys.KeyRange(low, None, True, least, below)
    rows = pa.table({"a": [1, 1, 3, 9, 3], "b": [10, 20, 19, 11, 9]})
    assert asked.contains(rows).tolist() == [True, False, True, True, False]
    assert asked.ends_at(pa.table(high)).contains(rows).tolist() == [
        True,
        False,
        True,
        False,
        False,
    ]
    assert asked.beyond(pa.table(high)).contains(rows).tolist() == [
        False,
        False,
        False,
        True,
        False,
    ]


def test_a_release_that_knows_no_limits_does_not_take_a_range_with_them_for_all_keys() -> None:
    record = keys.KeyRange(least=pa.table({"b": [10]})).as_record()
    assert not {"low", "high", "is_closed"} & record.keys()


@pytest.mark.parametrize("text", ["", "!", "AAAA", 1])
def test_a_damaged_bound_is_not_a_range(text) -> None:
    with pytest.raises(ValueError, match="bound"):
        keys.KeyRange.parse({"low": text, "high": None, "is_closed": True})
