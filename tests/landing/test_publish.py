"""Publication under growing numbers: nothing is overwritten, nothing gets a second number."""

from __future__ import annotations

import pytest

from mirrorlake.errors import NameTaken
from mirrorlake.landing.publish import newest_file, publish, remove_staged, staged_path
from tests.conformance.store import names, stage
from tests.doubles.clock import SteppedClock
from tests.doubles.memory_store import Crash, Effect, MemoryStore, crash_at
from tests.landing.zone import name

FOLDER = "Files/LandingZone/t"
STAGED = staged_path(FOLDER, "1")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(SteppedClock())


def attempt(store: MemoryStore, number: int, content: bytes) -> None:
    stage(store, content, STAGED)
    publish(store, FOLDER, STAGED, number, table="t")


@pytest.mark.clause("LZ-131")
def test_a_staged_name_begins_with_an_underscore() -> None:
    assert STAGED.removeprefix(f"{FOLDER}/").startswith("_")


@pytest.mark.clause("LZ-112")
def test_a_file_is_published_under_its_number(store: MemoryStore) -> None:
    attempt(store, 42, b"rows")
    assert names(store, FOLDER) == [name(42)]


@pytest.mark.clause("LZ-135")
def test_a_repeated_publication_of_the_same_content_changes_nothing(store: MemoryStore) -> None:
    attempt(store, 1, b"rows")
    before = store.list(FOLDER)
    attempt(store, 1, b"rows")
    assert store.list(FOLDER) == before


@pytest.mark.clause("LZ-135", "LZ-136")
@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_a_publication_is_repeated_after_a_crash(store: MemoryStore, step: int) -> None:
    stage(store, b"rows", STAGED)
    with pytest.raises(Crash):
        publish(store.reopened(crash_at(step)), FOLDER, STAGED, 1, table="t")
    attempt(store, 1, b"rows")
    assert names(store, FOLDER) == [name(1)]
    assert store.read(f"{FOLDER}/{name(1)}") == b"rows"


def test_a_name_of_a_killed_run_is_flushed_before_its_staged_file_is_deleted(
    store: MemoryStore,
) -> None:
    stage(store, b"rows", STAGED)
    with pytest.raises(Crash):
        publish(store.reopened(crash_at(2)), FOLDER, STAGED, 1, table="t")
    seen: list[Effect] = []
    publish(store.reopened(seen.append), FOLDER, STAGED, 1, table="t")
    assert [effect.name for effect in seen if effect.done] == ["flush", "delete"]


@pytest.mark.clause("LZ-134", "LZ-137")
@pytest.mark.parametrize("other", [b"", b"ro", b"rows and more", b"sowr"])
def test_a_number_with_other_content_is_refused(store: MemoryStore, other: bytes) -> None:
    attempt(store, 1, other)
    with pytest.raises(NameTaken) as caught:
        attempt(store, 1, b"rows")
    assert caught.value.file == name(1)
    assert store.read(f"{FOLDER}/{name(1)}") == other


@pytest.mark.clause("LZ-137")
def test_the_refused_content_gets_no_other_number(store: MemoryStore) -> None:
    attempt(store, 1, b"other")
    with pytest.raises(NameTaken):
        attempt(store, 1, b"rows")
    assert names(store, FOLDER) == [name(1), "_stage-1.parquet"]


def test_large_content_is_compared_completely(store: MemoryStore) -> None:
    attempt(store, 1, bytes(3 << 20) + b"a")
    with pytest.raises(NameTaken):
        attempt(store, 1, bytes(3 << 20) + b"b")


@pytest.mark.parametrize(
    "locations",
    [
        ([3], [], []),
        ([], [3], []),
        ([], [], [3]),
        ([3], [1, 2], []),
        ([1], [2], [3]),
        ([1, 2], [3], [1]),
    ],
)
@pytest.mark.clause("LZ-140")
def test_the_newest_file_is_found_in_the_folder_and_the_cleanup_folder(
    store: MemoryStore, locations: tuple[list[int], ...]
) -> None:
    for location, found in zip(
        ("", "/_FilesReadyToDelete", "/_ProcessedFiles"), locations, strict=True
    ):
        for number in found:
            store.create(f"{FOLDER}{location}/{name(number)}", b"x")
    newest = newest_file(store, FOLDER)
    assert newest is not None
    assert newest.number == 3


def test_the_newest_file_is_found_in_the_table_folder(store: MemoryStore) -> None:
    for location in ("", "/_FilesReadyToDelete"):
        store.create(f"{FOLDER}{location}/{name(1)}", b"x")
    newest = newest_file(store, FOLDER)
    assert newest is not None
    assert newest.path == f"{FOLDER}/{name(1)}"


def test_an_empty_folder_has_no_newest_file(store: MemoryStore) -> None:
    stage(store, b"rows", STAGED)
    assert newest_file(store, FOLDER) is None


def test_files_staged_by_an_interrupted_run_are_removed(store: MemoryStore) -> None:
    for path in (name(1), "_metadata.json", "_load.json", "_stage-1.parquet", "_stage-2.parquet"):
        store.create(f"{FOLDER}/{path}", b"x")
    remove_staged(store, FOLDER)
    assert names(store, FOLDER) == [name(1), "_load.json", "_metadata.json"]
