"""Logs on a local file system: no commit takes the place of another, or is there in part."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError

from mirrorlake.spark.session import jars, log_store
from mirrorlake.spark.session.spark_session import Spark
from tests.spark.logstore import LogStore

pytestmark = pytest.mark.spark

VERSIONS = 30


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the store writes, and nobody else."""
    made = tmp_path / "log"
    made.mkdir()
    return made


@pytest.fixture
def log(spark: Spark, folder: Path) -> LogStore:
    return LogStore(spark, folder.parent.as_uri(), folder.name)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_it_is_what_our_session_writes_logs_with(spark: Spark) -> None:
    conf = spark.session.sparkContext.getConf()
    assert conf.get("spark.delta.logStore.file.impl") == log_store.STORE
    for session in (spark.session, spark.session.newSession()):
        assert session.conf.get("spark.sql.streaming.checkpointFileManagerClass") == log_store.FILES


def test_a_commit_is_written_line_by_line_and_nothing_beside_it(
    log: LogStore, folder: Path
) -> None:
    assert log.write("0.json", ['{"a": "ä"}', '{"b": 1}'])
    assert (folder / "0.json").read_bytes() == '{"a": "ä"}\n{"b": 1}\n'.encode()
    assert names(folder) == ["0.json"]


def test_a_commit_that_is_there_stays_as_it_is(log: LogStore, folder: Path) -> None:
    assert log.write("0.json", ["ours"])
    assert not log.write("0.json", ["theirs"])
    assert (folder / "0.json").read_text() == "ours\n"
    assert names(folder) == ["0.json"]


def test_what_may_be_overwritten_is(log: LogStore, folder: Path) -> None:
    assert log.write("_last_checkpoint", ["1"], overwrite=True)
    assert log.write("_last_checkpoint", ["2"], overwrite=True)
    assert (folder / "_last_checkpoint").read_text() == "2\n"


def test_a_listing_begins_at_a_name_and_goes_by_name(log: LogStore, folder: Path) -> None:
    for name in ("02.json", "01.json", "00.json", "01 ä%2.json", "02.json:Zone.Id", ".03.tmp"):
        (folder / name).write_text(name)
    (folder / "_staged").mkdir()
    (folder / "gone").symlink_to(folder / "nowhere")
    root = folder.as_uri().replace("file:///", "file:/")
    assert log.names_from("01") == [
        (f"{root}/01 ä%2.json", 12, False),
        (f"{root}/01.json", 7, False),
        (f"{root}/02.json", 7, False),
        (f"{root}/02.json:Zone.Id", 15, False),
        (f"{root}/_staged", 4096, True),
    ]
    assert log.names_from("a") == []


def test_a_listing_of_no_folder_says_so(spark: Spark, tmp_path: Path) -> None:
    with pytest.raises(Py4JJavaError, match="FileNotFoundException"):
        LogStore(spark, tmp_path.as_uri(), "nowhere").names_from("0")


def test_of_several_writers_of_a_version_one_wins(log: LogStore, folder: Path) -> None:
    def tries(writer: int) -> list[bool]:
        return [log.write(f"{version}.json", [str(writer)]) for version in range(VERSIONS)]

    with ThreadPoolExecutor(4) as pool:
        won = list(pool.map(tries, range(4)))
    for version in range(VERSIONS):
        (winner,) = [writer for writer in range(4) if won[writer][version]]
        assert (folder / f"{version}.json").read_text() == f"{winner}\n"


def test_its_source_names_the_class_of_spark_where_that_has_it() -> None:
    source = (log_store._SOURCES / log_store._SOURCE).read_text()
    assert all(log_store._as_for(spark, source) == source for spark, _delta in jars.TESTED)
    name = "execution.streaming.FileSystemBasedCheckpointFileManager"
    assert name not in source
    assert name in log_store._as_for("4.0.1", source)


def test_without_a_compiler_delta_writes_as_it_always_does(
    spark: Spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "Broken.scala"
    broken.write_text("class {")
    monkeypatch.setattr(log_store, "_SOURCE", broken)
    monkeypatch.setattr(jars, "cache", lambda: tmp_path)
    conf = spark.session.sparkContext._jsc.sc().conf()  # type: ignore[union-attr]
    before = conf.get("spark.delta.logStore.file.impl")
    assert log_store.use(spark.session) is False
    assert conf.get("spark.delta.logStore.file.impl") == before
    assert not list(tmp_path.rglob("*.jar"))
