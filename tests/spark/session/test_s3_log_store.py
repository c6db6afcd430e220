"""Logs on S3: no commit takes the place of another, whichever process wrote it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from mirrorlake.spark.session import log_store
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.storage.urls import addressed
from tests.objects import S3Server
from tests.spark.logstore import LogStore

pytestmark = pytest.mark.spark

VERSIONS = 5


@pytest.fixture
def location(s3: S3Server) -> str:
    return f"{s3.new_bucket()}/Tables/t"


def read(s3: S3Server, location: str, name: str) -> bytes:
    store, key = addressed(location, s3.options)
    return store.read(f"{key}/_delta_log/{name}")


def test_it_is_what_our_session_writes_logs_with(spark: Spark) -> None:
    conf = spark.session.sparkContext.getConf()
    assert conf.get("spark.delta.logStore.s3.impl") == log_store.S3


def test_a_commit_is_written_line_by_line(spark: Spark, s3: S3Server, location: str) -> None:
    log = LogStore(spark, location)
    assert log.write("1.json", ["one", "zwei \u00e4"])
    assert read(s3, location, "1.json") == "one\nzwei \u00e4\n".encode()
    assert not log.write("1.json", ["other"])
    assert read(s3, location, "1.json") == "one\nzwei \u00e4\n".encode()
    assert log.write("1.json", ["other"], overwrite=True)
    assert read(s3, location, "1.json") == b"other\n"


@pytest.mark.full
def test_of_many_who_commit_one_version_the_storage_lets_one(
    spark: Spark, s3: S3Server, location: str
) -> None:
    """Each by a store of its own, as processes are: stores share no lock here."""
    log = LogStore(spark, location)

    def race(version: int) -> list[bool]:
        with ThreadPoolExecutor(6) as pool:
            return list(
                pool.map(lambda own: log.write(f"{version}.json", [f"writer {own}"]), range(6))
            )

    for version in range(VERSIONS):
        won = race(version)
        assert won.count(True) == 1
        content = read(s3, location, f"{version}.json")
        assert content == f"writer {won.index(True)}\n".encode()


def test_what_appears_between_the_look_and_the_commit_stays(
    spark: Spark, s3: S3Server, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process commits after this one has looked whether anybody did."""
    log = LogStore(spark, location)
    before = len(s3.requests)

    class Watched(list[str]):
        def append(self, request: str) -> None:
            super().append(request)
            if request.startswith("PUT ") and request.endswith("/7.json"):
                s3.put(f"{location}/_delta_log/7.json", b"theirs\n")

    monkeypatch.setattr(s3, "requests", Watched(s3.requests))
    assert not log.write("7.json", ["ours"])
    assert read(s3, location, "7.json") == b"theirs\n"
    assert any(request.endswith("/7.json") for request in s3.requests[before:])
