"""Joins of unified types: the order of the types of its values does not count for a column."""

from __future__ import annotations

from decimal import Decimal
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.events import types
from mirrorlake.events.types import UnifiedKind, UnifiedType
from mirrorlake.events.wider import has_every_value, joined

DECIMALS = st.builds(
    lambda digits, scale: types.decimal(max(digits + scale, 1), scale),
    st.integers(0, 40),
    st.integers(0, 40),
)
_PLAIN = [
    UnifiedType(kind)
    for kind in UnifiedKind
    if kind not in {UnifiedKind.ARRAY, UnifiedKind.DECIMAL, UnifiedKind.VARCHAR}
]
SIMPLE = st.one_of(
    st.sampled_from(_PLAIN),
    st.sampled_from([types.INTEGER, types.LONG, types.FLOAT, types.DOUBLE]),
    st.sampled_from([types.STRING, types.NUMBER]),
    st.builds(types.varchar, st.integers(1, 20)),
    DECIMALS,
)
KINDS = st.one_of(SIMPLE, SIMPLE.map(types.array), SIMPLE.map(types.array).map(types.array))
"""Types, those of which some have joins more often."""


def of_both(first: UnifiedType | None, second: UnifiedType | None) -> UnifiedType | None:
    return None if first is None or second is None else joined(first, second)


@pytest.mark.clause("ST-262")
@given(first=KINDS, second=KINDS, third=KINDS)
def test_the_order_of_types_does_not_count(
    first: UnifiedType, second: UnifiedType, third: UnifiedType
) -> None:
    assert joined(first, first) == first
    assert joined(first, second) == joined(second, first)
    assert of_both(joined(first, second), third) == of_both(first, joined(second, third))


@given(given_types=st.lists(SIMPLE, min_size=1, max_size=4))
def test_any_order_of_types_makes_the_same_one(given_types: list[UnifiedType]) -> None:
    found = set()
    for order in permutations(given_types):
        kind: UnifiedType | None = order[0]
        for one in order[1:]:
            kind = of_both(kind, one)
        found.add(kind)
    assert len(found) == 1


@given(first=KINDS, second=KINDS)
def test_the_join_has_the_values_of_both_types_and_is_the_least_that_has(
    first: UnifiedType, second: UnifiedType
) -> None:
    both = joined(first, second)
    if both is not None:
        assert has_every_value(both, first)
        assert has_every_value(both, second)
        assert joined(both, first) == joined(both, second) == both
    if has_every_value(first, second):
        # Of two types of the same values, as texts of any length, the join is one.
        assert both == first or (both is not None and has_every_value(second, first))


@given(first=KINDS, second=KINDS, third=KINDS)
def test_no_other_type_of_both_values_is_less(
    first: UnifiedType, second: UnifiedType, third: UnifiedType
) -> None:
    both = joined(first, second)
    is_above = joined(first, third) == joined(second, third) == third
    if is_above:
        assert both is not None
        assert joined(both, third) == third


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        (types.INTEGER, types.LONG, types.LONG),
        (types.INTEGER, types.FLOAT, types.DOUBLE),
        (types.INTEGER, types.DOUBLE, types.DOUBLE),
        (types.FLOAT, types.DOUBLE, types.DOUBLE),
        (types.LONG, types.DOUBLE, None),
        (types.FLOAT, types.decimal(5, 2), None),
        (types.INTEGER, types.decimal(5, 2), types.decimal(12, 2)),
        (types.LONG, types.decimal(5, 5), types.decimal(24, 5)),
        (types.decimal(5, 2), types.decimal(6, 0), types.decimal(8, 2)),
        (types.decimal(38, 0), types.decimal(38, 38), types.decimal(76, 38)),
        (types.NUMBER, types.STRING, types.STRING),
        (types.NUMBER, types.varchar(5), types.STRING),
        (types.varchar(5), types.varchar(10), types.varchar(10)),
        (types.varchar(5), types.STRING, types.STRING),
        (types.DATETIME, types.TIMESTAMP, types.TIMESTAMP),
        (types.array(types.INTEGER), types.array(types.LONG), types.array(types.LONG)),
        (types.array(types.INTEGER), types.LONG, None),
        (types.STRING, types.BYTES, None),
        (types.LONG, types.TIME_INTERVAL, None),
        (types.TIMESTAMP, types.TIMESTAMP_WITH_TIME_ZONE, None),
        (types.LONG, types.NUMBER, None),
        (types.STRING, types.JSON, None),
        (types.LONG, types.UNSUPPORTED, None),
    ],
    ids=str,
)
def test_the_join_of_types(
    first: UnifiedType, second: UnifiedType, both: UnifiedType | None
) -> None:
    assert joined(first, second) == both


@given(kind=DECIMALS, other=DECIMALS, digits=st.integers(0, 10**40))
def test_a_decimal_has_the_digits_of_both(
    kind: UnifiedType, other: UnifiedType, digits: int
) -> None:
    both = joined(kind, other)
    assert both is not None
    for one in (kind, other):
        value = Decimal(f"{digits % 10**one.precision}e-{one.scale}")
        whole, _, fraction = f"{value:f}".lstrip("0").partition(".")
        assert len(whole) <= both.precision - both.scale
        assert len(fraction) <= both.scale
