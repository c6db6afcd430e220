"""What Spark needs besides Python: what is missing is said in one sentence, with a remedy."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

import pytest

from mirrorlake.errors import SparkUnavailable
from mirrorlake.spark.session import jars, s3a
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.spark.settings import SparkSettings
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.urls import StorageLocation

pytestmark = pytest.mark.spark

FakeJava = Callable[[str], Path]
DELTA = "delta-spark_4.2_2.13-4.4.0"
NEEDED = [DELTA, "delta-storage-4.4.0", "delta-kernel-api-4.4.0", "delta-kernel-defaults-4.4.0"]


@pytest.fixture
def fake_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeJava:
    """Makes a `java` that says what it is told, the only one on the path."""

    def make(answer: str) -> Path:
        program = tmp_path / "bin" / "java"
        program.parent.mkdir()
        program.write_text(f"#!{sys.executable}\nimport sys\nsys.stderr.write({answer!r})\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(program.parent))
        monkeypatch.delenv("JAVA_HOME", raising=False)
        return program

    return make


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The versions that are installed, to be changed."""
    versions = {"pyspark": "4.2.0", "delta-spark": "4.4.0"}

    def version(name: str) -> str:
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(metadata, "version", version)
    return versions


def folder_of(path: Path, names: list[str]) -> Path:
    for name in names:
        (path / f"io.delta_{name}.jar").touch()
    return path


# -- Java -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["17.0.15", "21", "21.0.2-ea"])
def test_a_java_that_does_is_found_on_the_path(fake_java: FakeJava, version: str) -> None:
    fake_java(f'openjdk version "{version}" 2025-04-15\n')
    assert jars.check_java() == int(version[:2])


@pytest.mark.parametrize(("version", "said"), [("11.0.2", 11), ("1.8.0_392", 8), ("25", 25)])
def test_a_java_of_another_version_is_refused(fake_java: FakeJava, version: str, said: int) -> None:
    fake_java(f'openjdk version "{version}"\n')
    with pytest.raises(
        SparkUnavailable, match=rf"^Java {said} is not supported.*Install Java 17 or 21"
    ):
        Spark.start(SparkSettings())


def test_a_java_that_does_not_say_its_version_is_refused(fake_java: FakeJava) -> None:
    fake_java("hello\n")
    with pytest.raises(SparkUnavailable, match=r"^Java of unknown version is not supported"):
        jars.check_java()


def test_java_home_goes_before_the_path(
    fake_java: FakeJava, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = fake_java('openjdk version "17.0.1"\n')
    monkeypatch.setenv("JAVA_HOME", str(program.parent.parent))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert jars.check_java() == 17


def test_no_java_at_all_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(SparkUnavailable, match=r"^Java was not found.*set JAVA_HOME"):
        Spark.start(SparkSettings())


def test_a_java_home_without_java_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkUnavailable, match="/bin/java cannot be started: No such file"):
        jars.check_java()


# -- versions and jars ------------------------------------------------------------------------


def test_each_tested_pair_has_its_jar(installed: dict[str, str]) -> None:
    found = {}
    for pair in jars.TESTED:
        installed["pyspark"], installed["delta-spark"] = pair
        found[pair] = jars.coordinates()
    assert found == jars.TESTED


@pytest.mark.parametrize(
    ("spark", "delta", "jar"),
    [
        ("4.2.0", "4.4.1", "io.delta:delta-spark_4.2_2.13:4.4.1"),
        ("4.0.1", "4.1.0", "io.delta:delta-spark_4.0_2.13:4.1.0"),
        ("4.0.0", "4.0.0", "io.delta:delta-spark_2.13:4.0.0"),
        ("4.3.0.dev1", "5.0.0rc1", "io.delta:delta-spark_4.3_2.13:5.0.0rc1"),
    ],
)
def test_a_pair_that_was_not_tested_has_a_jar(
    installed: dict[str, str], spark: str, delta: str, jar: str
) -> None:
    installed["pyspark"], installed["delta-spark"] = spark, delta
    assert jars.coordinates() == jar


