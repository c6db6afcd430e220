"""Whatever comes in whatever pieces, and wherever the process dies: each change is landed once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.model.position import Lsn, Position
from tests.capture.landing import FOLDER, LandedFile, expected, landed, outbox, roll, take
from tests.capture.streams import Transaction, chunks, inserts, streams
from tests.conformance.store import names
from tests.doubles.clock import SteppedClock
from tests.doubles.memory_store import Crash, MemoryStore, crash_at

points = st.none() | st.integers(5, 40).map(lambda end: Position.after(Lsn(end)))


class Run:
    """Draws how a run goes: where chunks end, when files are rolled, how large they grow."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.file_bytes = data.draw(st.sampled_from([1, 150, 1 << 30]), "file bytes")
        self.acknowledged = 0  # transactions that may be forgotten

    def go(self, store: MemoryStore, stream: Sequence[Transaction], start: Position | None) -> None:
        """Land the stream from where the source sends it again."""
        sent = self.data.draw(st.integers(0, self.acknowledged), "sent again from")
        box = outbox(store, start, self.file_bytes)
        stops = self.data.draw(st.sets(st.integers(1, 30), max_size=8), "stops")
        closed = sent
        for chunk in chunks(stream[sent:], stops):
            take(box, chunk)
            closed += chunk.transactions.closed()
            if self.data.draw(st.booleans(), "roll"):
                roll(box)
                self.acknowledged = max(self.acknowledged, closed)
        roll(box)


@pytest.mark.clause("LZ-108", "LZ-113")
@given(streams(), points, st.data())
def test_every_change_is_landed_exactly_once_and_in_order(
    stream: list[Transaction], start: Position | None, data: st.DataObject
) -> None:
    store = MemoryStore(SteppedClock())
    Run(data).go(store, stream, start)
    check(store, stream, start)


@pytest.mark.clause("LZ-108", "LZ-113")
@given(streams(), points, st.lists(st.integers(1, 25), min_size=1, max_size=3), st.data())
def test_a_process_that_dies_anywhere_lands_every_change_exactly_once(
    stream: list[Transaction],
    start: Position | None,
    deaths: list[int],
    data: st.DataObject,
) -> None:
    store, run = MemoryStore(SteppedClock()), Run(data)
    for death in deaths:
        try:
            run.go(store.reopened(crash_at(death)), stream, start)
        except Crash:
            continue
    run.go(store, stream, start)
    check(store, stream, start)


def check(store: MemoryStore, stream: list[Transaction], start: Position | None) -> None:
    files = landed(store)
    due = expected(stream, start)
    assert [change for file in files for change in file.changes] == [
        (marker, value if marker is not None else 0) for _position, marker, value in due
    ]
    assert [file.number for file in files] == list(range(1, len(files) + 1))
    assert [name for name in names(store, FOLDER) if name.startswith("_")] == []
    left = due
    for file in files:
        of_file, left = left[: len(file.changes)], left[len(file.changes) :]
        assert (file.first, file.last) == (of_file[0][0], of_file[-1][0])
        check_footer(file, stream)
    for earlier, later in pairwise(files):
        assert later.first.ordinal > earlier.last.reaches(later.first.point)
        assert earlier.footer.complete == (earlier.last.point != later.first.point)
    assert all(file.footer.complete for file in files[-1:])


def check_footer(file: LandedFile, stream: list[Transaction]) -> None:
    times = {transaction.end: transaction.time for transaction in stream}
    assert file.footer.commit_times == (times[file.first.point], times[file.last.point])
    markers = [marker for marker, _value in file.changes if marker is not None]
    assert file.footer.rows == {str(m): markers.count(m) for m in sorted(set(markers))}


def test_a_death_after_each_effect_of_a_large_transaction_is_made_good() -> None:
    """Files of one transaction, published one by one: the rest follows under the next numbers."""
    stream = [inserts(0, 10, 1), inserts(10, 20, 2, 3, 4), inserts(20, 30, 5)]
    for death in range(1, 60):
        store = MemoryStore(SteppedClock())
        for hook in (crash_at(death), None):
            box = None
            try:
                box = outbox(store.reopened(hook), file_bytes=1)
                for chunk in chunks(stream, {3, 4}):
                    take(box, chunk)
                roll(box)
            except Crash:
                continue
        check(store, stream, None)
