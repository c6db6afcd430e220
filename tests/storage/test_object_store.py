"""The store on objects: the contract over a real protocol, and what objects cannot do."""

from __future__ import annotations

import errno
import pickle
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.exceptions import GenericError, NotSupportedError
from obstore.store import MemoryStore, S3Store

from mirrorlake.errors import StorageUnavailable, UnsafeStorage, UsageError
from mirrorlake.storage import urls
from mirrorlake.storage.local import LocalStore
from mirrorlake.storage.objects import ObjectStore
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.store import Listing, Store
from mirrorlake.storage.tree import ListedTree, Lister, lister_for
from mirrorlake.storage.urls import open_file, open_store
from tests.conformance.store import (
    FINAL,
    LARGE,
    STAGED,
    StorageContract,
    StoreContract,
    names,
    race,
    stage,
)
from tests.objects import CREDENTIALS, S3Server, hooked


class TestObjectsInMemory(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return ObjectStore(MemoryStore(), "memory://")


class TestS3(StorageContract):
    @pytest.fixture
    def store(self, bucket: ObjectStore) -> Store:
        return bucket


@pytest.fixture
def bucket(s3: S3Server) -> ObjectStore:
    """A store below a prefix of an empty bucket."""
    found = open_store(f"{s3.new_bucket()}/some/prefix", s3.options)
    assert isinstance(found, ObjectStore)
    return found


class TestPublication:
    @pytest.mark.clause("LZ-131")
    @pytest.mark.parametrize("size", [10, LARGE])
    def test_a_crash_before_the_staged_file_is_deleted_leaves_the_final_file_complete(
        self, bucket: ObjectStore, size: int
    ) -> None:
        def die(*_args: object) -> None:
            raise KeyboardInterrupt

        stage(bucket, b"x" * size)
        with pytest.raises(KeyboardInterrupt):
            hooked(bucket, delete=die).publish(STAGED, FINAL)
        assert bucket.read(FINAL) == b"x" * size
        with pytest.raises(FileExistsError):
            bucket.publish(STAGED, FINAL)

    @pytest.mark.clause("LZ-134")
    def test_one_of_several_concurrent_publications_of_large_files_wins(
        self, bucket: ObjectStore
    ) -> None:
        for racer in range(4):
            stage(bucket, b"%d" % racer * LARGE, f"zone/t/_stage-{racer}")
        won = race(4, lambda racer: bucket.publish(f"zone/t/_stage-{racer}", FINAL))
        assert bucket.read(FINAL) == b"%d" % won * LARGE

    @pytest.mark.parametrize("size", [10, LARGE])
    def test_a_storage_that_ignores_conditions_is_refused(
        self, bucket: ObjectStore, size: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put, copy = S3Store.put, S3Store.copy

        def overwrite(self: S3Store, *args: Any, **options: Any) -> Any:
            return put(self, *args, **{**options, "mode": "overwrite"})

        def copied(self: S3Store, *args: Any, **options: Any) -> Any:
            return copy(self, *args, **{**options, "overwrite": True})

        bucket.replace(FINAL, b"first")
        stage(bucket, b"x" * size)
        monkeypatch.setattr(S3Store, "put", overwrite)
        monkeypatch.setattr(S3Store, "copy", copied)
        with pytest.raises(UnsafeStorage):
            bucket.publish(STAGED, FINAL)
        assert bucket.read(FINAL) == b"first"

    def test_without_conditional_copies_the_content_is_uploaded(self, bucket: ObjectStore) -> None:
        def refuse(*_args: object, **_options: object) -> None:
            raise NotSupportedError

        other = hooked(bucket, copy=refuse)
        stage(other, b"x" * LARGE)
        other.publish(STAGED, FINAL)
        stage(other, b"y" * LARGE)
        with pytest.raises(FileExistsError):
            other.publish(STAGED, FINAL)
        assert bucket.read(FINAL) == b"x" * LARGE


class TestLostAnswers:
    """A write took place, its answer was lost, and the client tried again."""

    @staticmethod
    def twice(store: ObjectStore) -> Callable[..., Any]:
        def put(*args: Any, **options: Any) -> Any:
            store._client.put(*args, **options)
            return store._client.put(*args, **options)

        return put

    def test_a_creation_recognizes_its_own_file(self, bucket: ObjectStore) -> None:
        hooked(bucket, put=self.twice(bucket)).create("a", b"x")
        assert bucket.read("a") == b"x"

    def test_a_creation_does_not_mistake_equal_content_for_its_own(
        self, bucket: ObjectStore
    ) -> None:
        bucket.create("a", b"x")
        with pytest.raises(FileExistsError):
            hooked(bucket, put=self.twice(bucket)).create("a", b"x")

    def test_a_publication_recognizes_its_own_file(self, bucket: ObjectStore) -> None:
        stage(bucket, b"rows")
        hooked(bucket, put=self.twice(bucket)).publish(STAGED, FINAL)
        assert names(bucket, "zone/t") == ["1"]


class TestForeignKeys:
    """Keys that tools and consoles make."""

    def test_the_object_that_represents_a_folder_is_not_a_file_in_it(
        self, bucket: ObjectStore, s3: S3Server
    ) -> None:
        s3.send("PUT", f"{location(bucket)}/zone/")
        bucket.create("zone/t/1", b"x")
        assert (names(bucket, "zone"), bucket.list("zone").folders) == ([], ("t",))

    def test_a_folder_whose_object_remains_is_not_considered_deleted(
        self, bucket: ObjectStore, s3: S3Server
    ) -> None:
        s3.send("PUT", f"{location(bucket)}/zone/t/")
        bucket.create("zone/t/1", b"x")
        with pytest.raises(OSError, match="1 objects are left"):
            bucket.delete_folder("zone/t")

    def test_an_invalid_key_affects_only_its_own_folder(
        self, bucket: ObjectStore, s3: S3Server
    ) -> None:
        bucket.create("zone/t/1", b"x")
        bucket.create("zone/u/1", b"x")
        s3.send("PUT", f"{location(bucket)}/zone/t//x")
        with pytest.raises(OSError, match="empty path segment"):
            bucket.list("zone/t")
        assert names(bucket, "zone/u") == ["1"]
        assert names_of(lister_for(bucket, "zone"), "zone/u") == ["1"]

    def test_a_name_with_a_backslash_is_not_shown(self, bucket: ObjectStore, s3: S3Server) -> None:
        s3.send("PUT", f"{location(bucket)}/zone/a%5Cb")
        s3.send("PUT", f"{location(bucket)}/zone/c%5Cd/e")
        bucket.create("zone/file", b"x")
        assert (names(bucket, "zone"), bucket.list("zone").folders) == (["file"], ())
        assert [item.name for item in bucket.unlisted("zone")] == ["a\\b", "c\\d"]

    @pytest.mark.parametrize("name", ["a b", "a%2Fb", "é", "a?b", "a#b", "a+b", "~", "*", "[{}]"])
    def test_other_names_are_not_changed(
        self, bucket: ObjectStore, s3: S3Server, name: str
    ) -> None:
        bucket.create(f"zone/{name}", b"x")
        assert names(bucket, "zone") == [name]
        with open_file(bucket.location(f"zone/{name}"), s3.options) as file:
            assert file.read() == b"x"


class TestTree:
    """All folders at one look."""

    @given(
        st.lists(
            st.lists(st.sampled_from(["a", "b", "_c", "d.schema", "1", "9"]), min_size=1).map(
                "/".join
            ),
            unique=True,
            max_size=30,
        )
    )
    def test_a_tree_has_the_listings_of_all_folders(self, paths: list[str]) -> None:
        store = ObjectStore(MemoryStore(), "memory://")
        for path in paths:
            if not any(other.startswith(f"{path}/") for other in paths):
                store.create(path, b"x")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("mirrorlake.storage.objects.PAGE", 2)
            seen = lister_for(store, "a")
        assert isinstance(seen, ListedTree)
        assert walked(seen, "a") == walked(store, "a")

    def test_a_local_store_is_listed_folder_by_folder(self, store: LocalStore) -> None:
        assert lister_for(store, "a") is store

    def test_a_tree_takes_one_request_per_thousand_keys(
        self, bucket: ObjectStore, s3: S3Server
    ) -> None:
        for table in range(20):
            bucket.replace(f"zone/t{table}/1", b"x")
        s3.requests.clear()
        seen = lister_for(bucket, "zone")
        assert len(seen.list("zone").folders) == 20
        assert len(s3.requests) == 1

    @pytest.mark.full
    def test_a_cleanup_folder_takes_one_request_whatever_its_size(
        self, bucket: ObjectStore, s3: S3Server
    ) -> None:
        for table in ("t", "u"):
            bucket.replace(f"zone/{table}/1", b"x")
        s3.fill(bucket.location("zone/t/_FilesReadyToDelete"), 3_500)
        bucket.replace("zone/t/_metadata.json", b"{}")
        s3.requests.clear()
        seen = lister_for(bucket, "zone")
        assert names_of(seen, "zone/t") == ["1", "_metadata.json"]
        assert names_of(seen, "zone/u") == ["1"]
        assert len(s3.requests) == 2


class TestLocations:
    """Paths and URLs."""

    def test_a_path_is_a_folder(self, tmp_path: Path) -> None:
        assert isinstance(open_store(tmp_path), LocalStore)

    @pytest.mark.parametrize("url", ["s3://b", "s3://b/", "s3a://b/p/q", "gs://b/p", "az://c/p"])
    def test_a_url_is_a_store_of_objects(
        self, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
        store = open_store(url)
        assert store.location("a/b") == f"{url.rstrip('/')}/a/b"

    @pytest.mark.parametrize(
        ("url", "said"),
        [
            ("ftp://host/path", "ftp://"),
            ("memory:///path", "memory://"),
            ("s3://", "no bucket"),
            ("s3:///path?hunter2", "no bucket"),
            ("s3://key:hunter2@bucket/path", "more than a bucket"),
            ("s3://bucket:9000/path", "more than a bucket"),
            ("s3://bucket?token=hunter2", "more than a bucket"),
            ("az://container/path?sig=hunter2", "question mark"),
            ("s3://bucket/a/../b", "empty part"),
            ("s3://bucket/a//b", "empty part"),
        ],
    )
    def test_an_invalid_location_is_refused_without_repeating_a_secret(
        self, url: str, said: str
    ) -> None:
        with pytest.raises(UsageError) as caught:
            open_store(url)
        assert said in str(caught.value)
        assert "hunter2" not in str(caught.value)
        assert caught.value.hint

    @pytest.mark.parametrize("endpoint", ["https://me:hunter2@host", "https://host?hunter2"])
    def test_an_endpoint_with_credentials_is_refused(self, endpoint: str) -> None:
        with pytest.raises(UsageError) as caught:
            ObjectOptions(endpoint=endpoint)
        assert "hunter2" not in str(caught.value)

    def test_a_missing_library_is_named_with_the_way_to_install_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delitem(sys.modules, "mirrorlake.storage.objects")
        monkeypatch.setitem(sys.modules, "obstore", None)
        monkeypatch.setitem(sys.modules, "obstore.exceptions", None)
        with pytest.raises(UsageError, match=r'pip install "mirrorlake\[objects\]"'):
            open_store("s3://bucket")

    def test_credentials_are_neither_shown_nor_pickled(self, bucket: ObjectStore) -> None:
        options = ObjectOptions(endpoint="https://host", region="r")
        shown = f"{bucket!r} {bucket.location('a')} {options!r} {pickle.dumps(options)!r}"
        assert not any(value in shown for value in CREDENTIALS.values())

    def test_a_location_is_opened_in_any_process_with_its_options(
        self, bucket: ObjectStore, s3: S3Server
    ) -> None:
        bucket.create("a/b", b"content")
        options = pickle.loads(pickle.dumps(s3.options))
        with open_file(bucket.location("a/b"), options) as file:
            assert file.read() == b"content"

    def test_no_number_of_refusals_ends_the_retries_of_a_request_before_its_time(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[str] = []

        class Busy(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                self.send_response(503 if len(asked) <= 20 else 200)
                self.send_header("Content-Length", "0")
                self.send_header("ETag", '"e"')
                self.send_header("Last-Modified", "Mon, 30 Nov 2026 12:00:00 GMT")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        quick = {
            "init_backoff": timedelta(milliseconds=1),
            "max_backoff": timedelta(milliseconds=2),
        }
        retry = urls._retry() | {"backoff": quick}
        monkeypatch.setattr(urls, "_retry", lambda: retry)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        with ThreadingHTTPServer(("127.0.0.1", 0), Busy) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            address = f"http://127.0.0.1:{server.server_port}"
            assert open_store("s3://bucket", ObjectOptions(address, "r")).read("a") == b""
            server.shutdown()
        assert len(asked) == 21

    def test_a_storage_that_does_not_answer_is_an_error_of_the_system(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(urls, "_retry", lambda: {"max_retries": 0})
        store = open_store("s3://bucket", ObjectOptions("http://127.0.0.1:9", "us-east-1"))
        with pytest.raises(OSError) as caught:
            store.read("a")
        assert caught.value.errno == errno.EREMOTEIO
        found = StorageUnavailable.of(caught.value)
        assert found is not None
        assert "bucket" in found.hint

    @pytest.mark.parametrize("action", ["list", "tree", "create", "replace", "stage"])
    def test_a_missing_bucket_is_not_a_missing_file(self, s3: S3Server, action: str) -> None:
        store = open_store("s3://nobody-made-this", s3.options)
        acts: dict[str, Callable[[Store], object]] = {
            "list": lambda store: store.list("a"),
            "tree": lambda store: store.tree("a"),
            "create": lambda store: store.create("a", b""),
            "replace": lambda store: store.replace("a", b""),
            "stage": lambda store: stage(store, b""),
        }
        with pytest.raises(OSError, match=r"(?i)no ?such ?bucket|bucket does not exist") as caught:
            acts[action](store)
        assert caught.value.errno == errno.EREMOTEIO

    def test_a_signed_address_is_not_repeated(self, bucket: ObjectStore) -> None:
        def fail(*_args: object, **_options: object) -> None:
            raise GenericError("cannot GET https://host/lake/a?sig=hunter2&x=1 in 3 ms\nhunter2")

        with pytest.raises(OSError) as caught:
            hooked(bucket, get=fail).read("a")
        assert "hunter2" not in str(caught.value)
        assert caught.value.__cause__ is None


def location(store: ObjectStore) -> str:
    return store._url.removeprefix("s3://")


def names_of(lister: Lister, folder: str) -> list[str]:
    return [entry.name for entry in lister.list(folder).files]


def walked(lister: Lister, folder: str) -> dict[str, Listing]:
    listing = lister.list(folder)
    found = {folder: listing}
    for name in listing.folders:
        if not name.startswith("_"):
            found |= walked(lister, f"{folder}/{name}")
    return found
