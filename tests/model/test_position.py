"""Points of a log and positions: partially ordered, each with one printed form."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.model.position import LogNumber, LogPoint, Lsn, Position
from tests.doubles.gtid import GtidSet

lsns = st.builds(Lsn, st.integers(0, 2**64 - 1))
numbers = st.builds(LogNumber, st.integers(0, 30))
transactions = st.frozensets(st.tuples(st.sampled_from("abc"), st.integers(1, 8)))
positions = st.builds(Position, lsns, st.integers(0, 2**62))


def set_of(members: frozenset[tuple[str, int]]) -> GtidSet:
    runs: dict[str, list[tuple[int, int]]] = {}
    for server, number in members:
        runs.setdefault(server, []).append((number, number))
    return GtidSet.of(runs)


sets = st.builds(set_of, transactions)
Points = tuple[LogPoint, LogPoint, LogPoint]

alike: st.SearchStrategy[Points] = st.sampled_from([lsns, numbers, sets]).flatmap(
    lambda kind: st.tuples(kind, kind, kind)
)
"""Three points of one kind: the laws hold whether one of two always covers the other or not."""


class TestPositionOrder:
    @given(alike)
    def test_a_point_covers_itself(self, points: Points) -> None:
        assert points[0].covers(points[0])

    @given(alike)
    def test_covering_is_transitive(self, points: Points) -> None:
        low, more, most = points
        assert low.join(more).join(most).covers(low)
        if most.covers(more) and more.covers(low):
            assert most.covers(low)

    @given(alike)
    def test_points_that_cover_each_other_are_equal(self, points: Points) -> None:
        one, other, _ = points
        assert (one.covers(other) and other.covers(one)) == (one == other)

    @given(alike)
    def test_the_join_is_the_least_point_that_covers_both(self, points: Points) -> None:
        one, other, third = points
        assert one.join(other) == other.join(one)
        assert third.covers(one.join(other)) == (third.covers(one) and third.covers(other))

    @given(alike)
    def test_the_meet_is_the_greatest_point_that_both_cover(self, points: Points) -> None:
        one, other, third = points
        assert one.meet(other) == other.meet(one)
        assert one.meet(other).covers(third) == (one.covers(third) and other.covers(third))

    @given(alike)
    def test_a_point_is_read_as_printed(self, points: Points) -> None:
        point = points[0]
        assert type(point).parse(str(point)) == point  # type: ignore[attr-defined]
        assert str(point)
        assert "@" not in str(point)


class TestLogNumbers:
    def test_a_log_sequence_number_prints_as_postgresql_does(self) -> None:
        assert str(Lsn(0x16_B374D848)) == "16/B374D848"

    @pytest.mark.parametrize(
        "text", ["", "/", "0", "0/", "/0", "0/G", "0/0/0", "0 1", "-1/0", "+1/0"]
    )
    def test_other_text_is_not_a_log_sequence_number(self, text: str) -> None:
        with pytest.raises(ValueError, match="not a log sequence number"):
            Lsn.parse(text)

    @pytest.mark.parametrize("text", ["0/123456789", "123456789/0"])
    def test_a_half_of_a_log_sequence_number_has_32_bits(self, text: str) -> None:
        with pytest.raises(ValueError, match="not a log sequence number"):
            Lsn.parse(text)

    @pytest.mark.parametrize("text", ["", "-1", "1.0", "x", "\u00b2", "\u0663"])
    def test_other_text_is_not_a_number(self, text: str) -> None:
        with pytest.raises(ValueError, match="not a log position number"):
            LogNumber.parse(text)

    @given(lsns, lsns)
    def test_of_two_numbers_one_covers_the_other(self, one: Lsn, other: Lsn) -> None:
        assert one.covers(other) == (one.value >= other.value)


class TestGtidSets:
    @given(transactions, transactions)
    def test_gtid_sets_behave_like_sets_of_transactions(
        self, one: frozenset[tuple[str, int]], other: frozenset[tuple[str, int]]
    ) -> None:
        assert set_of(one).covers(set_of(other)) == (one >= other)
        assert set_of(one).join(set_of(other)) == set_of(one | other)
        assert set_of(one).meet(set_of(other)) == set_of(one & other)

    @pytest.mark.parametrize(
        ("text", "printed"),
        [
            ("-", "-"),
            ("a:1", "a:1"),
            ("b:3,a:1-2:3:7", "a:1-3:7,b:3"),
            ("a:5-9:1-6", "a:1-9"),
            ("3e11fa47-71ca-11e1:1-5,\n 2c25:7", "2c25:7,3e11fa47-71ca-11e1:1-5"),
        ],
    )
    def test_runs_print_in_order_and_as_few(self, text: str, printed: str) -> None:
        assert str(GtidSet.parse(text)) == printed

    @pytest.mark.parametrize("text", ["", "a", "a:", "a:0", "a:3-1", "a:1,", "a:1-", "a:x", ":1"])
    def test_other_text_is_not_a_set(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"not a set|before it begins"):
            GtidSet.parse(text)

    def test_of_two_sets_neither_may_cover_the_other(self) -> None:
        one, other = GtidSet.parse("a:1-2"), GtidSet.parse("a:1,b:1")
        assert not one.covers(other)
        assert not other.covers(one)


class TestPositions:
    @given(positions)
    def test_a_position_is_read_as_printed(self, position: Position) -> None:
        assert Position.parse(str(position), Lsn.parse) == position

    @given(transactions, st.sampled_from("abc"), st.integers(1, 8), st.integers(0, 9))
    def test_a_position_with_its_transaction_is_read_as_printed(
        self, before: frozenset[tuple[str, int]], server: str, number: int, ordinal: int
    ) -> None:
        of = set_of(frozenset({(server, number)}))
        position = Position(set_of(before).join(of), ordinal, of)
        assert Position.parse(str(position), GtidSet.parse) == position

    def test_a_position_prints_its_transaction_first(self) -> None:
        assert str(Position(Lsn(0x4BFD4D8), 17)) == "0/4BFD4D8:17"

    def test_the_transaction_is_printed_if_the_point_does_not_determine_it(self) -> None:
        of = GtidSet.parse("b:3")
        assert str(Position(GtidSet.parse("a:1-5,b:1-3"), 17, of)) == "a:1-5,b:1-3@b:3:17"
        assert str(Position(of, 17, of)) == "b:3:17"

    @pytest.mark.parametrize("text", ["", ":", "0/1", "0/1:", ":1", "0/1:-1", "0/1:\u00b2"])
    def test_other_text_is_not_a_position(self, text: str) -> None:
        with pytest.raises(ValueError, match="not a"):
            Position.parse(text, Lsn.parse)

    @given(positions, lsns)
    def test_in_a_total_order_a_position_reaches_transactions_that_end_at_or_before_it(
        self, position: Position, end: Lsn
    ) -> None:
        reached = position.reaches(end)
        if end == position.point:
            assert reached == position.ordinal
        else:
            assert (reached > 0) == position.passes(end) == position.point.covers(end)

    @given(transactions, transactions, st.integers(1, 9))
    def test_a_position_reaches_all_other_covered_transactions_completely(
        self,
        before: frozenset[tuple[str, int]],
        asked: frozenset[tuple[str, int]],
        ordinal: int,
    ) -> None:
        of = ("d", 1)
        position = Position(set_of(before | {of}), ordinal, set_of(frozenset({of})))
        for member in asked:
            assert position.passes(set_of(frozenset({member}))) == (member in before)
        assert position.reaches(set_of(frozenset({of}))) == ordinal
        assert not position.passes(set_of(frozenset({of})))

    @given(st.one_of(lsns, sets), st.data())
    def test_the_position_after_a_point_covers_all_its_transactions(
        self, point: LogPoint, data: st.DataObject
    ) -> None:
        other = data.draw(lsns if isinstance(point, Lsn) else sets)
        position = Position.after(point)
        assert position.is_whole
        assert position.passes(other) == point.covers(other)

    @pytest.mark.parametrize("parse", [Lsn.parse, LogNumber.parse, GtidSet.parse])
    def test_the_source_parses_the_points(self, parse: Callable[[str], LogPoint]) -> None:
        with pytest.raises(ValueError, match="not a"):
            Position.parse("?:7", parse)
