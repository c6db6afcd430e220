"""Where a table lies: those who work on its files see no difference."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mirrorlake.delta.file_cache import Cache
from mirrorlake.delta.lookup import key_index, key_lookup, row_cache
from mirrorlake.delta.lookup.key_lookup import path_of
from mirrorlake.delta.schema import TableSchema, parse
from mirrorlake.delta.workspace import (
    LostFile,
    OutsideTable,
    TableWorkspace,
    Unreachable,
    inner_tables,
    open_workspace,
)
from mirrorlake.delta.write.compact import compact
from mirrorlake.delta.write.rewrite import rewrite, write_data_files
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.urls import addressed
from tests.delta.handmade import HandmadeTable, metadata
from tests.delta.write.test_rewrite import net_of
from tests.histories import Landing, Shape
from tests.objects import S3Server
from tests.reference import Change, Row

SHAPE = Shape.of(["id"], id=types.LONG, name=types.STRING)
INSERT, UPDATE, DELETE = Marker.INSERT, Marker.UPDATE, Marker.DELETE


class StoredTable:
    """A table at a location, each act on it as a task of its own does it."""

    def __init__(self, location: str, options: ObjectOptions | None, cache: Cache) -> None:
        self.location, self.options, self.cache = location, options, cache
        self.table = HandmadeTable(location, SHAPE.schema)

    def workspace(self) -> AbstractContextManager[TableWorkspace]:
        return open_workspace(self.location, self.options, self.cache)

    def apply(self, *changes: tuple[int, Row], truncate: bool = False) -> list[dict[str, Any]]:
        file = tuple(Change(marker, row) for marker, row in changes)
        net = net_of(SHAPE, Landing((file,), truncate))
        with self.workspace() as workspace:
            done = rewrite(
                workspace.folder, self.table.files, self.schema, net, 1, fetch=workspace.fetch
            )
            workspace.upload(done.actions)
        self.table.commit(done.actions)
        return done.actions

    def compact(self) -> None:
        with self.workspace() as workspace:
            workspace.fetch(self.table.files)
            actions = compact(workspace.folder, self.table.files, self.schema, ["id"])
            workspace.upload(actions)
        self.table.commit(actions)

    @property
    def schema(self) -> TableSchema:
        return self.table.schema

    def rows(self) -> list[Row]:
        return sorted(self.table.rows())


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


@pytest.fixture
def url(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where no table is yet, and an environment that says how to get there."""
    s3.described(monkeypatch)
    return f"{s3.new_bucket()}/some/Tables/t"


@pytest.fixture
def on_s3(url: str, s3: S3Server, cache: Cache) -> StoredTable:
    return StoredTable(url, s3.options, cache)


@pytest.fixture(params=["folder", "objects"])
def kept(request: pytest.FixtureRequest, tmp_path: Path, cache: Cache) -> StoredTable:
    if request.param == "objects":
        found = request.getfixturevalue("on_s3")
        assert isinstance(found, StoredTable)
        return found
    return StoredTable(str(tmp_path / "t"), None, cache)


def test_rows_are_inserted_updated_and_deleted(kept: StoredTable) -> None:
    kept.apply(*[(INSERT, (n, "old")) for n in range(5)])
    kept.apply((UPDATE, (1, "new")), (DELETE, (2, "old")), (INSERT, (7, "x")))
    assert kept.rows() == [(0, "old"), (1, "new"), (3, "old"), (4, "old"), (7, "x")]
    kept.apply((DELETE, (3, "old")))  # of a file that has a vector already
    kept.compact()
    assert kept.rows() == [(0, "old"), (1, "new"), (4, "old"), (7, "x")]
    assert len(kept.table.files) == 1
    kept.apply((DELETE, (0, "old")))
    kept.apply((INSERT, (9, "y")), truncate=True)
    assert kept.rows() == [(9, "y")]


def test_change_images_are_those_of_the_changes(kept: StoredTable) -> None:
    kept.apply((INSERT, (1, "a")), (INSERT, (2, "b")))
    kept.apply((UPDATE, (1, "c")), (DELETE, (2, "b")))
    assert dict(kept.table.feed(2)) == {
        ("update_preimage", (1, "a")): 1,
        ("update_postimage", (1, "c")): 1,
        ("delete", (2, "b")): 1,
    }


def test_a_process_with_an_empty_cache_continues(on_s3: StoredTable, tmp_path: Path) -> None:
    on_s3.apply(*[(INSERT, (n, "old")) for n in range(5)])
    on_s3.apply((DELETE, (2, "old")))
    on_s3.cache = Cache(tmp_path / "another")
    on_s3.apply((UPDATE, (1, "new")))
    assert on_s3.rows() == [(0, "old"), (1, "new"), (3, "old"), (4, "old")]


def test_a_truncation_by_a_process_with_an_empty_cache(on_s3: StoredTable, tmp_path: Path) -> None:
    on_s3.apply(*[(INSERT, (n, "old")) for n in range(5)])
    on_s3.apply(*[(INSERT, (n, "old")) for n in range(5, 9)])
    on_s3.apply((DELETE, (2, "old")))
    on_s3.cache = Cache(tmp_path / "another")
    on_s3.apply((INSERT, (9, "y")), truncate=True)
    assert on_s3.rows() == [(9, "y")]


def test_small_files_that_a_batch_joins_are_fetched(on_s3: StoredTable, tmp_path: Path) -> None:
    on_s3.apply(*[(INSERT, (n, "a")) for n in range(3)])
    on_s3.apply(*[(INSERT, (n, "b")) for n in range(100, 103)])
    on_s3.cache = Cache(tmp_path / "another")
    net = net_of(SHAPE, Landing(((Change(UPDATE, (1, "new")),),)))
    files = on_s3.table.files
    with on_s3.workspace() as workspace:
        done = rewrite(workspace.folder, files, on_s3.schema, net, 1, files, workspace.fetch)
        workspace.upload(done.actions)
    on_s3.table.commit(done.actions)
    assert on_s3.rows() == [(0, "a"), (1, "new"), (2, "a"), *((n, "b") for n in range(100, 103))]
    assert len(on_s3.table.files) == 1


