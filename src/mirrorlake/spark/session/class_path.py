"""Caches results of earlier Spark starts: the jar files of its packages, and an archive of loaded
classes.

Spark resolves packages again at each start, which takes as long as the rest of the start. The first
start records the files; afterwards a local session has them in its class path, and a cluster gets
them by path. `fetch` also has a JVM write a class data sharing archive, which later JVMs load; a
JVM that does not match the archive ignores it.
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
"""JVM options that keep warnings of class data sharing off standard output, which is for
results."""


def resolved(conf: Mapping[str, str], *, is_local: bool) -> dict[str, str]:
    """The settings of a session, with the recorded files of its packages."""
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
    """The recorded files of the packages in the settings; empty if unknown, or if one is
    missing."""
    try:
        found: list[str] = json.loads(_record(conf).read_text())
    except (OSError, ValueError):
        return []
    return found if all(Path(jar).is_file() for jar in found) else []


def record(conf: Mapping[str, str], session: SparkSession) -> None:
    """Record the files to which Spark has resolved the packages of the settings."""
    resolved = session.sparkContext.getConf().get(JARS) or ""
    files = [jar.removeprefix("file://") for jar in resolved.split(",")]
    path = _record(conf)
    with contextlib.suppress(OSError):  # read-only home: the next start resolves again
        path.parent.mkdir(parents=True, exist_ok=True)
        staged = path.with_suffix(f".{os.getpid()}")
        staged.write_text(json.dumps(files))
        staged.replace(path)


def archive(class_path: str) -> Path:
    """The path of the class archive for a class path and the installed Java and Spark. Java rejects
    an archive if a jar was written again, so the jars' modification times are part of the name."""
    spark = Path(pyspark.__path__[0], "jars")
    files: list[str | Path] = [jars.java(), spark, *class_path.split(os.pathsep)]
    return _remembered("classes", [class_path, str(spark), *map(_stamp, files)], ".jsa")


def sweep() -> None:
    """Delete the archives of environments that were not used for a month: each takes 100 MB."""
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
