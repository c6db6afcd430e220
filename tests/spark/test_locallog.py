"""Logs on a local file system: no commit takes the place of another, or is there in part."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from mirrorlake.spark import jars, locallog
from mirrorlake.spark.session import Spark

pytestmark = pytest.mark.spark

VERSIONS = 30


class Log:
    """The store that Delta has chosen for a folder."""

    def __init__(self, session: SparkSession, folder: Path) -> None:
        self.folder, self._jvm = folder, session._jvm
        delta: Any = self._jvm.org.apache.spark.sql.delta  # type: ignore[union-attr]
        self._hadoop = session._jsparkSession.sessionState().newHadoopConf()
        self._store = delta.DeltaLog.forTable(session._jsparkSession, str(folder)).store()

    def write(self, name: str, lines: Sequence[str], *, overwrite: bool = False) -> bool:
        """Whether it was written; if not, because it was there."""
        jvm: Any = self._jvm
        path = jvm.org.apache.hadoop.fs.Path((self.folder / name).as_uri())
        actions = jvm.org.apache.spark.api.python.PythonUtils.toSeq(list(lines))
        try:
            self._store.write(path, actions.iterator(), overwrite, self._hadoop)
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() != "FileAlreadyExistsException":
                raise
            return False
        return True

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())


@pytest.fixture
def log(spark: Spark, tmp_path: Path) -> Log:
    return Log(spark.session, tmp_path)


def test_it_is_what_our_session_writes_logs_with(spark: Spark) -> None:
    conf = spark.session.sparkContext.getConf()
    assert conf.get("spark.delta.logStore.file.impl") == locallog.STORE
    for session in (spark.session, spark.session.newSession()):
        assert session.conf.get("spark.sql.streaming.checkpointFileManagerClass") == locallog.FILES


def test_a_commit_is_written_line_by_line_and_nothing_beside_it(log: Log) -> None:
    assert log.write("0.json", ['{"a": "ä"}', '{"b": 1}'])
    assert (log.folder / "0.json").read_bytes() == '{"a": "ä"}\n{"b": 1}\n'.encode()
    assert log.names() == ["0.json"]


def test_a_commit_that_is_there_stays_as_it_is(log: Log) -> None:
    assert log.write("0.json", ["ours"])
    assert not log.write("0.json", ["theirs"])
    assert (log.folder / "0.json").read_text() == "ours\n"
    assert log.names() == ["0.json"]


def test_what_may_be_overwritten_is(log: Log) -> None:
    assert log.write("_last_checkpoint", ["1"], overwrite=True)
    assert log.write("_last_checkpoint", ["2"], overwrite=True)
    assert (log.folder / "_last_checkpoint").read_text() == "2\n"


def test_of_several_writers_of_a_version_one_wins(log: Log) -> None:
    def tries(writer: int) -> list[bool]:
        return [log.write(f"{version}.json", [str(writer)]) for version in range(VERSIONS)]

    with ThreadPoolExecutor(4) as pool:
        won = list(pool.map(tries, range(4)))
    for version in range(VERSIONS):
        (winner,) = [writer for writer in range(4) if won[writer][version]]
        assert (log.folder / f"{version}.json").read_text() == f"{winner}\n"


def test_without_a_compiler_delta_writes_as_it_always_does(
    spark: Spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "Broken.scala"
    broken.write_text("class {")
    monkeypatch.setattr(locallog, "_SOURCE", broken)
    monkeypatch.setattr(jars, "cache", lambda: tmp_path)
    conf = spark.session.sparkContext._jsc.sc().conf()  # type: ignore[union-attr]
    before = conf.get("spark.delta.logStore.file.impl")
    assert locallog.use(spark.session) is False
    assert conf.get("spark.delta.logStore.file.impl") == before
    assert not list(tmp_path.rglob("*.jar"))
