"""What an earlier start of Spark has found out, so that later ones need not: which jars its
packages are, and what is in their classes.

Spark resolves packages anew in each start, which takes as long as all the rest of it. The first
start records the files; from then on a local session has them in its class path, and a cluster gets
them by name. `fetch` also has one JVM write down the classes that it has loaded (class data
sharing), with which the next ones begin; a JVM that the archive does not fit does without it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from mirrorlake.spark.session import jars, log_store

PACKAGES, EXCLUDES, JARS = "spark.jars.packages", "spark.jars.excludes", "spark.jars"
CLASS_PATH, OPTIONS = "spark.driver.extraClassPath", "spark.driver.extraJavaOptions"
UNUSED_SECONDS = 30 * 86_400
QUIET = "-Xlog:disable -Xlog:all=error:stderr"
"""Class data sharing tells of classes that do not fit on standard output, which is for results."""


def resolved(conf: Mapping[str, str], *, is_local: bool) -> dict[str, str]:
    """The settings of a session, with the files of its packages as far as they are known."""
    if not conf.get(PACKAGES):
        return {**conf, JARS: ",".join([*_listed(conf), str(log_store.JAR)])}
    if not (known := recorded(conf)):
        return dict(conf)
    found = {name: value for name, value in conf.items() if name not in (PACKAGES, EXCLUDES)}
    if not is_local:
        return found | {JARS: ",".join([*known, str(log_store.JAR), *_listed(conf)])}
    path = os.pathsep.join(filter(None, [*known, str(log_store.JAR), conf.get(CLASS_PATH)]))
    shared = archive(path)
    if shared.exists():
        with contextlib.suppress(OSError):
            shared.touch()  # in use: see `sweep`
        options = f"{conf.get(OPTIONS, '')} {QUIET} -XX:SharedArchiveFile={shared}"
        found[OPTIONS] = options.strip()
    return found | {CLASS_PATH: path}


def recorded(conf: Mapping[str, str]) -> list[str]:
    """The files of the packages that the settings name; none when nobody knows, or one is gone."""
    try:
        found: list[str] = json.loads(_record(conf).read_text())
    except (OSError, ValueError):
        return []
    return found if all(Path(jar).is_file() for jar in found) else []


def record(conf: Mapping[str, str], session: SparkSession) -> None:
    """Record what Spark has resolved the packages of the settings to."""
    resolved = session.sparkContext.getConf().get(JARS) or ""
    files = [jar.removeprefix("file://") for jar in resolved.split(",")]
    path = _record(conf)
    with contextlib.suppress(OSError):  # a home that is read-only: the next start resolves again
        path.parent.mkdir(parents=True, exist_ok=True)
        staged = path.with_suffix(f".{os.getpid()}")
        staged.write_text(json.dumps(files))
        staged.replace(path)


def archive(class_path: str) -> Path:
    """Where the classes of a class path are, for the Java and the Spark that would run. Java takes
    no archive of jars that were written anew since, so their times belong to its name."""
    spark = Path(pyspark.__path__[0], "jars")
    files: list[str | Path] = [jars.java(), spark, *class_path.split(os.pathsep)]
    return _remembered("classes", [class_path, str(spark), *map(_stamp, files)], ".jsa")


def sweep() -> None:
    """Remove the archives of environments that were not used for a month: each takes 100 MB."""
    for path in (jars.cache() / "mirrorlake").glob("classes-*.jsa"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > UNUSED_SECONDS:
                path.unlink()


def _record(conf: Mapping[str, str]) -> Path:
    return _remembered("jars", [conf[PACKAGES], conf.get(EXCLUDES, "")], ".json")


def _stamp(path: str | Path) -> str:
    try:
        found = Path(path).resolve().stat()
    except OSError:
        return ""
    return f"{found.st_size} {found.st_mtime_ns}"


def _remembered(kind: str, of: Sequence[str], ending: str) -> Path:
    digest = hashlib.sha256("\n".join(of).encode()).hexdigest()[:16]
    return jars.cache() / "mirrorlake" / f"{kind}-{digest}{ending}"


def _listed(conf: Mapping[str, str]) -> list[str]:
    return [jar for jar in conf.get(JARS, "").split(",") if jar]