@pytest.mark.parametrize(
    ("spark", "delta", "is_tried"),
    [
        ("4.2.0", "4.4.0", True),
        ("4.2.0", "4.4.1", True),
        ("4.2.13", "4.4.1", True),
        ("4.1.2", "4.4.0", True),
        ("4.1.0", "4.4.0", False),
        ("4.2.1", "4.3.0", False),
        ("4.3.0", "4.4.0", False),
        ("5.2.0", "4.4.0", False),
        ("4.2.1.dev1", "4.4.0", False),
        ("4.2.1rc1", "4.4.0", False),
    ],
)
def test_newer_patches_of_a_tested_pair_are_left_to_the_trial(
    installed: dict[str, str], spark: str, delta: str, is_tried: bool
) -> None:
    installed["pyspark"], installed["delta-spark"] = spark, delta
    told = f"pyspark {spark} and delta-spark {delta} are not a tested pair"
    assert jars.untested() == ("" if is_tried else told)


@pytest.mark.parametrize(("name", "version"), [("pyspark", "3.5.6"), ("delta-spark", "3.3.2")])
def test_a_pair_that_is_too_old_is_refused(
    installed: dict[str, str], name: str, version: str
) -> None:
    installed[name] = version
    with pytest.raises(SparkUnavailable, match=r"are too old.* Install 4\.2\.0 with"):
        jars.coordinates()


@pytest.mark.parametrize("name", ["pyspark", "delta-spark"])
def test_a_package_that_is_not_installed_is_named(installed: dict[str, str], name: str) -> None:
    del installed[name]
    with pytest.raises(SparkUnavailable, match=f"^{name} is not installed.*pip install"):
        jars.coordinates()


def test_without_a_folder_the_jars_are_fetched_by_their_coordinates(
    installed: dict[str, str],
) -> None:
    found = jars.configuration(SparkSettings())
    assert found["spark.jars.packages"] == "io.delta:delta-spark_4.2_2.13:4.4.0"


def test_jars_for_objects_are_fetched_when_tables_lie_there(installed: dict[str, str]) -> None:
    index = StorageLocation("s3://bucket/shop")
    fetched = jars.configuration(SparkSettings(), index)["spark.jars.packages"].split(",")
    assert f"org.apache.hadoop:hadoop-aws:{s3a.hadoop()}" in fetched
    assert len([jar for jar in fetched if jar.startswith("software.amazon.awssdk:")]) == 3
    without = jars.configuration(SparkSettings(), index)["spark.jars.excludes"].split(",")
    assert "software.amazon.awssdk:bundle" in without
    assert "org.apache.hadoop:*" not in without
    assert not any("fs.s3" in name for name in jars.configuration(SparkSettings()))


def test_of_a_hadoop_that_nobody_tried_all_is_fetched(
    installed: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3a, "hadoop", lambda: "3.9.9")
    found = jars.configuration(SparkSettings(), StorageLocation("s3://bucket/shop"))
    assert "org.apache.hadoop:hadoop-aws:3.9.9" in found["spark.jars.packages"]
    assert "awssdk" not in found["spark.jars.packages"] + found["spark.jars.excludes"]


def test_settings_say_how_the_storage_is_reached_and_not_who_we_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "hunter2"}.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    options = ObjectOptions(endpoint="http://host:9000", region="eu-west-1")
    found = s3a.configuration(StorageLocation("s3://bucket/shop", options))
    assert found["spark.hadoop.fs.s3a.endpoint"] == "http://host:9000"
    assert found["spark.hadoop.fs.s3a.endpoint.region"] == "eu-west-1"
    assert found["spark.hadoop.fs.s3a.path.style.access"] == "true"
    assert found["spark.hadoop.fs.s3a.connection.ssl.enabled"] == "false"
    assert "hunter2" not in str(found)
    assert not any("endpoint" in name for name in s3a.configuration(StorageLocation("s3://bucket")))
    anonymous = s3a.configuration(StorageLocation("s3://bucket", ObjectOptions(anonymous=True)))
    provider = anonymous["spark.hadoop.fs.s3a.aws.credentials.provider"]
    assert provider.endswith("AnonymousAWSCredentialsProvider")


