"""The store of a local file system: what its names, links and flushes promise."""

from __future__ import annotations

import os
import resource
import shutil
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from mirrorlake.storage import local
from mirrorlake.storage.local import Absence, LocalStore, Unlisted
from mirrorlake.storage.store import Store, UnsafePath
from tests.conformance.store import StoreContract, names, stage

Flushed = dict[int, list[str]]
"""Files and folders by inode: the names that a folder had at its last flush."""


class TestLocalStore(StoreContract):
    @pytest.fixture
    def store(self, store: LocalStore) -> Store:
        return store


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the root, with a file in it."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_bytes(b"secret")
    return folder


def test_the_root_is_not_created_before_the_first_write(store: LocalStore) -> None:
    store.list("")
    assert not store.root.exists()


def test_a_location_is_the_path_of_the_file(store: LocalStore) -> None:
    store.create("a/b", b"x")
    assert Path(store.location("a/b")).read_bytes() == b"x"


def test_the_root_may_be_reached_through_a_link(store: LocalStore, tmp_path: Path) -> None:
    store.create("a", b"x")
    (tmp_path / "link").symlink_to(store.root)
    assert LocalStore(tmp_path / "link").read("a") == b"x"


def test_a_folder_is_made_and_stays(store: LocalStore) -> None:
    store.make_folder("a/b")
    store.create("a/b/c", b"x")
    store.make_folder("a/b")
    assert (store.list("a").folders, store.read("a/b/c")) == (("b",), b"x")


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Writes beyond that fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_that_cannot_be_written_is_named_and_leaves_nothing(store: LocalStore) -> None:
    content = bytes(100_000)
    with files_of_at_most(1000):
        for write in (store.create, store.replace):
            with pytest.raises(OSError, match="too large") as caught:
                write("a/b", content)
            assert caught.value.filename == store.location("a/b")
        with pytest.raises(OSError, match="too large") as caught, store.stage("a/c") as file:
            file.write(content)
        assert caught.value.filename == store.location("a/c")
    assert store.list("a").files == ()


