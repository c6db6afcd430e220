"""Positions: a total order with one printed form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.model.position import Lsn, Position

lsns = st.builds(Lsn, st.integers(0, 2**64 - 1))
positions = st.builds(Position, lsns, st.integers(0, 2**62))


@given(lsns)
def test_a_log_sequence_number_is_read_as_printed(lsn: Lsn) -> None:
    assert Lsn.parse(str(lsn)) == lsn


def test_a_log_sequence_number_prints_as_postgresql_does() -> None:
    assert str(Lsn(0x16_B374D848)) == "16/B374D848"


@pytest.mark.parametrize("text", ["", "/", "0", "0/", "/0", "0/G", "0/0/0", "0 1", "-1/0", "+1/0"])
def test_other_text_is_no_log_sequence_number(text: str) -> None:
    with pytest.raises(ValueError, match="not a log sequence number"):
        Lsn.parse(text)


@pytest.mark.parametrize("text", ["0/123456789", "123456789/0"])
def test_a_half_of_a_log_sequence_number_has_32_bits(text: str) -> None:
    with pytest.raises(ValueError, match="not a log sequence number"):
        Lsn.parse(text)


@given(positions)
def test_a_position_is_read_as_printed(position: Position) -> None:
    assert Position.parse(str(position)) == position


def test_a_position_prints_its_transaction_first() -> None:
    assert str(Position(Lsn(0x4BFD4D8), 17)) == "0/4BFD4D8:17"


@pytest.mark.parametrize("text", ["", ":", "0/1", "0/1:", ":1", "0/1:-1", "0/1:x", "0/1:²"])
def test_other_text_is_no_position(text: str) -> None:
    with pytest.raises(ValueError, match="not a"):
        Position.parse(text)


def test_the_source_reads_the_part_of_the_log() -> None:
    assert Position.parse("binlog.000002:4:7", str) == Position("binlog.000002:4", 7)


@given(positions, positions)
def test_exactly_one_of_less_equal_and_greater_holds(one: Position, other: Position) -> None:
    assert [one < other, one == other, one > other].count(True) == 1


@given(positions, positions)
def test_the_transaction_counts_before_the_ordinal(one: Position, other: Position) -> None:
    by_hand = (one.end.value, one.ordinal) < (other.end.value, other.ordinal)
    assert (one < other) == by_hand


@given(st.lists(positions, max_size=20))
def test_positions_sort_like_their_numbers(found: list[Position]) -> None:
    numbers = [(p.end.value, p.ordinal) for p in sorted(found)]
    assert numbers == sorted(numbers)


@given(lsns, lsns, st.integers(0, 2**60))
def test_the_position_after_a_transaction_is_behind_all_of_it(
    end: Lsn, other: Lsn, ordinal: int
) -> None:
    assert (Position(other, ordinal) < Position.after(end)) == (other <= end)


@given(positions, positions)
def test_less_or_equal_agrees_with_less(one: Position, other: Position) -> None:
    assert (one <= other) == (not other < one)
