"""The contract over the XML API of Google Cloud Storage, and how it is reached."""

from __future__ import annotations

import pytest

from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.store import Store
from mirrorlake.storage.tree import lister_for
from mirrorlake.storage.urls import open_store
from tests.conformance.store import FINAL, LARGE, STAGED, StorageContract, stage
from tests.doubles.google_storage import TOKEN, GoogleStorage


@pytest.fixture
def store(google: GoogleStorage) -> Store:
    """A store below a prefix of an empty bucket."""
    return open_store(f"{google.new_bucket()}/some/prefix", google.options)


class TestGoogleStorage(StorageContract):
    @pytest.fixture
    def store(self, store: Store) -> Store:
        return store


@pytest.mark.clause("LZ-134")
@pytest.mark.parametrize("size", [10, LARGE])
def test_a_publication_is_one_write_on_condition_that_there_is_no_object(
    google: GoogleStorage, store: Store, size: int
) -> None:
    stage(store, b"x" * size)
    google.seen.clear()
    store.publish(STAGED, FINAL)
    (written,) = [seen for seen in google.seen if seen.method == "PUT"]
    assert written.key == f"some/prefix/{FINAL}"
    assert written.headers["x-goog-if-generation-match"] == "0"
    assert ("x-goog-copy-source" in written.headers) == (size == LARGE)


def test_a_folder_of_several_pages_is_listed_and_deleted_whole(
    google: GoogleStorage, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(google, "page", 3)
    names = [f"{number:02}" for number in range(10)]
    for name in names:
        store.create(f"zone/t/{name}", b"x")
        store.create(f"zone/t/{name}.d/inside", b"x")
    found = store.list("zone/t")
    assert [file.name for file in found.files] == names
    assert list(found.folders) == [f"{name}.d" for name in names]
    assert len(store.tree("zone")) == 2 + len(names)
    store.delete_folder("zone/t")
    assert store.tree("zone") == {}


def test_a_part_of_a_folder_is_listed_alone(google: GoogleStorage, store: Store) -> None:
    for number in range(10):
        store.create(f"zone/t/{number}.json", b"x")
    google.seen.clear()
    assert store.names_between("zone/t", "4", "7") == ["4.json", "5.json", "6.json"]
    (seen,) = google.seen
    assert seen.query["start-after"] == "some/prefix/zone/t/4"


def test_the_rest_of_a_cleanup_folder_is_skipped(
    google: GoogleStorage, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        store.create(f"zone/t/_FilesReadyToDelete/{number:02}", b"x")
    store.create("zone/t/_metadata.json", b"{}")
    store.create("zone/u/1", b"x")
    monkeypatch.setattr("mirrorlake.storage.objects.PAGE", 2)
    monkeypatch.setattr(google, "page", 2)
    google.seen.clear()
    seen = lister_for(store, "zone")
    assert [file.name for file in seen.list("zone/t").files] == ["_metadata.json"]
    assert [file.name for file in seen.list("zone/u").files] == ["1"]
    assert len(google.seen) < 5


def test_the_address_may_come_from_the_environment(
    google: GoogleStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_BASE_URL", google.endpoint)
    store = open_store(google.new_bucket())
    store.create("a", b"x")
    assert store.read("a") == b"x"


def test_a_rejected_credential_is_told_and_not_shown(
    google: GoogleStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_BEARER_TOKEN", f"{TOKEN}-hunter2")
    store = open_store(google.new_bucket(), google.options)
    with pytest.raises(PermissionError) as caught:
        store.read("a")
    assert "hunter2" not in f"{caught.value!r} {store!r}"
    public = open_store(google.new_bucket(), ObjectOptions(google.endpoint, anonymous=True))
    with pytest.raises(PermissionError):
        public.read("a")
    assert "authorization" not in google.seen[-1].headers
