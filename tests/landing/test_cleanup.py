"""Processed files: moved aside but for the last, and removed after a while."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.landing import cleanup
from mirrorlake.landing.scan import Landed, data_files
from mirrorlake.model.landed import FileName
from tests.conformance.store import names
from tests.doubles.clock import SteppedClock
from tests.doubles.memory_store import Crash, MemoryStore, crash_at
from tests.landing.zone import name

FOLDER = "Files/LandingZone/t"
ASIDE = f"{FOLDER}/_FilesReadyToDelete"
INFO = f"{ASIDE}/_FilesReadyToDeleteInfo.json"
WEEK = timedelta(days=7).total_seconds()


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def store(clock: SteppedClock) -> MemoryStore:
    return MemoryStore(clock)


def landed(store: MemoryStore, *numbers: int) -> list[Landed]:
    for number in numbers:
        store.create(f"{FOLDER}/{name(number)}", b"%d" % number)
    return list(data_files(FOLDER, store.list(FOLDER)))


def move(store: MemoryStore, files: list[Landed]) -> list[int]:
    now = store.files.clock.now()
    return [file.number for file in cleanup.move(store, FOLDER, files, now)]


def expire(store: MemoryStore) -> int:
    return cleanup.sweep(store, FOLDER, store.files.clock.now())[0]


def aside(store: MemoryStore) -> list[str]:
    return [found for found in names(store, ASIDE) if FileName.parse(found)]


class TestChoice:
    @pytest.mark.clause("LZ-243", "LZ-251")
    @given(st.sets(st.integers(1, 30)), st.integers(0, 30))
    def test_applied_files_are_moved_except_the_last(self, found: set[int], applied: int) -> None:
        files = [Landed(FileName(n), "t", 1, 0.0, "") for n in sorted(found)]
        gone = {file.number for file in cleanup.processed(files, applied)}
        assert gone == {number for number in found if number < applied}


class TestMoving:
    @pytest.mark.clause("LZ-242", "LZ-244", "LZ-246", "LZ-248")
    def test_files_are_moved_to_the_cleanup_folder_of_their_table(self, store: MemoryStore) -> None:
        move(store, landed(store, 1, 2))
        assert names(store, FOLDER) == []
        assert aside(store) == [name(1), name(2)]

    def test_each_file_is_yielded_when_it_was_moved(self, store: MemoryStore) -> None:
        assert move(store, landed(store, 1, 2)) == [1, 2]

    @pytest.mark.clause("LZ-248")
    def test_the_time_of_the_move_is_recorded(self, store: MemoryStore) -> None:
        move(store, landed(store, 1))
        time = "2026-01-01T00:00:00Z"
        assert json.loads(store.read(INFO)) == {"files": [{"name": name(1), "movedTimeUtc": time}]}

    @pytest.mark.clause("LZ-245", "LZ-248")
    def test_times_are_rounded_up_and_no_file_is_deleted_early(
        self, store: MemoryStore, clock: SteppedClock
    ) -> None:
        clock.advance(0.25)
        move(store, landed(store, 1))
        (told,) = json.loads(store.read(INFO))["files"]
        assert told["movedTimeUtc"] == "2026-01-01T00:00:01Z"
        clock.advance(WEEK)
        assert expire(store) == 0
        clock.advance(1)
        assert expire(store) == 1

    def test_earlier_moves_stay_recorded(self, store: MemoryStore, clock: SteppedClock) -> None:
        move(store, landed(store, 1))
        clock.advance(60)
        move(store, landed(store, 2))
        times = {f["name"]: f["movedTimeUtc"] for f in json.loads(store.read(INFO))["files"]}
        assert times == {
            name(1): "2026-01-01T00:00:00Z",
            name(2): "2026-01-01T00:01:00Z",
        }

    def test_a_missing_file_is_skipped(self, store: MemoryStore) -> None:
        files = landed(store, 1, 2)
        store.delete(files[0].path)
        assert move(store, files) == [2]

    def test_without_files_to_move_nothing_is_written(self, store: MemoryStore) -> None:
        assert move(store, []) == []
        assert store.list("").folders == ()

    @pytest.mark.parametrize("step", range(1, 9))
    def test_a_move_is_completed_after_a_crash(self, store: MemoryStore, step: int) -> None:
        files = landed(store, 1, 2, 3)
        with pytest.raises(Crash):
            move(store.reopened(crash_at(step)), files)
        move(store, [file for file in files if file.path.split("/")[-1] in names(store, FOLDER)])
        recorded = {file["name"] for file in json.loads(store.read(INFO))["files"]}
        assert aside(store) == [name(1), name(2), name(3)]
        assert recorded == set(aside(store))

    def test_a_record_of_others_is_replaced(self, store: MemoryStore) -> None:
        store.create(INFO, b'{"unknown": []}')
        move(store, landed(store, 1))
        assert [file["name"] for file in json.loads(store.read(INFO))["files"]] == [name(1)]


class TestExpiry:
    @pytest.mark.clause("LZ-245", "LZ-252")
    def test_files_are_removed_after_seven_days(
        self, store: MemoryStore, clock: SteppedClock
    ) -> None:
        move(store, landed(store, 1))
        clock.advance(WEEK)
        assert (expire(store), aside(store)) == (0, [name(1)])
        clock.advance(1)
        assert (expire(store), aside(store)) == (1, [])

    @pytest.mark.clause("LZ-252")
    def test_the_time_can_be_chosen(self, store: MemoryStore, clock: SteppedClock) -> None:
        move(store, landed(store, 1))
        clock.advance(61)
        assert cleanup.sweep(store, FOLDER, clock.now(), timedelta(minutes=1))[0] == 1

    def test_the_retention_counts_from_the_move(
        self, store: MemoryStore, clock: SteppedClock
    ) -> None:
        files = landed(store, 1)
        clock.advance(2 * WEEK)
        move(store, files)
        assert expire(store) == 0

    def test_only_what_is_old_is_removed(self, store: MemoryStore, clock: SteppedClock) -> None:
        move(store, landed(store, 1))
        clock.advance(WEEK)
        move(store, landed(store, 2))
        clock.advance(60)
        assert (expire(store), aside(store)) == (1, [name(2)])

    def test_removed_files_are_deleted_from_the_record(
        self, store: MemoryStore, clock: SteppedClock
    ) -> None:
        move(store, landed(store, 1))
        clock.advance(WEEK + 1)
        expire(store)
        assert json.loads(store.read(INFO)) == {"files": []}

    @pytest.mark.clause("LZ-249")
    def test_others_may_remove_files_earlier(self, store: MemoryStore, clock: SteppedClock) -> None:
        move(store, landed(store, 1, 2))
        store.delete(f"{ASIDE}/{name(1)}")
        clock.advance(WEEK + 1)
        assert expire(store) == 1

    @pytest.mark.clause("LZ-249")
    def test_others_may_remove_the_folder(self, store: MemoryStore) -> None:
        move(store, landed(store, 1))
        store.delete_folder(ASIDE)
        assert expire(store) == 0
        assert move(store, landed(store, 2)) == [2]

    @pytest.mark.parametrize(
        "record",
        [
            b"",
            b"[]",
            b'{"files": [{"name": "x"}]}',
            b'{"files": [{"name": "%s", "movedTimeUtc": "soon"}]}' % name(1).encode(),
            b'{"files": [{"name": "%s", "movedTimeUtc": 5}]}' % name(1).encode(),
        ],
    )
    def test_without_a_record_the_modification_time_is_used(
        self, store: MemoryStore, clock: SteppedClock, record: bytes
    ) -> None:
        move(store, landed(store, 1))
        store.replace(INFO, record)
        clock.advance(WEEK)
        assert expire(store) == 0
        clock.advance(1)
        assert expire(store) == 1

    def test_a_recorded_time_without_a_zone_is_utc(
        self, store: MemoryStore, clock: SteppedClock
    ) -> None:
        move(store, landed(store, 1))
        entry = {"name": name(1), "movedTimeUtc": "2026-01-02T00:00:00"}
        store.replace(INFO, json.dumps({"files": [entry]}).encode())
        clock.advance(WEEK + 1)
        assert expire(store) == 0

    def test_other_files_in_the_folder_are_kept(
        self, store: MemoryStore, clock: SteppedClock
    ) -> None:
        store.create(f"{ASIDE}/notes.txt", b"x")
        clock.advance(2 * WEEK)
        assert expire(store) == 0
        assert names(store, ASIDE) == ["notes.txt"]
