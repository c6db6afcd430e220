"""Logs on a local file system: no commit takes the place of another, or is there in part."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError

from mirrorlake.errors import SparkUnavailable, UnsafeStorage
from mirrorlake.spark.session import log_store
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
    assert conf.get("spark.delta.logStore.file.impl") == log_store.LOCAL
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
        (f"{root}/_staged", (folder / "_staged").stat().st_size, True),
    ]
    assert log.names_from("a") == []


def test_a_listing_of_no_folder_says_so(spark: Spark, tmp_path: Path) -> None:
    with pytest.raises(Py4JJavaError, match="FileNotFoundException"):
        LogStore(spark, tmp_path.as_uri(), "nowhere").names_from("0")


@pytest.mark.full
def test_of_several_writers_of_a_version_one_wins(log: LogStore, folder: Path) -> None:
    def tries(writer: int) -> list[bool]:
        return [log.write(f"{version}.json", [str(writer)]) for version in range(VERSIONS)]

    with ThreadPoolExecutor(4) as pool:
        won = list(pool.map(tries, range(4)))
    for version in range(VERSIONS):
        (winner,) = [writer for writer in range(4) if won[writer][version]]
        assert (folder / f"{version}.json").read_text() == f"{winner}\n"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount")
def test_where_a_link_is_refused_nothing_is_committed(log: LogStore, folder: Path) -> None:
    """A link takes an inode of this file system, and the folder and the staged file have them."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "nr_inodes=2", "none", str(folder)], check=True)
    try:
        with pytest.raises(Py4JJavaError, match="cannot be linked to its name"):
            log.write("0.json", ["ours"])
        assert names(folder) == []
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_the_jar_is_of_the_sources_beside_it_and_has_its_checksum() -> None:
    sources = sorted(log_store.JAR.parent.glob("*.scala"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    with zipfile.ZipFile(log_store.JAR) as jar:
        assert f"Sources: {digest}\n" in jar.read("META-INF/MANIFEST.MF").decode()
    assert hashlib.sha256(log_store.JAR.read_bytes()).hexdigest() == log_store.SHA256


@pytest.mark.full
def test_the_sources_give_the_jar(tmp_path: Path) -> None:
    script = Path(__file__).parents[3] / "scripts" / "build-log-store.py"
    subprocess.run([sys.executable, script, tmp_path / "built.jar"], check=True, timeout=300)
    assert (tmp_path / "built.jar").read_bytes() == log_store.JAR.read_bytes()


def test_a_damaged_jar_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = tmp_path / "damaged.jar"
    damaged.write_bytes(log_store.JAR.read_bytes()[:-1])
    monkeypatch.setattr(log_store, "JAR", damaged)
    with pytest.raises(SparkUnavailable, match="damaged"):
        log_store.configuration()


class Conf:
    """Settings of a session that somebody else made."""

    def __init__(self, **settings: str) -> None:
        self.sparkContext = self
        self._settings = settings

    def getConf(self) -> dict[str, str]:  # noqa: N802
        return self._settings


@pytest.mark.parametrize(
    ("scheme", "store"),
    [
        ("file", "mirrorlake.LocalLogStore"),
        ("s3", "mirrorlake.S3LogStore"),
        ("s3a", "io.delta.storage.S3DynamoDBLogStore"),
        ("abfss", ""),
    ],
)
def test_a_session_whose_commits_cannot_be_overwritten_is_accepted(scheme: str, store: str) -> None:
    log_store.check(Conf(**{f"spark.delta.logStore.{scheme}.impl": store}), scheme)


@pytest.mark.parametrize("scheme", ["file", "s3", "s3a"])
def test_a_session_by_delta_s_own_store_is_refused_with_the_setting(scheme: str) -> None:
    with pytest.raises(UnsafeStorage) as refused:
        log_store.check(Conf(), scheme)
    assert f"spark.delta.logStore.{scheme}.impl={log_store.STORES[scheme]}" in str(refused.value)
    assert str(log_store.JAR) in str(refused.value)