def test_a_folder_of_jars_needs_those_for_objects_too(
    installed: dict[str, str], tmp_path: Path
) -> None:
    folder_of(tmp_path, NEEDED)
    with pytest.raises(SparkUnavailable, match="does not contain the jar of hadoop-aws"):
        jars.configuration(SparkSettings(jars=tmp_path), StorageLocation("s3://bucket/shop"))
    (tmp_path / "hadoop-aws-3.5.0.jar").touch()
    found = jars.configuration(SparkSettings(jars=tmp_path), StorageLocation("s3://bucket/shop"))
    assert len(found["spark.jars"].split(",")) == len(NEEDED) + 1


def test_a_folder_with_all_jars_is_used(installed: dict[str, str], tmp_path: Path) -> None:
    folder_of(tmp_path, NEEDED)
    found = jars.configuration(SparkSettings(jars=tmp_path))
    assert len(found["spark.jars"].split(",")) == len(NEEDED)


@pytest.mark.parametrize("name", NEEDED)
def test_a_jar_that_is_missing_in_the_folder_is_named(
    installed: dict[str, str], tmp_path: Path, name: str
) -> None:
    folder_of(tmp_path, [other for other in NEEDED if other != name])
    with pytest.raises(SparkUnavailable) as caught:
        jars.configuration(SparkSettings(jars=tmp_path))
    assert name.removesuffix("-4.4.0") in caught.value.what
    assert str(tmp_path) in caught.value.what
    assert "Put the jars of io.delta:delta-spark" in caught.value.hint


def test_a_jar_of_another_spark_does_not_do(installed: dict[str, str], tmp_path: Path) -> None:
    folder_of(tmp_path, [*NEEDED[1:], "delta-spark_4.1_2.13-4.4.0"])
    with pytest.raises(SparkUnavailable, match=f"does not contain the jar of {DELTA}"):
        jars.configuration(SparkSettings(jars=tmp_path))


def test_a_folder_that_is_not_there_has_no_jars(installed: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(SparkUnavailable, match="does not contain the jar of"):
        jars.configuration(SparkSettings(jars=tmp_path / "nothing"))


# -- the download -----------------------------------------------------------------------------


@pytest.fixture
def conf(
    installed: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """Of a session with tables on objects, in a home without jars."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return jars.configuration(SparkSettings(), StorageLocation("s3://bucket/shop"))


def download(conf: dict[str, str]) -> None:
    for package in conf["spark.jars.packages"].split(","):
        jar = Path.home() / ".ivy2.5.2/jars/{}_{}-{}.jar".format(*package.split(":"))
        jar.parent.mkdir(parents=True, exist_ok=True)
        jar.touch()


def test_what_is_downloaded_is_said(conf: dict[str, str]) -> None:
    assert jars.to_fetch(conf) == "Delta Lake (13 MB) and S3A (13 MB)"
    download({"spark.jars.packages": jars.coordinates()})
    assert jars.to_fetch(conf) == "S3A (13 MB)"
    assert jars.to_fetch(jars.configuration(SparkSettings())) == ""


def test_of_many_that_start_at_once_one_downloads_and_the_others_wait(
    conf: dict[str, str],
) -> None:
    said: list[str] = []

    def start(_number: int) -> str:
        with jars.fetching(conf, said.append):
            if missing := jars.to_fetch(conf):
                time.sleep(0.2)
                download(conf)
            return missing

    with ThreadPoolExecutor(4) as pool:
        fetched = list(pool.map(start, range(8)))
    assert sorted(fetched)[:-1] == [""] * 7
    assert len(said) == 1


def test_a_download_that_fails_is_left_to_the_next(conf: dict[str, str]) -> None:
    for _ in range(2):
        said: list[str] = []
        with pytest.raises(OSError, match="no network"), jars.fetching(conf, said.append):
            raise OSError("no network")
        assert len(said) == 1


def test_a_home_that_cannot_be_written_needs_no_lock(
    conf: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    download(conf)
    (tmp_path / "file").touch()
    monkeypatch.setattr(jars, "cache", lambda: tmp_path / "file")
    with jars.fetching(conf, print):
        assert jars.to_fetch(conf) == ""
