"""What Spark needs besides Python: Java, a tested pair of versions, and Delta's jars."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import IO

from mirrorlake.errors import SparkUnavailable
from mirrorlake.spark.session import s3a
from mirrorlake.spark.settings import SparkSettings
from mirrorlake.storage.urls import StorageLocation

JAVA = (17, 21)
_JAVA = "Install Java 17 or 21 (Debian: apt-get install openjdk-17-jre-headless), or set JAVA_HOME."

TESTED = {
    ("4.2.0", "4.4.0"): "io.delta:delta-spark_4.2_2.13:4.4.0",
    ("4.1.1", "4.4.0"): "io.delta:delta-spark_4.1_2.13:4.4.0",
}
"""Tested pairs of pyspark and delta-spark, with the coordinates of Delta's jar."""

_NEEDED = ("delta-storage", "delta-kernel-api", "delta-kernel-defaults")
"""Jars that Delta requires besides its own, by a part of their names."""

# Delta's dependencies that Spark contains already: a second copy costs at least its download.
_WITH_SPARK = (
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.apache.hadoop:hadoop-common",
    "org.apache.parquet:*",
    "com.fasterxml.jackson.core:*",
    "com.fasterxml.jackson.datatype:*",
    "org.apache.logging.log4j:*",
    "org.slf4j:*",
    "org.roaringbitmap:*",
    "org.xerial.snappy:*",
    "io.airlift:*",
    "commons-pool:*",
    "com.github.luben:*",
    "org.locationtech.jts:*",
    "javax.annotation:*",
    "commons-logging:*",
    "com.google.code.findbugs:*",
)


OLDEST = (4, 0)
"""The oldest version of pyspark and of delta-spark that the merge strategy supports."""


def coordinates() -> str:
    """Delta's jar for the installed pair. Raises SparkUnavailable when it is too old."""
    spark, delta = pair()
    if (spark, delta) in TESTED:
        return TESTED[spark, delta]
    known = " or ".join(f"{pyspark} with {delta_spark}" for pyspark, delta_spark in TESTED)
    if min(_minor(spark), _minor(delta)) < OLDEST:
        raise SparkUnavailable(
            f"pyspark {spark} and delta-spark {delta} are too old", hint=f"Install {known}."
        )
    # Since 4.1, Delta has one artifact per Spark version.
    suffix = "_{}.{}".format(*_minor(spark)) if _minor(delta) >= (4, 1) else ""
    return f"io.delta:delta-spark{suffix}_2.13:{delta}"


def is_tested() -> bool:
    """Whether the installed pair is a tested one."""
    return pair() in TESTED


def untested() -> str:
    """Why the internals of the installed pair are not used; empty for a tested pair and for newer
    patch releases of one."""
    spark, delta = pair()
    if any(
        _patches(spark, tested_spark) and _patches(delta, tested_delta)
        for tested_spark, tested_delta in TESTED
    ):
        return ""
    return f"pyspark {spark} and delta-spark {delta} are not a tested pair"


def _patches(version: str, tested: str) -> bool:
    """Whether a version is a tested one, or a newer patch release of it."""
    if version == tested:
        return True
    is_release = re.fullmatch(r"\d+\.\d+\.\d+", version) is not None
    newer = [int(part) for part in version.split(".")] if is_release else []
    older = [int(part) for part in tested.split(".")]
    return newer[:2] == older[:2] and newer > older


def pair() -> tuple[str, str]:
    """The versions of pyspark and delta-spark. Raises SparkUnavailable when one is missing."""
    try:
        return metadata.version("pyspark"), metadata.version("delta-spark")
    except metadata.PackageNotFoundError as missing:
        raise SparkUnavailable(
            f"{missing.name} is not installed", hint='Run `pip install "mirrorlake[spark]"`.'
        ) from None


def spark_version() -> tuple[int, int]:
    """Major and minor version of pyspark. Raises SparkUnavailable when it is not installed."""
    return _minor(pair()[0])


