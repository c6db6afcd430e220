"""What a table in timestamp mode has applied: from its record, and from its commits after that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.apply.logs.processed_names import TableProcessedNames
from mirrorlake.errors import ProgressLost
from mirrorlake.landing.applied_names import SideRecord
from mirrorlake.mirror.table.progress import Progress
from mirrorlake.model.landed import NamedBatch
from tests.doubles.clock import SteppedClock
from tests.doubles.memory_store import MemoryStore

FOLDER = "Files/Mirrorlake/processed/Tables/t/g"


def batch(number: int) -> NamedBatch:
    return NamedBatch(number, number + 2, (f"{number}a", f"{number}b"))


@dataclass
class Table:
    """The commits of a table, of which the first `forgotten` are gone. asked: for which it was."""

    recorded: int = 0
    forgotten: int = 0
    asked: list[int] = field(default_factory=list)

    def progress(self, _path: str) -> Progress:
        return Progress(version=self.recorded, recorded=self.recorded)

    def named_batches(self, _path: str, after: int) -> Sequence[NamedBatch]:
        self.asked.append(after)
        return [batch(n) for n in range(max(after, self.forgotten) + 1, self.recorded + 1)]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(SteppedClock())


def follower(store: MemoryStore) -> TableProcessedNames:
    return TableProcessedNames(SideRecord(store, FOLDER), "s.t", "Tables/t")


def recorded(store: MemoryStore, number: int) -> None:
    """A record that goes up to a batch."""
    for n in range(1, number + 1):
        SideRecord(store, FOLDER).append([batch(n)])


@pytest.mark.clause("LZ-127")
@given(st.integers(0, 6), st.integers(0, 6), st.integers(0, 12))
def test_record_and_commits_together_are_complete_or_the_table_stops(
    held: int, more: int, forgotten: int
) -> None:
    store, table = MemoryStore(SteppedClock()), Table(held + more, forgotten)
    recorded(store, held)
    found = follower(store)
    if more and forgotten > held:
        with pytest.raises(ProgressLost, match=f"batch {held + 1}"):
            found.update(table.recorded, table)
        assert not found.unrecorded
        return
    processed = found.update(table.recorded, table)
    assert processed.names == {name for n in range(1, held + more + 1) for name in batch(n).names}
    assert processed.last == (f"{held + more}b" if held + more else None)
    assert [one.number for one in found.unrecorded] == list(range(held + 1, held + more + 1))
    found.save()
    assert not found.unrecorded
    assert follower(store).update(table.recorded, Table()).names == processed.names


def test_only_new_batches_are_requested(store: MemoryStore) -> None:
    table, found = Table(2), follower(store)
    for count in (2, 2, 3, 3):
        table.recorded = count
        found.update(count, table)
    assert table.asked == [0, 2]


def test_a_record_that_another_process_extended_is_accepted(store: MemoryStore) -> None:
    recorded(store, 3)
    assert follower(store).update(2, Table(3)).batches == 3


def test_a_record_that_is_ahead_of_the_table_stops_it(store: MemoryStore) -> None:
    recorded(store, 3)
    with pytest.raises(ProgressLost, match="fewer than before"):
        follower(store).update(2, Table(2))


def test_lost_names_are_looked_for_again(store: MemoryStore) -> None:
    table, found = Table(2, forgotten=1), follower(store)
    with pytest.raises(ProgressLost):
        found.update(2, table)
    table.forgotten = 0  # somebody put the log back
    assert found.update(2, table).batches == 2
