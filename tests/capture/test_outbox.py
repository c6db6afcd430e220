"""The outbox of a table: which files come of which changes, and what their footers say."""

from __future__ import annotations

import pytest

from mirrorlake.capture.landing.outbox import Outbox
from mirrorlake.capture.segments import Closed
from mirrorlake.model.change import Alteration
from mirrorlake.model.landed import FileKind
from mirrorlake.model.position import Lsn, Position
from mirrorlake.sources.chunk import Changes, SchemaChange, Transactions
from tests.capture.landing import FOLDER, landed, outbox, roll, take
from tests.capture.streams import NARROW, WIDE, Event, Transaction, chunks, inserts
from tests.conformance.store import names
from tests.doubles.clock import SteppedClock
from tests.doubles.memory_store import MemoryStore

FIRST, SECOND = inserts(0, 10, 1, 2), inserts(10, 20, 3, 4, 5)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(SteppedClock())


@pytest.fixture
def box(store: MemoryStore) -> Outbox:
    return outbox(store)


@pytest.fixture
def small(store: MemoryStore) -> Outbox:
    """An outbox that writes a file for every piece of an open transaction."""
    return outbox(store, file_bytes=1)


def feed(box: Outbox, *stream: Transaction, stops: frozenset[int] = frozenset()) -> None:
    for chunk in chunks(stream, set(stops)):
        take(box, chunk)


def alter(box: Outbox, alteration: Alteration, transaction: Transaction) -> None:
    """Before the first change of a transaction."""
    (chunk,) = chunks([transaction], set())
    box.alter(SchemaChange(NARROW, 0, 0, alteration), chunk.transactions, 0.0)


def values(store: MemoryStore) -> list[list[int]]:
    """The values in each published file."""
    return [[value for _marker, value in file.changes] for file in landed(store)]


def completes(store: MemoryStore) -> list[bool]:
    return [file.footer.complete for file in landed(store)]


class TestFiles:
    @pytest.mark.clause("LZ-111", "LZ-114")
    def test_each_roll_is_the_next_file(self, store: MemoryStore, box: Outbox) -> None:
        for transaction in (FIRST, SECOND):
            feed(box, transaction)
            roll(box)
        assert [file.number for file in landed(store)] == [1, 2]
        assert values(store) == [[1, 2], [3, 4, 5]]

    def test_transactions_of_one_roll_are_one_file(self, store: MemoryStore, box: Outbox) -> None:
        feed(box, FIRST, SECOND, stops=frozenset({3}))
        roll(box)
        assert values(store) == [[1, 2, 3, 4, 5]]

    def test_a_footer_tells_positions_times_and_rows(self, store: MemoryStore, box: Outbox) -> None:
        feed(box, FIRST, SECOND)
        roll(box)
        (file,) = landed(store)
        assert (file.first, file.last) == (Position(Lsn(10), 1), Position(Lsn(20), 3))
        assert file.footer.commit_times == (FIRST.time, SECOND.time)
        assert (file.footer.kind, file.footer.rows) == (FileKind.CHANGES, {"0": 5})

    def test_an_empty_outbox_publishes_nothing(self, store: MemoryStore, box: Outbox) -> None:
        assert (roll(box), box.is_empty()) == ([], True)
        assert landed(store) == []

    def test_other_columns_begin_another_file(self, store: MemoryStore, box: Outbox) -> None:
        feed(box, FIRST, inserts(10, 20, 3, table=WIDE), inserts(20, 30, 4))
        roll(box)
        assert values(store) == [[1, 2], [3], [4]]
        assert completes(store) == [True, True, True]

    def test_other_columns_within_a_transaction_leave_it_incomplete(
        self, store: MemoryStore, box: Outbox
    ) -> None:
        mixed = Transaction(Lsn(0), Lsn(10), (Event(1, 0, 1), Event(2, 0, 2, WIDE)))
        feed(box, mixed)
        roll(box)
        assert values(store) == [[1], [2]]
        assert completes(store) == [False, True]

    def test_the_oldest_change_is_remembered_until_it_is_published(self, box: Outbox) -> None:
        for now, chunk in enumerate(chunks([FIRST, SECOND], {3}), start=7):
            take(box, chunk, now)
        assert box.oldest == 7
        roll(box)
        assert box.oldest is None

    def test_published_changes_take_no_room(self, box: Outbox) -> None:
        feed(box, FIRST)
        assert box.size > 0
        roll(box)
        assert box.size == 0