class TestCrash:
    def test_between_link_and_unlink_the_final_file_is_whole(
        self, store: LocalStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stage(store, b"rows")
        interrupt(monkeypatch, Path, "unlink")
        with pytest.raises(KeyboardInterrupt):
            store.publish("zone/t/_stage-1", "zone/t/1")
        assert store.read("zone/t/1") == b"rows"

    def test_while_a_folder_is_removed_none_of_it_is_seen(
        self, store: LocalStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.create("zone/t/file", b"x")
        interrupt(monkeypatch, shutil, "rmtree")
        with pytest.raises(KeyboardInterrupt):
            store.delete_folder("zone/t")
        assert [name for name in store.list("zone").folders if not name.startswith("_")] == []

    @pytest.mark.parametrize(("following", "hours"), [("zone/t", 0), ("zone/u", 1)])
    def test_remains_of_a_removed_folder_are_deleted_with_the_next(
        self, store: LocalStore, monkeypatch: pytest.MonkeyPatch, following: str, hours: int
    ) -> None:
        """With the next of its name, and after an hour with any: it may be under way."""
        store.create("zone/t/file", b"x")
        with monkeypatch.context() as patch:
            interrupt(patch, shutil, "rmtree")
            with pytest.raises(KeyboardInterrupt):
                store.delete_folder("zone/t")
        monkeypatch.setattr(local, "REMOVAL_SECONDS", 3_600.0 * (1 - hours) - 1)
        store.create(f"{following}/file", b"x")
        store.delete_folder(following)
        assert store.list("zone").folders == ()

    def test_several_folders_can_be_removed_at_once(self, store: LocalStore) -> None:
        folders = [f"zone/t{n}" for n in range(4)]
        for _round in range(20):
            for folder in folders:
                for number in range(20):
                    path = store.root / folder / str(number)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(b"x")
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(store.delete_folder, folders))
            assert store.list("zone").folders == ()

    def test_while_a_file_is_replaced_the_older_one_stays(
        self, store: LocalStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.replace("a", b"old")
        interrupt(monkeypatch, os, "fsync")
        with pytest.raises(KeyboardInterrupt):
            store.replace("a", b"new")
        assert store.read("a") == b"old"


class TestFlush:
    """A name survives a power failure only when its folder was flushed after it appeared."""

    def test_a_published_file_is_flushed_before_its_name_and_the_folder_after_it(
        self, store: LocalStore, flushed: Flushed
    ) -> None:
        stage(store, b"rows")
        store.publish("zone/t/_stage-1", "zone/t/1")
        assert inode(store, "zone/t/1") in flushed
        assert flushed[inode(store, "zone/t")] == ["1"]

    def test_both_folders_of_a_publication_are_flushed_after_it(
        self, store: LocalStore, flushed: Flushed
    ) -> None:
        stage(store, b"rows")
        store.publish("zone/t/_stage-1", "zone/u/1")
        assert flushed[inode(store, "zone/u")] == ["1"]
        assert flushed[inode(store, "zone/t")] == []

    def test_a_folder_is_flushed_after_each_name_that_appears_in_it(
        self, store: LocalStore, flushed: Flushed
    ) -> None:
        store.create("t/a", b"x")
        assert flushed[inode(store, "t")] == ["a"]
        store.replace("t/b", b"x")
        assert flushed[inode(store, "t")] == ["a", "b"]
        stage(store, b"x", "t/_c")
        assert flushed[inode(store, "t")] == ["_c", "a", "b"]

    def test_a_new_folder_is_flushed_into_those_above_it(
        self, store: LocalStore, flushed: Flushed
    ) -> None:
        store.create("a/b/c", b"x")
        assert flushed[inode(store, "a/b")] == ["c"]
        assert flushed[inode(store, "a")] == ["b"]
        assert flushed[store.root.stat().st_ino] == ["a"]

    def test_names_created_by_a_killed_process_can_be_flushed(
        self, store: LocalStore, flushed: Flushed
    ) -> None:
        folder = store.root / "zone/t"
        folder.mkdir(parents=True)
        (folder / "1").write_bytes(b"rows")
        store.flush("zone/t")
        assert flushed == {inode(store, "zone/t"): ["1"]}

    @pytest.fixture
    def flushed(self, monkeypatch: pytest.MonkeyPatch) -> Flushed:
        seen: Flushed = {}
        flush = os.fsync

        def noting(handle: int) -> None:
            facts = os.fstat(handle)
            seen[facts.st_ino] = sorted(os.listdir(handle)) if stat.S_ISDIR(facts.st_mode) else []
            flush(handle)

        monkeypatch.setattr(os, "fsync", noting)
        return seen


class TestLinks:
    def test_a_link_to_a_file_is_not_shown(self, store: LocalStore, outside: Path) -> None:
        store.create("a/file", b"x")
        (store.root / "a/link").symlink_to(outside / "secret")
        assert names(store, "a") == ["file"]

    def test_a_link_to_a_folder_is_not_shown(self, store: LocalStore, outside: Path) -> None:
        store.create("a/folder/file", b"x")
        (store.root / "a/link").symlink_to(outside)
        assert store.list("a").folders == ("folder",)

    def test_a_link_that_leaves_the_root_is_not_listed(
        self, store: LocalStore, outside: Path
    ) -> None:
        store.create("a", b"x")
        (store.root / "link").symlink_to(outside)
        assert names(store, "link") == []

    @pytest.mark.parametrize("path", ["link/secret", "file"])
    def test_a_link_that_leaves_the_root_is_not_read(
        self, store: LocalStore, outside: Path, path: str
    ) -> None:
        store.create("a", b"x")
        (store.root / "link").symlink_to(outside)
        (store.root / "file").symlink_to(outside / "secret")
        with pytest.raises(UnsafePath):
            store.read(path)

    def test_a_link_that_leaves_the_root_is_not_written_through(
        self, store: LocalStore, outside: Path
    ) -> None:
        store.create("a", b"x")
        (store.root / "link").symlink_to(outside)
        with pytest.raises(UnsafePath):
            store.create("link/new", b"x")


class TestForeignNames:
    """Names that others made and that no store path can hold are not shown."""

    @pytest.mark.parametrize("name", [b"a\\b", b"latin-\xe9"])
    def test_a_folder_that_cannot_be_addressed_is_not_shown(
        self, store: LocalStore, name: bytes
    ) -> None:
        store.create("zone/t/file", b"x")
        (store.root / "zone" / os.fsdecode(name)).mkdir()
        assert store.list("zone").folders == ("t",)

    def test_a_file_that_cannot_be_addressed_is_not_shown(self, store: LocalStore) -> None:
        store.create("zone/file", b"x")
        (store.root / "zone/a\\b").write_bytes(b"x")
        assert names(store, "zone") == ["file"]


class TestUnlisted:
    """What a listing leaves out can be asked for, with the reason."""

    def test_links_inside_and_out_of_the_root_are_distinguished(
        self, store: LocalStore, outside: Path
    ) -> None:
        store.create("a/file", b"x")
        (store.root / "a/in").symlink_to("file")
        (store.root / "a/out").symlink_to(outside)
        assert store.unlisted("a") == (
            Unlisted("in", Absence.LINK),
            Unlisted("out", Absence.LINK_OUT),
        )

    def test_a_name_that_cannot_be_addressed_is_listed_as_text(self, store: LocalStore) -> None:
        store.create("a/file", b"x")
        (store.root / "a" / os.fsdecode(b"latin-\xe9")).mkdir()
        assert store.unlisted("a") == (Unlisted("latin-\\xe9", Absence.NAME),)

    def test_a_pipe_is_neither_a_file_nor_a_folder(self, store: LocalStore) -> None:
        store.create("a/file", b"x")
        os.mkfifo(store.root / "a/pipe")
        assert store.unlisted("a") == (Unlisted("pipe", Absence.KIND),)

    def test_a_folder_outside_the_root_is_not_listed(
        self, store: LocalStore, outside: Path
    ) -> None:
        store.create("a", b"x")
        (store.root / "link").symlink_to(outside)
        assert store.unlisted("link") == ()


def inode(store: LocalStore, path: str) -> int:
    return (store.root / path).stat().st_ino


def interrupt(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> None:
    """Let the next call of `owner.name` be the last act of the process."""

    def die(*_args: object, **_kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(owner, name, die)


def test_only_its_own_empty_folders_are_discarded(tmp_path: Path) -> None:
    (tmp_path / "root/theirs").mkdir(parents=True)
    store = LocalStore(tmp_path / "root")
    store.create("a/full", b"")
    for path in ("a/b/c/file", "theirs/d/file"):
        store.create(path, b"")
        store.delete(path)
    store.discard_empty_folders()
    found = [str(path.relative_to(store.root)) for path in sorted(store.root.rglob("*"))]
    assert found == ["a", "a/full", "theirs"]


def test_an_empty_root_that_the_store_created_is_discarded(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "above/root")
    store.make_folder("a")
    store.discard_empty_folders()
    assert not (tmp_path / "above").exists()
