"""Changes of one table on their way: split at the open transaction, skipped at the checkpoint."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.capture import segments
from mirrorlake.capture.segments import Closed, RowSegment, Span
from mirrorlake.model.change import MARKER_COLUMN, UNCHANGED_COLUMN
from mirrorlake.model.position import Lsn, Position
from mirrorlake.sources.chunk import Changes, Chunk, Transactions
from tests.capture.streams import (
    NARROW,
    WIDE,
    Event,
    Transaction,
    changes,
    chunks,
    inserts,
    streams,
)

FIRST, SECOND = inserts(0, 10, 1, 2), inserts(10, 20, 3, 4, 5)


def only(*stream: Transaction, stops: frozenset[int] = frozenset()) -> tuple[Changes, Transactions]:
    """The changes of the first chunk, which are one part."""
    chunk: Chunk = next(chunks(stream, set(stops)))
    (part,) = chunk.parts
    assert isinstance(part, Changes)
    return part, chunk.transactions


def values(found: RowSegment | Changes | None) -> list[int]:
    return [] if found is None else found.rows.column(0).to_pylist()


class TestSplit:
    def test_changes_of_closed_transactions_are_one_segment(self) -> None:
        closed, still_open = segments.split(*only(FIRST, SECOND))
        assert (values(closed), still_open) == ([1, 2, 3, 4, 5], None)

    def test_changes_of_the_open_transaction_are_kept_apart(self) -> None:
        closed, still_open = segments.split(*only(FIRST, SECOND, stops=frozenset({4})))
        assert (values(closed), values(still_open)) == ([1, 2], [3])

    def test_changes_of_the_open_transaction_may_be_all_there_is(self) -> None:
        closed, still_open = segments.split(*only(SECOND, stops=frozenset({2})))
        assert (closed, values(still_open)) == (None, [3, 4])

    def test_a_segment_tells_its_first_and_last_position(self) -> None:
        closed, _still_open = segments.split(*only(FIRST, SECOND))
        assert closed is not None
        assert closed.span.positions() == (Position(Lsn(10), 1), Position(Lsn(20), 3))

    def test_a_segment_tells_its_first_and_last_commit(self) -> None:
        closed, _still_open = segments.split(*only(FIRST, SECOND))
        assert closed is not None
        assert closed.span.begun == Closed(FIRST.end, FIRST.end, FIRST.time, "10")
        assert closed.span.done == Closed(SECOND.end, SECOND.end, SECOND.time, "20")

    def test_a_segment_of_the_open_transaction_has_no_end_yet(self) -> None:
        _closed, still_open = segments.split(*only(SECOND, stops=frozenset({2})))
        assert still_open is not None
        assert still_open.span.done is None
        ended = still_open.span.closed(Closed(SECOND.end, SECOND.end, SECOND.time))
        assert ended.positions()[1] == Position(Lsn(20), 2)


class TestCheckpoint:
    """The first transaction ends at 10, the second begins at 10 and ends at 20."""

    @pytest.mark.parametrize(
        ("checkpoint", "left"),
        [
            (None, [1, 2, 3, 4, 5]),
            (Position(Lsn(5), 7), [1, 2, 3, 4, 5]),
            (Position(Lsn(10), 1), [2, 3, 4, 5]),
            (Position(Lsn(10), 2), [3, 4, 5]),
            (Position.after(Lsn(10)), [3, 4, 5]),
            (Position(Lsn(20), 1), [4, 5]),
            (Position(Lsn(20), 3), []),
            (Position.after(Lsn(20)), []),
            (Position(Lsn(30), 1), []),
        ],
    )
    def test_what_is_landed_is_left_out(self, checkpoint: Position | None, left: list[int]) -> None:
        assert values(segments.after(*only(FIRST, SECOND), checkpoint)) == left

    @pytest.mark.parametrize(
        ("checkpoint", "left"),
        [
            (Position(Lsn(10), 2), [3, 4]),
            (Position(Lsn(20), 1), [4]),
            (Position(Lsn(30), 1), [4]),
            (Position.after(Lsn(10)), [3, 4]),
        ],
    )
    def test_an_open_transaction_may_be_that_of_the_checkpoint(
        self, checkpoint: Position, left: list[int]
    ) -> None:
        part, transactions = only(SECOND, stops=frozenset({2}))
        assert values(segments.after(part, transactions, checkpoint)) == left

    def test_an_open_transaction_may_end_beyond_the_point_of_a_snapshot(self) -> None:
        part, transactions = only(SECOND, stops=frozenset({2}))
        assert values(segments.after(part, transactions, Position.after(Lsn(15)))) == [3, 4]

    def test_masks_markers_and_ordinals_go_with_their_rows(self) -> None:
        mixed = Transaction(Lsn(0), Lsn(10), (Event(1, 0, 1), Event(2, 1, 2), Event(5, 2, 3)))
        left = segments.after(*only(mixed), Position(Lsn(10), 1))
        assert left is not None
        assert left.unchanged is not None
        assert left.marker.tolist() == [1, 2]
        assert left.ordinal.tolist() == [2, 5]
        assert left.unchanged.tolist() == [[False, True], [False, False]]

    @given(streams(), st.integers(5, 45), st.integers(1, 8) | st.none())
    def test_exactly_what_stands_beyond_the_checkpoint_is_left(
        self, stream: list[Transaction], end: int, ordinal: int | None
    ) -> None:
        checkpoint = Position(Lsn(end), ordinal) if ordinal else Position.after(Lsn(end))
        for chunk in chunks(stream):
            for part in chunk.parts:
                if isinstance(part, Changes):
                    left = segments.after(part, chunk.transactions, checkpoint)
                    expected = [
                        value
                        for value, index, number in zip(
                            values(part), part.transaction, part.ordinal, strict=True
                        )
                        if number > checkpoint.reaches(chunk.transactions.end[index])
                    ]
                    assert values(left) == expected
                else:
                    ends = chunk.transactions.end[part.transaction]
                    found = segments.is_after(part, chunk.transactions, checkpoint)
                    assert found == (part.ordinal > checkpoint.reaches(ends))


class TestFiles:
    SPAN = Span(1, 1, Closed(Lsn(1), Lsn(1), None), Closed(Lsn(1), Lsn(1), None))

    def rows(self, *events: Event) -> RowSegment:
        found = only(Transaction(Lsn(0), Lsn(10), events))
        closed, _still_open = segments.split(*found)
        assert closed is not None
        return closed

    @pytest.mark.clause("LZ-072", "LZ-107")
    def test_the_marker_is_the_last_column(self) -> None:
        table = segments.table_of([self.rows(Event(1, 0, 7))])
        assert table.column_names == ["id", "note", MARKER_COLUMN]

    def test_masks_stand_before_the_marker(self) -> None:
        table = segments.table_of([self.rows(Event(1, 1, 7))])
        assert table.column_names == ["id", "note", UNCHANGED_COLUMN, MARKER_COLUMN]

    def test_segments_with_and_without_masks_make_one_file(self) -> None:
        table = segments.table_of([self.rows(Event(1, 0, 7)), self.rows(Event(2, 1, 8))])
        assert table["id"].to_pylist() == [7, 8]
        assert table[UNCHANGED_COLUMN].to_pylist() == [None, b"\x02"]

    def test_rows_are_counted_by_marker(self) -> None:
        assert segments.counts(pa.array([0, 0, 2, 4, 2, 0], pa.int8())) == {
            "0": 3,
            "2": 2,
            "4": 1,
        }

    def test_a_slice_counts_only_its_own_bytes(self) -> None:
        whole = changes([(0, Event(n, 0, n, WIDE)) for n in range(1_000)])
        few = replace(
            whole,
            rows=whole.rows.slice(0, 10),
            marker=whole.marker[:10],
            transaction=whole.transaction[:10],
            ordinal=whole.ordinal[:10],
        )
        closed, _still_open = segments.split(few, Transactions([Lsn(0)], [Lsn(1)], [None], ["1"]))
        assert closed is not None
        assert closed.size < 2_000

    def test_a_span_goes_from_the_first_to_the_last_change(self) -> None:
        later = Closed(Lsn(4), Lsn(4), SECOND.time)
        both = self.SPAN.until(Span(5, 9, Closed(Lsn(3), Lsn(3), FIRST.time), later))
        assert both == Span(1, 9, self.SPAN.begun, later)


def test_a_truncation_tells_its_place() -> None:
    emptying = Transaction(Lsn(0), Lsn(10), (Event(3, None),))
    chunk = next(chunks([emptying]))
    mark, still_open = segments.emptied(chunk.parts[0], chunk.transactions)
    assert still_open is None
    assert mark.span.positions() == (Position(Lsn(10), 3),) * 2
    assert mark.table is NARROW


def test_masks_of_a_segment_are_packed() -> None:
    found = changes([(0, Event(1, 1, 7)), (0, Event(2, 0, 8))])
    closed, _still_open = segments.split(found, Transactions([Lsn(0)], [Lsn(1)], [None], ["1"]))
    assert closed is not None
    assert closed.unchanged.to_pylist() == [b"\x02", None]