class TestOpenTransaction:
    def test_its_changes_wait_for_its_end(self, store: MemoryStore, box: Outbox) -> None:
        beginning, rest = chunks([FIRST, SECOND], {5})
        take(box, beginning)
        roll(box)
        assert values(store) == [[1, 2]]
        take(box, rest)
        roll(box)
        assert values(store) == [[1, 2], [3, 4, 5]]

    def test_a_small_one_is_one_file_however_it_came(self, store: MemoryStore, box: Outbox) -> None:
        feed(box, SECOND, stops=frozenset({1, 2, 3}))
        roll(box)
        assert values(store) == [[3, 4, 5]]

    def test_a_large_one_is_written_before_its_end(self, store: MemoryStore, small: Outbox) -> None:
        beginning, *_rest = chunks([SECOND], {2})
        take(small, beginning)
        assert small.open_size == 0
        assert names(store, FOLDER) == ["_stage-1.parquet"]

    def test_what_is_written_before_its_end_is_not_published(
        self, store: MemoryStore, small: Outbox
    ) -> None:
        beginning, *_rest = chunks([SECOND], {2})
        take(small, beginning)
        assert (roll(small), landed(store)) == ([], [])

    def test_a_large_one_is_several_files_of_which_the_last_is_complete(
        self, store: MemoryStore, small: Outbox
    ) -> None:
        feed(small, SECOND, stops=frozenset({1, 2, 3}))
        roll(small)
        assert values(store) == [[3], [4], [5]]
        assert completes(store) == [False, False, True]

    def test_files_of_a_large_one_tell_their_positions_and_time(
        self, store: MemoryStore, small: Outbox
    ) -> None:
        feed(small, SECOND, stops=frozenset({1, 2, 3}))
        roll(small)
        assert [file.last for file in landed(store)] == [Position(Lsn(20), n) for n in (1, 2, 3)]
        times = {file.footer.commit_times for file in landed(store)}
        assert times == {(SECOND.time, SECOND.time)}

    def test_what_was_closed_before_goes_first(self, store: MemoryStore, small: Outbox) -> None:
        feed(small, FIRST, SECOND, stops=frozenset({4, 5}))
        roll(small)
        assert values(store) == [[1, 2], [3], [4], [5]]

    def test_what_is_closed_afterwards_follows(self, store: MemoryStore, small: Outbox) -> None:
        feed(small, SECOND, inserts(20, 30, 6), stops=frozenset({1}))
        roll(small)
        assert values(store) == [[3], [4, 5, 6]]
        assert completes(store) == [False, True]

    def test_one_that_was_landed_before_a_restart_is_dropped(self, store: MemoryStore) -> None:
        """It turns out to be an earlier one only at its end."""
        box = outbox(store, Position(Lsn(15), 1), file_bytes=1)
        feed(box, inserts(0, 12, 1, 2, 3), stops=frozenset({1, 2, 3}))
        assert (roll(box), names(store, FOLDER)) == ([], [])

    @pytest.mark.parametrize("file_bytes", [1, 1 << 30])
    @pytest.mark.parametrize(("point", "left"), [(19, [3, 4, 5]), (20, []), (21, [])])
    def test_one_that_began_before_a_snapshot_lands_when_it_ends_beyond(
        self, store: MemoryStore, file_bytes: int, point: int, left: list[int]
    ) -> None:
        box = outbox(store, Position.after(Lsn(point)), file_bytes)
        feed(box, SECOND, stops=frozenset({1, 2, 3}))
        roll(box)
        assert [value for file in values(store) for value in file] == left
        assert [name for name in names(store, FOLDER) if name.startswith("_")] == []


