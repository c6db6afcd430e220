"""The side record: names stay known, in few files, through crashes and damage."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from mirrorlake.landing import applied_names
from mirrorlake.landing.applied_names import DAMAGED, FAN, Segment, SideRecord
from mirrorlake.model.landed import LaterFormat, NamedBatch
from tests.doubles.clock import SteppedClock
from tests.doubles.memory_store import Crash, MemoryStore, crash_at

FOLDER = "Files/Mirrorlake/processed/Tables/s/t/g"

pytestmark = pytest.mark.clause("LZ-127")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(SteppedClock())


def batch(number: int, names: int = 1) -> NamedBatch:
    return NamedBatch(number, number + 3, tuple(f"ä{number}-{n}.parquet" for n in range(names)))


def batches(first: int, last: int) -> list[NamedBatch]:
    return [batch(number) for number in range(first, last + 1)]


def names_of(found: Sequence[NamedBatch] | Sequence[Segment]) -> list[str]:
    return [name for one in found for name in one.names]


def files(store: MemoryStore) -> list[str]:
    return [entry.name for entry in store.list(FOLDER).files]


def test_the_record_is_empty_before_the_first_batch(store: MemoryStore) -> None:
    assert SideRecord(store, FOLDER).read() == []


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 3)), max_size=30))
def test_names_come_back_in_their_order(groups: list[tuple[int, int]]) -> None:
    store = MemoryStore(SteppedClock())
    record, written = SideRecord(store, FOLDER), list[NamedBatch]()
    for count, names in groups:
        following = len(written) + 1
        group = [batch(number, names) for number in range(following, following + count)]
        record.append(group)
        written += group
    found = SideRecord(store, FOLDER).read()
    assert names_of(found) == names_of(written)
    assert [(s.last, s.version) for s in found[-1:]] == [
        (b.number, b.version) for b in written[-1:]
    ]


def test_segments_stay_few(store: MemoryStore) -> None:
    record = SideRecord(store, FOLDER)
    for number in range(1, 1_001):
        record.append([batch(number)])
        assert len(files(store)) <= (FAN - 1) * (1 + math.log(number, FAN))
    assert names_of(SideRecord(store, FOLDER).read()) == names_of(batches(1, 1_000))


def test_a_full_segment_is_not_written_again(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applied_names, "FULL", 20)
    record = SideRecord(store, FOLDER)
    written: dict[str, int] = {}
    for number in range(1, 401):
        record.append([batch(number)])
        for entry in store.list(FOLDER).files:
            written.setdefault(entry.name, entry.size)
    sizes = [len(s.names) for s in SideRecord(store, FOLDER).read()]
    assert max(sizes) <= 20 * FAN
    assert sum(sizes) == 400


@pytest.mark.parametrize("step", range(1, 2 * (FAN + 2) + 3))
def test_a_crash_while_joining_loses_nothing(store: MemoryStore, step: int) -> None:
    record = SideRecord(store, FOLDER)
    for number in range(1, FAN):
        record.append([batch(number)])
    dying = SideRecord(store.reopened(crash_at(step)), FOLDER)
    dying.read()
    try:
        dying.append([batch(FAN)])
    except Crash:
        pass
    else:
        assert step > 2 * (FAN + 2)  # every effect of it was a place to die at
    again = SideRecord(store, FOLDER)
    known = names_of(again.read())
    assert known in (names_of(batches(1, FAN - 1)), names_of(batches(1, FAN)))
    following = len(known) + 1
    for number in range(following, 2 * FAN + 1):
        again.append([batch(number)])
    assert names_of(SideRecord(store, FOLDER).read()) == names_of(batches(1, 2 * FAN))
    assert len(files(store)) <= 2  # what the crash left over is gone


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 40))
def test_concurrent_writers_write_consistent_segments(known: int, one: int, other: int) -> None:
    """A process that stalled and one that took over, both behind the commits by some batches."""
    store = MemoryStore(SteppedClock())
    for number in range(1, known):
        SideRecord(store, FOLDER).append([batch(number)])
    stalled, rival = SideRecord(store, FOLDER), SideRecord(store, FOLDER)
    stalled.read(), rival.read()
    rival.append(batches(known, known + one))
    for number in range(known + one + 1, known + one + other + 1):
        rival.append([batch(number)])
    stalled.append(batches(known, known + min(one, 3)))
    found = SideRecord(store, FOLDER).read()
    assert set(names_of(found)) == set(names_of(batches(1, known + one + other)))
    assert found[-1].names[-1] == batch(known + one + other).names[-1]


def test_a_reader_retries_if_segments_were_merged(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = SideRecord(store, FOLDER)
    for number in range(1, FAN):
        record.append([batch(number)])
    reader = SideRecord(store, FOLDER)
    read = MemoryStore.read

    def late(self: MemoryStore, path: str) -> bytes:
        monkeypatch.setattr(MemoryStore, "read", read)
        record.append([batch(FAN)])
        return read(self, path)

    monkeypatch.setattr(MemoryStore, "read", late)
    assert names_of(reader.read()) == names_of(batches(1, FAN))


class TestDamage:
    @pytest.fixture
    def three(self, store: MemoryStore) -> list[str]:
        """Three segments; returns their paths."""
        record = SideRecord(store, FOLDER)
        for number in (1, 2, 3):
            record.append([batch(number)])
        return [f"{FOLDER}/{name}" for name in files(store)]

    def test_the_record_is_read_up_to_a_gap(self, store: MemoryStore, three: list[str]) -> None:
        store.delete(three[1])
        assert names_of(SideRecord(store, FOLDER).read()) == names_of(batches(1, 1))

    @pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"format": "1"}', b"\xff", b"7"])
    def test_a_damaged_segment_is_a_gap_and_is_reported(
        self, store: MemoryStore, three: list[str], content: bytes
    ) -> None:
        store.replace(three[1], content)
        with capture_logs() as lines:
            found = SideRecord(store, FOLDER).read()
        assert names_of(found) == names_of(batches(1, 1))
        assert [line["event"] for line in lines] == [DAMAGED]

    def test_a_gap_is_closed_by_appending_again(self, store: MemoryStore, three: list[str]) -> None:
        store.replace(three[1], b"")
        record = SideRecord(store, FOLDER)
        record.read()
        record.append(batches(2, 3))
        assert names_of(SideRecord(store, FOLDER).read()) == names_of(batches(1, 3))

    def test_a_later_format_is_refused_by_name(self, store: MemoryStore, three: list[str]) -> None:
        content = json.loads(store.read(three[0]))
        store.replace(three[0], json.dumps(content | {"format": "2"}).encode())
        with pytest.raises(LaterFormat, match="format 2"):
            SideRecord(store, FOLDER).read()

    def test_files_of_others_are_ignored(self, store: MemoryStore, three: list[str]) -> None:
        store.replace(f"{FOLDER}/notes.json", b"x")
        assert names_of(SideRecord(store, FOLDER).read()) == names_of(batches(1, 3))


@given(st.lists(st.text(), min_size=1), st.integers(1, 9), st.integers(0, 9))
def test_a_segment_is_what_was_written(names: list[str], first: int, more: int) -> None:
    segment = Segment(first, first + more, 7, tuple(names))
    assert Segment.decode(segment.encode()) == segment