def _minor(version: str) -> tuple[int, int]:
    major, minor, *_patch = *re.findall(r"\d+", version), "0", "0"
    return int(major), int(minor)


def java() -> str:
    """The path of the Java that Spark will start. Raises SparkUnavailable when there is none."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if not program:
        raise SparkUnavailable("Java was not found", hint=_JAVA)
    return program


def check_java() -> int:
    """The major version of the Java that Spark will start. Raises SparkUnavailable."""
    program = java()
    try:
        answer = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)
    except OSError as error:
        raise SparkUnavailable(
            f"{program} cannot be started: {error.strerror}", hint=_JAVA
        ) from error
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    version = int(match[1]) if match else 0
    if version not in JAVA:
        raise SparkUnavailable(
            f"Java {version or 'of unknown version'} is not supported", hint=_JAVA
        )
    return version


def configuration(settings: SparkSettings, tables: StorageLocation | None = None) -> dict[str, str]:
    """The Spark settings for the jars, and for access to tables on an object store.

    Raises SparkUnavailable when a jar is missing.
    """
    delta = coordinates()
    if settings.jars is None:
        packages, without = [delta], list(_WITH_SPARK)
        if tables is not None:
            packages += s3a.coordinates()
            without += s3a.excluded()
        brought = {
            "spark.jars.packages": ",".join(packages),
            "spark.jars.excludes": ",".join(without),
        }
    else:
        brought = {"spark.jars": _in_folder(settings.jars, delta, tables)}
    return brought if tables is None else brought | s3a.configuration(tables)


def _in_folder(folder: Path, delta: str, tables: StorageLocation | None) -> str:
    """The jars in a folder. Raises SparkUnavailable when one is missing."""
    found = sorted(folder.glob("*.jar"))
    _group, artifact, version = delta.split(":")
    for name in (f"{artifact}-{version}", *_NEEDED, *(["hadoop-aws"] if tables else [])):
        if not any(name in jar.name for jar in found):
            raise SparkUnavailable(
                f"the folder {folder} does not contain the jar of {name}",
                hint=f"Put the jars of {delta} and its dependencies there, or omit spark.jars "
                "so that Spark downloads them.",
            )
    return ",".join(str(jar.absolute()) for jar in found)


@contextlib.contextmanager
def fetching(conf: Mapping[str, str], say: Callable[[str], None]) -> Iterator[None]:
    """Wraps a start of Spark with these settings. Two concurrent downloads into one cache fail, so
    a process that has to download makes others wait, which then find the jars."""
    with _lock() as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)  # nobody is downloading: existing files are complete
        if to_fetch(conf):
            fcntl.flock(lock, fcntl.LOCK_EX)
        if missing := to_fetch(conf):
            say(f"Downloading the jars of {missing} for the first use ...")
            yield
            return
    yield


def _lock() -> IO[str]:
    path = cache() / "mirrorlake" / "fetch.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("w")
    except OSError:  # read-only home, into which nobody downloads
        return tempfile.TemporaryFile("w")


def to_fetch(conf: Mapping[str, str]) -> str:
    """What a start with these settings would have to download, in words; empty if nothing."""
    packages = conf.get("spark.jars.packages", "").split(",")
    named = {"io.delta:": "Delta Lake (13 MB)", "org.apache.hadoop:": "S3A (13 MB)"}
    return " and ".join(
        line
        for group, line in named.items()
        for package in packages
        if package.startswith(group) and not _is_fetched(package)
    )


def _is_fetched(coordinates: str) -> bool:
    name = "{}_{}-{}.jar".format(*coordinates.split(":"))
    return any((folder / "jars" / name).exists() for folder in _caches())


def cache() -> Path:
    """The folder of Spark's own jar cache, where we store what we record about the jars."""
    return next((folder for folder in _caches() if folder.is_dir()), _caches()[0])


def _caches() -> list[Path]:
    return [Path.home() / ".ivy2.5.2", Path.home() / ".ivy2"]