class TestTruncation:
    BETWEEN = Transaction(
        Lsn(0), Lsn(10), (Event(1, 0, 1), Event(2, None), Event(3, 0, 2), Event(4, 0, 3))
    )

    def test_it_is_a_file_between_the_rows(self, store: MemoryStore, box: Outbox) -> None:
        feed(box, self.BETWEEN)
        roll(box)
        kinds = [file.footer.kind for file in landed(store)]
        assert kinds == [FileKind.CHANGES, FileKind.TRUNCATE, FileKind.CHANGES]
        assert values(store) == [[1], [0], [2, 3]]

    def test_its_file_has_its_position_and_no_rows(self, store: MemoryStore, box: Outbox) -> None:
        feed(box, self.BETWEEN)
        roll(box)
        file = landed(store)[1]
        assert (file.first, file.last) == (Position(Lsn(10), 2),) * 2
        assert file.footer.rows == {}

    def test_its_transaction_is_complete_with_its_last_file(
        self, store: MemoryStore, box: Outbox
    ) -> None:
        feed(box, self.BETWEEN)
        roll(box)
        assert completes(store) == [False, False, True]

    @pytest.mark.parametrize("file_bytes", [1, 1 << 30])
    def test_in_an_open_transaction_it_keeps_its_place(
        self, store: MemoryStore, file_bytes: int
    ) -> None:
        box = outbox(store, file_bytes=file_bytes)
        feed(box, self.BETWEEN, stops=frozenset({1, 2, 3}))
        roll(box)
        assert [value for file in values(store) for value in file] == [1, 0, 2, 3]

    def test_one_that_is_landed_is_left_out(self, store: MemoryStore) -> None:
        box = outbox(store, Position(Lsn(10), 2))
        feed(box, self.BETWEEN)
        roll(box)
        assert values(store) == [[2, 3]]

    def test_a_strict_zone_makes_the_folder_anew(self, store: MemoryStore, box: Outbox) -> None:
        made: list[Position] = []

        def recreate(_table: object, folder: str, position: Position) -> int:
            made.append(position)
            store.delete_folder(folder)
            return 0

        box.recreate = recreate
        box.staging = "Files/LandingZone/_mirrorlake/staged/orders"
        feed(box, self.BETWEEN)
        roll(box)
        assert made == [Position(Lsn(10), 2)]
        assert values(store) == [[2, 3]]
        assert names(store, box.staging) == []


class TestAbandoning:
    @pytest.mark.parametrize("file_bytes", [1, 1 << 30])
    def test_nothing_staged_is_left(self, store: MemoryStore, file_bytes: int) -> None:
        box = outbox(store, file_bytes=file_bytes)
        feed(box, FIRST)
        box.seal()
        beginning, *_rest = chunks([SECOND], {2})
        take(box, beginning)
        box.abandon()
        assert names(store, FOLDER) == []
        assert (box.is_empty(), box.has_open(), box.size, box.oldest) == (True, False, 0, None)

    def test_published_files_stay(self, store: MemoryStore, box: Outbox) -> None:
        feed(box, FIRST)
        roll(box)
        feed(box, SECOND)
        box.abandon()
        assert values(store) == [[1, 2]]