def test_indexes_are_in_the_cache_only(on_s3: StoredTable, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in (
        (key_index, "MIN_ROWS"),
        (row_cache, "SMALL"),
        (key_lookup, "MIN_ROWS_PER_KEY"),
    ):
        monkeypatch.setattr(module, name, 0)
    on_s3.apply(*[(INSERT, (n, "a")) for n in range(50)])
    (add,) = on_s3.table.files
    on_s3.apply((DELETE, (7, "a")))
    with on_s3.workspace() as workspace:
        assert key_index.open_index(workspace.folder, add, on_s3.schema, ["id"]) is not None
    store, key = addressed(on_s3.location, on_s3.options)
    assert "_mirrorlake" not in store.list(key).folders
    on_s3.apply((DELETE, (8, "a")))
    assert len(on_s3.rows()) == 48


class TestRequests:
    def test_files_that_statistics_exclude_are_not_fetched(
        self, on_s3: StoredTable, s3: S3Server, tmp_path: Path
    ) -> None:
        on_s3.apply(*[(INSERT, (n, "a")) for n in range(5)])
        on_s3.apply(*[(INSERT, (n, "b")) for n in range(100, 105)])
        on_s3.cache = Cache(tmp_path / "another")
        first = next(add for add in on_s3.table.files if '"id":0' in add["stats"])
        before = len(s3.requests)
        on_s3.apply((UPDATE, (1, "new")))
        assert gets(s3, before) == [f"GET /{on_s3.location.removeprefix('s3://')}/{first['path']}"]

    def test_cached_files_are_not_fetched_again(self, on_s3: StoredTable, s3: S3Server) -> None:
        before = len(s3.requests)
        on_s3.apply(*[(INSERT, (n, "a")) for n in range(5)])
        on_s3.apply((DELETE, (1, "a")))
        on_s3.apply((DELETE, (2, "a")))
        assert gets(s3, before) == []

    def test_change_files_are_not_cached(self, on_s3: StoredTable) -> None:
        on_s3.apply(*[(INSERT, (n, "a")) for n in range(5)])
        on_s3.apply((DELETE, (1, "a")))
        with on_s3.workspace() as workspace:
            names = {
                path.name.split("-")[0] for path in workspace.folder.rglob("*") if path.is_file()
            }
        assert not any(name.startswith("cdc") for name in names)


def gets(s3: S3Server, before: int) -> list[str]:
    """The data files and vectors that were asked for since."""
    asked = [request for request in s3.requests[before:] if request.startswith("GET ")]
    return [request for request in asked if "_delta_log" not in request]


class TestMissingFiles:
    def test_a_missing_file_is_named(self, on_s3: StoredTable) -> None:
        on_s3.apply((INSERT, (1, "a")))
        (add,) = on_s3.table.files
        store, key = addressed(on_s3.location, on_s3.options)
        store.delete(f"{key}/{add['path']}")
        on_s3.cache = Cache(on_s3.cache._root.with_name("another"))
        with on_s3.workspace() as workspace, pytest.raises(LostFile, match=add["path"]):
            workspace.fetch([add])

    def test_a_file_of_another_size_is_refused(self, on_s3: StoredTable) -> None:
        on_s3.apply((INSERT, (1, "a")))
        (add,) = on_s3.table.files
        store, key = addressed(on_s3.location, on_s3.options)
        store.replace(f"{key}/{add['path']}", b"PAR1")
        on_s3.cache = Cache(on_s3.cache._root.with_name("another"))
        with on_s3.workspace() as workspace:
            with pytest.raises(Unreachable, match="4 bytes"):
                workspace.fetch([add])
            assert not path_of(workspace.folder, add).exists()

    def test_a_bucket_that_is_not_there_is_reported(self, s3: S3Server, cache: Cache) -> None:
        with open_workspace("s3://no-such-bucket/t", s3.options, cache) as workspace:
            rows = pa.table({"id": pa.array([1], pa.int64()), "name": ["a"]})
            actions = write_data_files(
                workspace.folder, parse(metadata(SHAPE.schema)), rows, ["id"]
            )
            with pytest.raises(Unreachable, match="the bucket does not exist"):
                workspace.upload(actions)

    @pytest.mark.parametrize("path", ["../../x", "/etc/passwd", "s3://other/x", "a/%2e%2e/b"])
    def test_a_file_outside_of_the_table_is_refused(self, on_s3: StoredTable, path: str) -> None:
        with on_s3.workspace() as workspace, pytest.raises(OutsideTable):
            workspace.fetch([{"path": path, "size": 1}])

    def test_a_vector_outside_of_the_table_is_refused(self, on_s3: StoredTable) -> None:
        on_s3.apply((INSERT, (1, "a")))
        (add,) = on_s3.table.files
        vector = {"storageType": "p", "pathOrInlineDv": "s3://other/v.bin", "sizeInBytes": 1}
        with on_s3.workspace() as workspace, pytest.raises(OutsideTable):
            workspace.fetch([{**add, "deletionVector": vector}])


def test_tables_inside_a_table_are_found(on_s3: StoredTable, url: str, s3: S3Server) -> None:
    assert inner_tables(url, s3.options) == []
    HandmadeTable(f"{url}/deep/inner", SHAPE.schema)
    assert inner_tables(url, s3.options) == [f"{url}/deep/inner"]
