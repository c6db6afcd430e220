"""The log of a table on objects: what is asked of the storage, and what is made of its answers."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pytest

from mirrorlake.apply.logs.progress import read_progress
from mirrorlake.delta.log.files import log_files
from mirrorlake.delta.log.table_log import BrokenLog, TableLog
from mirrorlake.errors import StorageUnavailable
from mirrorlake.mirror.faults import UnreachableTable
from mirrorlake.storage.urls import addressed
from tests.delta.handmade import HandmadeTable
from tests.delta.log.test_table_log import SHAPE, WIDER, facts
from tests.objects import CREDENTIALS, S3Server


@pytest.fixture
def table(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> HandmadeTable:
    s3.described(monkeypatch)
    return HandmadeTable(f"{s3.new_bucket()}/some/Tables/t", SHAPE.schema)


def put(table: HandmadeTable, *names: str) -> None:
    """A commit that adds files of these names, and records itself."""
    version = table.log.snapshot().version + 1
    adds = [
        {
            "add": {
                "path": n,
                "size": 1,
                "partitionValues": {},
                "dataChange": True,
                "modificationTime": 0,
            }
        }
        for n in names
    ]
    table.commit([*adds, {"txn": {"appId": "app", "version": version}}])


def names(log: TableLog) -> list[str]:
    return sorted(path for path, _vector in log.snapshot().files)


def test_following_a_log_equals_reading_it_again(table: HandmadeTable) -> None:
    log = TableLog(table.location)
    for number in range(4):
        put(table, f"f{number}")
        assert facts(log.snapshot()) == facts(TableLog(table.location).snapshot())
    assert names(log) == ["f0", "f1", "f2", "f3"]
    assert log.versions() == [0, 1, 2, 3, 4]
    assert (log.has(4), log.has(5)) == (True, False)


def test_following_an_unchanged_log_takes_two_requests(table: HandmadeTable, s3: S3Server) -> None:
    put(table, "a")
    log = TableLog(table.location)
    log.snapshot()
    before = len(s3.requests)
    log.snapshot()
    assert [request.split()[0] for request in s3.requests[before:]] == ["HEAD", "HEAD"]


def test_the_first_read_lists_once_and_reads_each_commit_once(
    table: HandmadeTable, s3: S3Server
) -> None:
    for number in range(3):
        put(table, f"f{number}")
    before = len(s3.requests)
    TableLog(table.location).snapshot()
    asked = [request.split()[0] for request in s3.requests[before:]]
    assert sorted(asked) == ["GET", "GET", "GET", "GET", "HEAD", "LIST"]


def test_a_missing_table_takes_one_request(s3: S3Server) -> None:
    log = TableLog(f"{s3.new_bucket()}/Tables/t", s3.options)
    before = len(s3.requests)
    assert not log.snapshot().exists
    assert len(s3.requests) - before == 1


def test_a_checkpoint_of_others_is_read(table: HandmadeTable, tmp_path: Path) -> None:
    put(table, "a", "b")
    put(table, "c")
    expected = facts(TableLog(table.location).snapshot())
    copy = HandmadeTable(table.path)  # the checkpoint is made on a copy
    deltalake.DeltaTable(str(copy.location)).create_checkpoint()
    store, key = addressed(str(table.location))
    name = f"{2:020d}.checkpoint.parquet"
    store.replace(f"{key}/_delta_log/{name}", Path(copy.location, "_delta_log", name).read_bytes())
    for version in (0, 1):
        store.delete(f"{key}/_delta_log/{version:020d}.json")
    assert facts(TableLog(table.location).snapshot()) == expected


def test_a_replaced_table_is_detected(table: HandmadeTable) -> None:
    log = TableLog(table.location)
    put(table, "a")
    assert names(log) == ["a"]
    store, key = addressed(str(table.location))
    store.delete_folder(key)
    other = HandmadeTable(table.location, WIDER.schema)
    put(other, "b")
    assert names(log) == ["b"]


def test_a_removed_table_is_reported_once(table: HandmadeTable) -> None:
    log = TableLog(table.location)
    log.snapshot()
    store, key = addressed(str(table.location))
    store.delete_folder(key)
    with pytest.raises(FileNotFoundError):
        log.snapshot()
    assert not log.snapshot().exists


def test_a_commit_that_is_missing_is_reported(table: HandmadeTable) -> None:
    put(table, "a")
    put(table, "b")
    store, key = addressed(str(table.location))
    store.delete(f"{key}/_delta_log/{1:020d}.json")
    with pytest.raises(BrokenLog, match="commit 1"):
        TableLog(table.location).snapshot()


def test_denied_access_is_not_an_error_of_the_table(s3: S3Server) -> None:
    with pytest.raises(UnreachableTable) as found:
        read_progress(TableLog("s3://no-such-bucket/Tables/t", s3.options), "s.t")
    assert found.value.code == StorageUnavailable.code
    assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in str(found.value)


@pytest.mark.full
def test_long_logs_are_read_in_their_order(s3: S3Server) -> None:
    url = s3.new_bucket()
    contents = [str(number).encode() for number in range(300)]
    for number, content in enumerate(contents):
        s3.put(f"{url}/t/_delta_log/{number:020d}.json", content)
    files = log_files(f"{url}/t", s3.options)
    assert list(files.reads([f"{n:020d}.json" for n in range(300)])) == contents
