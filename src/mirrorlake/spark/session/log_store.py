"""How Delta writes the logs of tables on a local file system, and on S3: by the sources in `jvm/`.

They are compiled once for each set of versions, by the Scala compiler that Spark brings, and kept
beside the cache of jars. Where that cannot be Delta writes as it always does: slower, and two
processes that commit one version in the same moment are not kept apart.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from mirrorlake.spark.session import jars

log = structlog.get_logger()

NOT_MADE = "log_store_not_made"
PATIENCE = 120
"""Seconds that the compiler may take; a few are usual."""

STORE, FILES = "mirrorlake.LocalLogStore", "mirrorlake.LocalFiles"
_FILES_BY = "spark.sql.streaming.checkpointFileManagerClass"
_SETTINGS = {"spark.delta.logStore.file.impl": STORE, _FILES_BY: FILES}
_SOURCE = "LocalLog.scala"
S3_STORE = "mirrorlake.S3LogStore"
_S3_SETTINGS = {f"spark.delta.logStore.{scheme}.impl": S3_STORE for scheme in ("s3", "s3a")}
_S3_SOURCE = "S3Log.scala"
_SOURCES = Path(__file__).parent / "jvm"
_LOG_STORE = "io.delta.storage.LogStore"
_PACKAGE = "org.apache.spark.sql.execution.streaming.checkpointing."
_BEFORE = "org.apache.spark.sql.execution.streaming."


class _NotMade(Exception):
    """Why, in words."""


def use(session: SparkSession) -> bool:
    """Let a session of ours, all of it in one JVM, write logs this way.

    To be called before Delta has looked at a table. Returns whether it can be.
    """
    done = _brought(session, _SOURCE, (STORE, FILES), _SETTINGS)
    if done:
        session.conf.set(_FILES_BY, FILES)
    return done


def use_on_s3(session: SparkSession) -> bool:
    """As `use`, for tables on S3."""
    return _brought(session, _S3_SOURCE, (S3_STORE,), _S3_SETTINGS)


def _brought(
    session: SparkSession, source: str, classes: Sequence[str], settings: Mapping[str, str]
) -> bool:
    """Whether a session has the classes of a source now, and settings that name them."""
    jvm: Any = session._jvm  # noqa: SLF001
    try:
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        jar = _jar(jvm, loader, _SOURCES / source)
        loader.addURL(jvm.java.io.File(str(jar)).toURI().toURL())  # as Spark adds those it fetches
        for name in classes:
            jvm.java.lang.Class.forName(name, True, loader)
    except (Py4JError, OSError, _NotMade) as error:
        reason = str(error) if isinstance(error, _NotMade) else type(error).__name__
        log.warning(NOT_MADE, source=source, reason=reason)
        return False
    context = session.sparkContext._jsc.sc()  # noqa: SLF001
    for name, value in settings.items():  # where Delta looks, and where new sessions begin
        context.conf().set(name, value)
    return True


def _jar(jvm: Any, loader: Any, source: Path) -> Path:
    """The compiled source; made by whoever needs it first."""
    spark, version = jars.pair()
    text = _as_for(spark, source.read_text())
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    storage = jvm.java.lang.Class.forName(_LOG_STORE, False, loader)
    delta = str(storage.getProtectionDomain().getCodeSource().getLocation().getPath())
    name = f"local-log-{spark}-{version}-{digest}.jar"
    jar = jars.cache() / "mirrorlake" / name
    if not jar.exists():
        jar.parent.mkdir(parents=True, exist_ok=True)
        aside = jar.with_name(f"{uuid.uuid4().hex}.jar")
        written = aside.with_suffix(source.suffix)
        try:
            written.write_text(text)
            _compile(jvm.java.lang.System, delta, written, aside)
            aside.replace(jar)
        finally:
            for path in (aside, written):
                path.unlink(missing_ok=True)
    return jar


def _as_for(spark: str, source: str) -> str:
    """The source for a version of Spark: a class that it needs has had another package in 4.0."""
    return source.replace(_PACKAGE, _BEFORE) if spark.startswith("4.0.") else source


def _compile(system: Any, delta: str, source: Path, jar: Path) -> None:
    """In a process of its own: what the compiler leaves in memory is not for a session."""
    known = str(system.getProperty("java.class.path"))
    java = Path(str(system.getProperty("java.home")), "bin", "java")
    paths = os.pathsep.join([known, delta])
    command = [str(java), "-XX:TieredStopAtLevel=1", "-cp", known, "scala.tools.nsc.Main"]
    try:
        done = subprocess.run(
            [*command, "-cp", paths, "-d", str(jar), str(source)],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired:
        raise _NotMade("the compiler did not finish") from None
    if done.returncode or not jar.exists():
        lines = [line for line in done.stdout.splitlines() + done.stderr.splitlines() if line]
        raise _NotMade((lines or ["the compiler reported no reason"])[0])