class TestAlteration:
    """Columns are altered before a change, and both are landed or neither."""

    COPIED = Alteration({"more": "note"})

    def test_it_is_in_the_footer_of_the_file_that_begins_with_the_change(
        self, store: MemoryStore, box: Outbox
    ) -> None:
        feed(box, FIRST)
        alter(box, self.COPIED, SECOND)
        feed(box, SECOND)
        roll(box)
        assert values(store) == [[1, 2], [3, 4, 5]]
        assert [file.footer.alteration for file in landed(store)] == [None, self.COPIED]

    def test_what_was_landed_with_its_change_is_not_landed_again(self, store: MemoryStore) -> None:
        for _ in range(2):
            box = outbox(store)
            feed(box, FIRST)
            alter(box, self.COPIED, SECOND)
            feed(box, SECOND)
            roll(box)
        assert [file.footer.alteration for file in landed(store)] == [None, self.COPIED]

    def test_what_comes_before_a_change_that_was_not_landed_is_landed(
        self, store: MemoryStore
    ) -> None:
        box = outbox(store)
        feed(box, FIRST)
        roll(box)
        box = outbox(store)
        feed(box, FIRST)
        alter(box, self.COPIED, SECOND)
        feed(box, SECOND)
        roll(box)
        assert [file.footer.alteration for file in landed(store)] == [None, self.COPIED]

    def test_it_waits_for_the_end_of_its_transaction(
        self, store: MemoryStore, small: Outbox
    ) -> None:
        feed(small, FIRST)
        alter(small, self.COPIED, SECOND)
        feed(small, SECOND, stops=frozenset({1, 2}))
        roll(small)
        told = [file.footer.alteration for file in landed(store)]
        assert told == [None, self.COPIED, *[None] * (len(told) - 2)]

    def test_one_after_another_become_one(self, store: MemoryStore, box: Outbox) -> None:
        alter(box, self.COPIED, FIRST)
        alter(box, Alteration({"most": "more"}), SECOND)
        feed(box, SECOND)
        roll(box)
        told = Alteration({"more": "note", "most": "note"})
        assert [file.footer.alteration for file in landed(store)] == [told]

    def test_it_is_landed_without_rows_if_its_change_is_left_out(
        self, store: MemoryStore, box: Outbox
    ) -> None:
        feed(box, FIRST)
        alter(box, self.COPIED, SECOND)
        assert not box.taken(0.0)
        roll(box)
        first, second = landed(store)
        assert (first.footer.alteration, second.footer.alteration) == (None, self.COPIED)
        assert values(store) == [[1, 2], []]

    def test_it_waits_for_the_end_of_its_own_transaction_and_of_no_other(
        self, store: MemoryStore, box: Outbox
    ) -> None:
        first, second = (next(chunks([one], set())).transactions for one in (FIRST, SECOND))
        after, ids = [*first.after, *second.after], [*first.id, *second.id]
        begun = Transactions(after, [*first.end, None], [None, None], ids, is_open=True)
        ends = [Closed.of(one, 0) for one in (first, second)]
        assert ends[0]
        assert ends[1]
        feed(box, FIRST)
        box.close(ends[0], 0.0)
        box.alter(SchemaChange(NARROW, 1, 0, self.COPIED), begun, 0.0)
        assert box.taken(0.0)
        box.close(ends[1], 0.0)
        assert not box.taken(0.0)
        roll(box)
        assert [str(file.first.point) for file in landed(store)] == [
            str(FIRST.end),
            str(SECOND.end),
        ]

    @pytest.mark.parametrize("alters_again", [False, True])
    def test_it_is_as_durable_as_its_transaction_if_an_open_one_follows(
        self, store: MemoryStore, box: Outbox, alters_again: bool
    ) -> None:
        chunk = next(chunks([FIRST, SECOND], {4}))
        assert (chunk.transactions.closed(), chunk.transactions.is_open) == (1, True)
        box.alter(SchemaChange(NARROW, 0, 0, self.COPIED), chunk.transactions, 0.0)
        if alters_again:
            later = Alteration({"most": "more"})
            box.alter(SchemaChange(NARROW, 1, 0, later), chunk.transactions, 0.0)
        (part,) = chunk.parts
        assert isinstance(part, Changes)
        box.take(part.only(part.transaction == 1), chunk.transactions, 0.0)
        box.taken(0.0)
        roll(box)
        (file,) = landed(store)
        assert (file.footer.alteration, file.changes) == (self.COPIED, ())

    def test_what_was_landed_without_rows_is_not_landed_again(self, store: MemoryStore) -> None:
        for _ in range(2):
            box = outbox(store)
            alter(box, self.COPIED, SECOND)
            box.taken(0.0)
            roll(box)
        assert [file.footer.alteration for file in landed(store)] == [self.COPIED]

    def test_what_alters_nothing_needs_no_file(self, store: MemoryStore, box: Outbox) -> None:
        feed(box, FIRST)
        alter(box, Alteration(), SECOND)
        feed(box, SECOND)
        roll(box)
        assert len(landed(store)) == 1
