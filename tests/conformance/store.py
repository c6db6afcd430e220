"""The contract of `storage/store.py` as a suite that every store passes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from mirrorlake.storage.store import Entry, Store
from tests.conformance.store_paths import PathContract

STAGED, FINAL = "zone/t/_stage-1", "zone/t/1"
LARGE = 6 << 20
"""Bytes that no store reads, copies or writes at one stroke."""


def stage(store: Store, content: bytes, path: str = STAGED) -> None:
    with store.stage(path) as file:
        file.write(content)


def names(store: Store, folder: str) -> list[str]:
    return [entry.name for entry in store.list(folder).files]


def entry_of(store: Store, folder: str, name: str) -> Entry:
    (found,) = [entry for entry in store.list(folder).files if entry.name == name]
    return found


class PublicationContract:
    """Files that are written under one name and appear under another."""

    @pytest.mark.clause("LZ-131")
    def test_a_staged_file_is_absent_under_its_final_name(self, store: Store) -> None:
        stage(store, b"rows")
        assert names(store, "zone/t") == ["_stage-1"]

    def test_a_published_file_is_whole(self, store: Store) -> None:
        stage(store, b"rows")
        store.publish(STAGED, FINAL)
        assert store.read(FINAL) == b"rows"

    def test_a_published_file_leaves_its_staged_name(self, store: Store) -> None:
        stage(store, b"rows")
        store.publish(STAGED, FINAL)
        assert names(store, "zone/t") == ["1"]

    def test_a_file_can_be_published_into_another_folder(self, store: Store) -> None:
        stage(store, b"rows", "zone/_staged/t")
        store.publish("zone/_staged/t", FINAL)
        assert store.read(FINAL) == b"rows"

    @pytest.mark.clause("LZ-134")
    def test_publication_never_overwrites(self, store: Store) -> None:
        store.create(FINAL, b"first")
        stage(store, b"second")
        with pytest.raises(FileExistsError):
            store.publish(STAGED, FINAL)
        assert store.read(FINAL) == b"first"

    def test_a_refused_publication_keeps_the_staged_file(self, store: Store) -> None:
        store.create(FINAL, b"first")
        stage(store, b"second")
        with pytest.raises(FileExistsError):
            store.publish(STAGED, FINAL)
        assert store.read(STAGED) == b"second"

    def test_what_is_not_staged_cannot_be_published(self, store: Store) -> None:
        with pytest.raises(FileNotFoundError):
            store.publish(STAGED, FINAL)

    def test_an_exception_while_staging_leaves_nothing(self, store: Store) -> None:
        def interrupted() -> None:
            with store.stage(STAGED) as file:
                file.write(b"half")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            interrupted()
        assert names(store, "zone/t") == []

    def test_staging_replaces_an_older_staged_file(self, store: Store) -> None:
        stage(store, b"a longer one")
        stage(store, b"short")
        assert store.read(STAGED) == b"short"

    def test_one_of_many_publications_of_a_name_wins(self, store: Store) -> None:
        for racer in range(8):
            stage(store, b"%d" % racer, f"zone/t/_stage-{racer}")

        won = race(8, lambda racer: store.publish(f"zone/t/_stage-{racer}", FINAL))
        assert store.read(FINAL) == b"%d" % won

    def test_a_large_file_is_published_whole(self, store: Store) -> None:
        content = b"".join(b"%08d" % number for number in range(LARGE // 8))
        stage(store, content)
        store.publish(STAGED, FINAL)
        assert store.read(FINAL) == content
        assert names(store, "zone/t") == ["1"]

    def test_publication_of_a_large_file_never_overwrites(self, store: Store) -> None:
        store.create(FINAL, b"first")
        stage(store, b"2" * LARGE)
        with pytest.raises(FileExistsError):
            store.publish(STAGED, FINAL)
        assert store.read(FINAL) == b"first"

    def test_what_others_have_named_is_made_durable_and_stays(self, store: Store) -> None:
        store.create(FINAL, b"rows")
        store.flush("zone/t")
        store.flush("zone/none")
        assert store.read(FINAL) == b"rows"

    def test_an_empty_file_can_be_published(self, store: Store) -> None:
        stage(store, b"")
        store.publish(STAGED, FINAL)
        with store.open(FINAL) as file:
            assert file.read() == b""


class SmallFileContract:
    """Small files that are written in one call."""

    def test_a_created_file_is_read_back(self, store: Store) -> None:
        store.create("a/b/c", b"small")
        assert store.read("a/b/c") == b"small"

    def test_what_exists_is_not_created_again(self, store: Store) -> None:
        store.create("a", b"first")
        with pytest.raises(FileExistsError):
            store.create("a", b"second")
        assert store.read("a") == b"first"

    def test_creating_leaves_no_other_name_behind(self, store: Store) -> None:
        store.create("a/b", b"first")
        with pytest.raises(FileExistsError):
            store.create("a/b", b"second")
        assert names(store, "a") == ["b"]

    def test_one_of_many_creators_of_a_name_wins(self, store: Store) -> None:
        won = race(8, lambda racer: store.create("a/b", b"%d" % racer))
        assert store.read("a/b") == b"%d" % won

    def test_a_file_can_be_replaced(self, store: Store) -> None:
        store.replace("a/b", b"first")
        store.replace("a/b", b"second")
        assert store.read("a/b") == b"second"

    def test_replacing_leaves_no_other_name_behind(self, store: Store) -> None:
        store.replace("a/b", b"first")
        store.replace("a/b", b"second")
        assert names(store, "a") == ["b"]

    def test_a_file_that_is_being_replaced_is_always_whole(self, store: Store) -> None:
        versions = [letter * 50_000 for letter in (b"a", b"b")]
        store.replace("a", versions[0])
        done = threading.Event()
        seen: set[bytes] = set()

        def read() -> None:
            while not done.is_set():
                seen.add(store.read("a"))

        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(read)
            for round_ in range(30):
                store.replace("a", versions[round_ % 2])
            done.set()
            reading.result()
        assert seen <= set(versions)

    def test_an_open_reader_never_reads_what_came_later(self, store: Store) -> None:
        first, other = b"1" * LARGE, b"2" * LARGE
        store.replace("a", first)
        with store.open("a") as reader:
            began = reader.read(10)
            store.replace("a", other)
            with suppress(OSError):  # an object of another version is not read on
                assert began + reader.read() == first


class ReadingContract:
    """What a reader finds."""

    def test_a_file_that_is_not_there_cannot_be_read(self, store: Store) -> None:
        with pytest.raises(FileNotFoundError):
            store.read("a/b")

    def test_a_file_that_is_not_there_cannot_be_opened(self, store: Store) -> None:
        with pytest.raises(FileNotFoundError):
            store.open("a/b")

    def test_an_opened_file_can_be_read_from_anywhere(self, store: Store) -> None:
        store.create("a", b"0123456789")
        with store.open("a") as file:
            file.seek(-3, 2)
            assert (file.read(2), file.tell()) == (b"78", 9)

    def test_a_listing_shows_one_level(self, store: Store) -> None:
        for path in ("a/file", "a/folder/file", "a/folder/deeper/file", "file"):
            store.create(path, b"x")
        listing = store.list("a")
        assert ([f.name for f in listing.files], listing.folders) == (["file"], ("folder",))

    def test_the_root_can_be_listed(self, store: Store) -> None:
        store.create("file", b"x")
        store.create("folder/file", b"x")
        listing = store.list("")
        assert ([f.name for f in listing.files], listing.folders) == (["file"], ("folder",))

    def test_a_listing_is_sorted_by_name(self, store: Store) -> None:
        for name in ("b", "a", "é", "C", "10", "9"):
            store.create(f"files/{name}", b"x")
            store.create(f"folders/{name}/file", b"x")
        expected = sorted(["b", "a", "é", "C", "10", "9"])
        assert names(store, "files") == expected
        assert list(store.list("folders").folders) == expected

    def test_a_folder_that_is_not_there_lists_as_empty(self, store: Store) -> None:
        listing = store.list("a/b")
        assert (listing.files, listing.folders) == ((), ())

    def test_a_file_lists_as_an_empty_folder(self, store: Store) -> None:
        store.create("a", b"x")
        listing = store.list("a")
        assert (listing.files, listing.folders) == ((), ())

    def test_a_listing_contains_the_size(self, store: Store) -> None:
        store.create("a/b", b"12345")
        assert entry_of(store, "a", "b").size == 5

    def test_an_unchanged_file_keeps_its_etag_and_time(self, store: Store) -> None:
        store.create("a/b", b"x")
        assert entry_of(store, "a", "b") == entry_of(store, "a", "b")

    def test_other_content_of_the_same_size_has_another_etag(self, store: Store) -> None:
        store.replace("a/b", b"12345")
        before = entry_of(store, "a", "b")
        store.replace("a/b", b"54321")
        assert entry_of(store, "a", "b").etag != before.etag

    def test_every_path_has_a_location_of_its_own(self, store: Store) -> None:
        assert len({store.location(path) for path in ("a", "b", "a/b")}) == 3


class RemovalContract:
    """Files that are renamed or go."""

    def test_a_moved_file_is_found_at_its_target_only(self, store: Store) -> None:
        store.create("a/file", b"x")
        store.move("a/file", "a/aside/file")
        assert store.read("a/aside/file") == b"x"
        assert names(store, "a") == []

    def test_moving_replaces_the_target(self, store: Store) -> None:
        store.create("a/file", b"new")
        store.create("b/file", b"old")
        store.move("a/file", "b/file")
        assert store.read("b/file") == b"new"

    def test_what_is_gone_cannot_be_moved(self, store: Store) -> None:
        with pytest.raises(FileNotFoundError):
            store.move("a/file", "b/file")

    def test_a_file_can_be_deleted(self, store: Store) -> None:
        store.create("a/b", b"x")
        store.delete("a/b")
        assert names(store, "a") == []

    def test_what_is_gone_can_be_deleted_again(self, store: Store) -> None:
        store.create("a/b", b"x")
        store.delete("a/b")
        store.delete("a/b")
        store.delete("c/d")

    def test_a_folder_goes_with_all_it_holds(self, store: Store) -> None:
        for path in ("a/t/file", "a/t/deeper/file", "a/other"):
            store.create(path, b"x")
        store.delete_folder("a/t")
        listing = store.list("a")
        assert ([f.name for f in listing.files], listing.folders) == (["other"], ())

    def test_a_folder_whose_name_begins_alike_stays(self, store: Store) -> None:
        store.create("t/file", b"x")
        store.create("t2/file", b"x")
        store.delete_folder("t")
        assert store.list("").folders == ("t2",)

    def test_a_folder_that_is_gone_can_be_deleted_again(self, store: Store) -> None:
        store.delete_folder("a/b")


class FolderContract:
    """What a store says of its folders."""

    @pytest.fixture
    def nested(self, store: Store) -> Store:
        for path in ("zone/a/1", "zone/a/_aside/2", "zone/b.schema/c/3", "zone/4"):
            store.create(path, b"x")
        return store

    def test_a_tree_shows_what_its_folders_show(self, nested: Store) -> None:
        tree = nested.tree("zone")
        if tree is None:
            return
        for folder in ("zone", "zone/a", "zone/b.schema", "zone/b.schema/c"):
            assert tree[folder] == nested.list(folder)
        assert "zone/a/_aside" not in tree

    def test_nothing_of_good_names_is_unlisted(self, nested: Store) -> None:
        assert list(nested.unlisted("zone")) == []

    def test_a_folder_of_keys_is_copied_and_removed(self, nested: Store) -> None:
        keyed = nested.keyed("zone")
        if keyed is None:
            return
        keyed.copy_folder("zone/a", "zone/d", "_aside")
        keyed.delete_folder("zone/a", "_aside")
        assert nested.list("zone").folders == ("b.schema", "d")
        assert nested.read("zone/d/_aside/2") == nested.read("zone/d/1") == b"x"


class StorageContract(
    PublicationContract, SmallFileContract, ReadingContract, RemovalContract, FolderContract
):
    """What of the contract the storage behind a store decides."""


class StoreContract(StorageContract, PathContract):
    """Every store passes these; a subclass supplies the fixture `store`, which is empty."""


def race(racers: int, action: Callable[[int], object]) -> int:
    """Let `racers` threads act at once; all but one must find that a file exists. Who won?"""
    ready = threading.Barrier(racers)

    def run(racer: int) -> bool:
        ready.wait()
        try:
            action(racer)
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(racers) as pool:
        outcomes = list(pool.map(run, range(racers)))
    assert outcomes.count(True) == 1
    return outcomes.index(True)
