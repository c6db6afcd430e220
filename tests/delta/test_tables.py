"""Tables that are taken away: whole, and to the end, also by the process after one that died."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrorlake.delta import tables
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.storage.local import LocalStore
from mirrorlake.storage.objects import ObjectStore
from mirrorlake.storage.store import Store
from mirrorlake.storage.urls import open_store
from tests.delta.handmade import HandmadeTable
from tests.delta.log.test_table_log import SHAPE
from tests.doubles.memory_store import Crash
from tests.objects import S3Server, dying

PATH, ASIDE = "Tables/s/t", "aside/Tables/s/t"
FILES = ("part-1.parquet", "deletion_vector_1.bin", "_change_data/cdc-1.parquet")


@pytest.fixture
def objects(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    s3.described(monkeypatch)
    found = open_store(f"{s3.new_bucket()}/shop", s3.options)
    assert isinstance(found, ObjectStore)
    return found


@pytest.fixture(params=["folder", "objects"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "objects":
        found: Store = request.getfixturevalue("objects")
        return found
    return LocalStore(tmp_path / "root")


def make(store: Store, commits: int = 2, content: bytes = b"x") -> str:
    """A table with some files; its id."""
    table = HandmadeTable(store.location(PATH), SHAPE.schema)
    for number in range(commits):
        table.commit([{"txn": {"appId": "app", "version": number}}])
    for name in FILES:
        store.replace(f"{PATH}/{name}", content)
    return str(table.log.snapshot().metadata["id"])


def is_gone(store: Store, path: str) -> bool:
    listing = store.list(path)
    return not (listing.files or listing.folders)


def whole(store: Store, path: str, content: bytes = b"x") -> str:
    """The id of a table that has all of its files."""
    assert [store.read(f"{path}/{name}") for name in FILES] == [content] * len(FILES)
    snapshot = TableLog.below(store, path).snapshot()
    assert snapshot.version == 2
    return str(snapshot.metadata["id"])


def test_a_table_is_moved_completely(store: Store) -> None:
    identity = make(store)
    tables.put_aside(store, PATH, ASIDE)
    assert is_gone(store, PATH)
    assert whole(store, ASIDE) == identity


def test_a_moved_table_replaces_one_moved_before(store: Store) -> None:
    make(store, content=b"older")
    tables.put_aside(store, PATH, ASIDE)
    store.replace(f"{ASIDE}/of-the-older", b"x")
    identity = make(store)
    tables.put_aside(store, PATH, ASIDE)
    assert whole(store, ASIDE) == identity
    assert "of-the-older" not in [file.name for file in store.list(ASIDE).files]


def test_without_a_table_nothing_is_moved(store: Store) -> None:
    tables.put_aside(store, PATH, ASIDE)
    assert is_gone(store, ASIDE)


def test_a_table_is_removed(store: Store) -> None:
    make(store)
    tables.remove(store, PATH)
    tables.remove(store, PATH)
    assert is_gone(store, PATH)


@pytest.mark.full
def test_after_any_crash_the_table_is_moved_completely(objects: ObjectStore) -> None:
    crashes = 0
    while True:
        identity = make(objects)
        try:
            tables.put_aside(dying(objects, crashes + 1), PATH, ASIDE)
        except Crash:
            crashes += 1
            if TableLog.below(objects, PATH).snapshot().exists:
                tables.put_aside(objects, PATH, ASIDE)  # as whoever finds the table does
            assert whole(objects, ASIDE) == identity
            objects.delete_folder(PATH)
            objects.delete_folder(ASIDE)
        else:
            break
    assert crashes > 2 * len(FILES)


def test_a_crash_leaves_the_whole_table_or_nothing(objects: ObjectStore) -> None:
    crashes = 0
    while True:
        make(objects)
        try:
            tables.remove(dying(objects, crashes + 1), PATH)
        except Crash:
            crashes += 1
            if not TableLog.below(objects, PATH).snapshot().exists:
                assert is_gone(objects, PATH)
            tables.remove(objects, PATH)
            assert is_gone(objects, PATH)
        else:
            break
    assert crashes == 4
