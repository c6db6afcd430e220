"""Logs on S3: no commit takes the place of another, whichever process wrote it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from mirrorlake.spark import locallog
from mirrorlake.spark.session import Spark
from mirrorlake.storage.urls import addressed
from tests.objects import S3Server

pytestmark = pytest.mark.spark

VERSIONS = 5


class Log:
    """The store that Delta has chosen for a place."""

    def __init__(self, spark: Spark, location: str) -> None:
        session = spark.session
        self.location, self._jvm = location, session._jvm
        delta: Any = self._jvm.org.apache.spark.sql.delta  # type: ignore[union-attr]
        self._hadoop = session._jsparkSession.sessionState().newHadoopConf()
        self._store = delta.DeltaLog.forTable(session._jsparkSession, location).store()

    def write(self, name: str, lines: Sequence[str], *, overwrite: bool = False) -> bool:
        """Whether it was written; if not, because it was there."""
        jvm: Any = self._jvm
        path = jvm.org.apache.hadoop.fs.Path(f"{self.location}/_delta_log/{name}")
        actions = jvm.org.apache.spark.api.python.PythonUtils.toSeq(list(lines))
        try:
            self._store.write(path, actions.iterator(), overwrite, self._hadoop)
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() != "FileAlreadyExistsException":
                raise
            return False
        return True


@pytest.fixture
def location(s3: S3Server) -> str:
    return f"{s3.new_bucket()}/Tables/t"


def read(s3: S3Server, location: str, name: str) -> bytes:
    store, key = addressed(location, s3.options)
    return store.read(f"{key}/_delta_log/{name}")


def test_it_is_what_our_session_writes_logs_with(spark: Spark) -> None:
    conf = spark.session.sparkContext.getConf()
    assert conf.get("spark.delta.logStore.s3.impl") == locallog.S3_STORE


def test_a_commit_is_written_line_by_line(spark: Spark, s3: S3Server, location: str) -> None:
    log = Log(spark, location)
    assert log.write("1.json", ["one", "zwei \u00e4"])
    assert read(s3, location, "1.json") == "one\nzwei \u00e4\n".encode()
    assert not log.write("1.json", ["other"])
    assert read(s3, location, "1.json") == "one\nzwei \u00e4\n".encode()
    assert log.write("1.json", ["other"], overwrite=True)
    assert read(s3, location, "1.json") == b"other\n"


def test_of_many_who_commit_one_version_the_storage_lets_one(
    spark: Spark, s3: S3Server, location: str
) -> None:
    """Each by a store of its own, as processes are: stores share no lock here."""
    log = Log(spark, location)

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
    log = Log(spark, location)
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
