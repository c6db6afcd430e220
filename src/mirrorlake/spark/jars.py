"""What Spark needs besides Python: a Java, a tested pair of versions, and Delta's jars."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

from mirrorlake.errors import SparkUnavailable
from mirrorlake.spark.settings import SparkSettings

JAVA = (17, 21)

TESTED = {
    ("4.2.0", "4.4.0"): "io.delta:delta-spark_4.2_2.13:4.4.0",
    ("4.1.1", "4.4.0"): "io.delta:delta-spark_4.1_2.13:4.4.0",
}
"""Pairs of pyspark and delta-spark, and the coordinates of Delta's jar for each."""

_NEEDED = ("delta-storage", "delta-kernel-api", "delta-kernel-defaults")
"""Jars without which Delta does not start, beside its own, by a part of their names."""

# Delta's dependencies that Spark brings itself: a second copy is at best slow to fetch.
_WITH_SPARK = (
    "org.apache.hadoop:*",
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


def coordinates() -> str:
    """Delta's jar for the installed pair. Raises SparkUnavailable for a pair nobody tested."""
    try:
        pair = metadata.version("pyspark"), metadata.version("delta-spark")
    except metadata.PackageNotFoundError as missing:
        raise SparkUnavailable(
            f"{missing.name} is not installed",
            hint='Run `pip install "mirrorlake[spark]"`.',
        ) from None
    if pair not in TESTED:
        known = " or ".join(f"{spark} with {delta}" for spark, delta in TESTED)
        raise SparkUnavailable(
            f"pyspark {pair[0]} and delta-spark {pair[1]} are not a tested pair",
            hint=f"Install {known}.",
        )
    return TESTED[pair]


def check_java() -> int:
    """The major version of the Java that Spark will start. Raises SparkUnavailable."""
    hint = (
        "Install Java 17 or 21 (Debian: apt-get install openjdk-17-jre-headless), or set JAVA_HOME."
    )
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if not program:
        raise SparkUnavailable("there is no Java", hint=hint)
    try:
        answer = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)
    except OSError as error:
        raise SparkUnavailable(f"{program} does not start: {error.strerror}", hint=hint) from error
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    version = int(match[1]) if match else 0
    if version not in JAVA:
        raise SparkUnavailable(f"Java {version or 'of unknown version'} does not do", hint=hint)
    return version


def configuration(settings: SparkSettings) -> dict[str, str]:
    """The Spark settings that bring the jars. Raises SparkUnavailable for a missing one."""
    wanted = coordinates()
    if settings.jars is None:
        return {"spark.jars.packages": wanted, "spark.jars.excludes": ",".join(_WITH_SPARK)}
    found = sorted(settings.jars.glob("*.jar"))
    _group, artifact, version = wanted.split(":")
    for name in (f"{artifact}-{version}", *_NEEDED):
        if not any(name in jar.name for jar in found):
            raise SparkUnavailable(
                f"no jar of {name} is in {settings.jars}",
                hint=f"Put the jars of {wanted} and its dependencies there, or leave spark.jars "
                "out and let Spark fetch them.",
            )
    return {"spark.jars": ",".join(str(jar.absolute()) for jar in found)}


def are_fetched() -> bool:
    """Whether an earlier start has fetched the jars already."""
    version = coordinates().rpartition(":")[2]
    folders = [Path.home() / ".ivy2.5.2" / "jars", Path.home() / ".ivy2" / "jars"]
    return any(
        jar.name.endswith(f"-{version}.jar")
        for folder in folders
        if folder.is_dir()
        for jar in folder.glob("io.delta_delta-spark*")
    )
