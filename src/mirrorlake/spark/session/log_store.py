"""The log stores with which Delta writes the logs of tables, so that no commit overwrites another.

Delta's own log stores for local file systems and S3 check whether a version exists and then write
it, so that of two processes that commit the same version at the same time the second overwrites the
first. Ours use atomic operations of the storage: a hard link, and `If-None-Match`. They are
compiled from the sources in `jvm/`, with `scripts/build-log-store.py`.
"""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from mirrorlake.errors import SparkUnavailable, UnsafeStorage
from mirrorlake.spark.session import jars
from mirrorlake.spark.session.internals import MISSING

JAR = Path(__file__).parent / "jvm" / "mirrorlake-log-store.jar"
SHA256 = "b959261eb12b36c117d6f55ce2b6baa91cf4af029ef6e764e395b74989525cef"
"""Of the jar."""

LOCAL, S3 = "mirrorlake.LocalLogStore", "mirrorlake.S3LogStore"
STORES = {"file": LOCAL, "s3": S3, "s3a": S3}
"""The log store by URL scheme, for storages on which Delta's own can overwrite a commit."""

FILES = "mirrorlake.LocalFiles"
_FILES_BY = "spark.sql.streaming.checkpointFileManagerClass"
_FILES_BASE = (
    "org/apache/spark/sql/execution/streaming/checkpointing/"
    "FileSystemBasedCheckpointFileManager.class"
)
"""The superclass of `LocalFiles`, which other versions of Spark have elsewhere."""

_SAFE = frozenset({LOCAL, S3, "io.delta.storage.S3DynamoDBLogStore"})


def configuration() -> dict[str, str]:
    """The settings of our own session that uses the log stores of the jar.

    Raises SparkUnavailable when the jar is damaged.
    """
    if hashlib.sha256(JAR.read_bytes()).hexdigest() != SHA256:
        raise SparkUnavailable(
            "the jar of the log store is damaged", where=str(JAR), hint="Install mirrorlake again."
        )
    found = {_setting(scheme): store for scheme, store in STORES.items()}
    return found | ({_FILES_BY: FILES} if jars.is_tested() or _has_base() else {})


def add(session: SparkSession) -> None:
    """Add the jar to the driver and the executors of our own session, before it opens a table.

    `spark.jars` cannot be used: it would replace the jars that Spark has downloaded. Raises
    SparkUnavailable when this Spark takes no jar: SQL's `ADD JAR` is for the classes of one session
    only, and without the log store a commit could overwrite another.
    """
    try:
        jvm: Any = session._jvm  # noqa: SLF001
        url = jvm.java.io.File(str(JAR)).toURI().toURL()
        jvm.java.lang.Thread.currentThread().getContextClassLoader().addURL(url)
        session.sparkContext._jsc.addJar(str(url))  # noqa: SLF001
    except MISSING as error:
        raise SparkUnavailable(
            "this Spark does not add the jar of the log store, without which a commit can "
            "overwrite another",
            where=str(JAR),
            hint="Start mirrorlake again, which takes it from the class path. If that fails too, "
            "put Delta's jars into a folder and set spark.jars to it.",
        ) from error


def check(session: SparkSession, scheme: str) -> None:
    """Check whether commits of a session can overwrite others on a storage.

    scheme: of the URL of the tables. Raises UnsafeStorage.
    """
    required = STORES.get(scheme)
    found = session.sparkContext.getConf().get(_setting(scheme), "")
    if required is None or found in _SAFE:
        return
    raise UnsafeStorage(
        f"the session commits to {scheme}:// by a log store that can overwrite the commit of "
        "another process",
        where="spark",
        hint=f"Create it with spark.jars={JAR} and {_setting(scheme)}={required}. In spark.conf of "
        "a project, leave that setting out.",
    )


def _has_base() -> bool:
    """Whether the installed Spark has the superclass of `LocalFiles`. Without it, every commit
    would fail."""
    for jar in Path(pyspark.__path__[0], "jars").glob("spark-sql_*.jar"):
        with zipfile.ZipFile(jar) as classes:
            if _FILES_BASE in classes.namelist():
                return True
    return False


def _setting(scheme: str) -> str:
    return f"spark.delta.logStore.{scheme}.impl"
