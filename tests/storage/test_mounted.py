"""A store of which some folders lie elsewhere is a store like any other."""

from __future__ import annotations

from pathlib import Path

import pytest
from obstore.store import MemoryStore

from mirrorlake.storage.local import LocalStore
from mirrorlake.storage.mounted import MountedStore
from mirrorlake.storage.objects import ObjectStore
from mirrorlake.storage.store import Store, UnsafePath
from mirrorlake.storage.tree import ListedTree, lister_for
from tests.conformance.store import StoreContract, names


class TestMountedStore(StoreContract):
    @pytest.fixture
    def store(self, parted: MountedStore) -> Store:
        return parted


@pytest.fixture
def here(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "root")


@pytest.fixture
def there() -> ObjectStore:
    return ObjectStore(MemoryStore(), "s3://bucket")


@pytest.fixture
def parted(here: LocalStore, there: ObjectStore) -> MountedStore:
    return MountedStore(here, ["zone", "Files/Zone", "Files/deep/down"], there)


def test_a_part_is_in_the_other_store_under_the_same_path(
    parted: MountedStore, here: LocalStore, there: ObjectStore
) -> None:
    parted.create("Files/Zone/a", b"there")
    parted.create("Files/other", b"here")
    assert there.read("Files/Zone/a") == b"there"
    assert here.read("Files/other") == b"here"
    assert parted.location("Files/Zone/a") == "s3://bucket/Files/Zone/a"


def test_a_folder_shows_the_parts_in_it(parted: MountedStore) -> None:
    parted.create("Files/Zone/a", b"x")
    parted.create("Files/deep/down/a", b"x")
    parted.create("Files/mine/a", b"x")
    assert parted.list("").folders == ("Files",)
    assert parted.list("Files").folders == ("Zone", "deep", "mine")
    assert parted.list("Files/deep").folders == ("down",)


def test_content_of_the_main_store_below_a_part_is_hidden(
    parted: MountedStore, here: LocalStore
) -> None:
    here.create("Files/Zone/a", b"x")
    here.create("Files/file", b"x")
    assert parted.list("Files").folders == ()
    assert (parted.list("Files/Zone").files, names(parted, "Files")) == ((), ["file"])
    with pytest.raises(FileNotFoundError):
        parted.read("Files/Zone/a")


def test_content_of_the_other_store_outside_the_parts_is_hidden(
    parted: MountedStore, there: ObjectStore
) -> None:
    there.create("Files/private/a", b"x")
    there.create("a", b"x")
    assert (parted.list("").files, parted.list("Files").folders) == ((), ())


def test_a_file_does_not_leave_its_storage(parted: MountedStore) -> None:
    parted.create("zone/a", b"x")
    with pytest.raises(OSError, match="move to another storage"):
        parted.move("zone/a", "a")
    with pytest.raises(OSError, match="move to another storage"):
        parted.publish("zone/a", "a")
    assert names(parted, "zone") == ["a"]


def test_a_folder_of_both_is_not_deleted_at_once(parted: MountedStore) -> None:
    with pytest.raises(UnsafePath):
        parted.delete_folder("Files")


def test_a_part_on_object_storage_is_listed_as_a_tree(parted: MountedStore) -> None:
    parted.create("zone/t/1", b"x")
    parted.create("mine/t/1", b"x")
    assert isinstance(lister_for(parted, "zone"), ListedTree)
    assert lister_for(parted, "mine") is parted
