"""How Delta writes the logs of tables: a commit never takes the place of another.

Delta's own log stores for a local file system and for S3 look whether a version is there and then
write it, so that of two processes that commit one version at the same moment the second overwrites
the first. Ours let the storage itself refuse: by a hard link, and by `If-None-Match`. They are
compiled from the sources in `jvm/`, by `scripts/build-log-store.py`.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from mirrorlake.errors import SparkUnavailable, UnsafeStorage
from mirrorlake.spark.session import jars

JAR = Path(__file__).parent / "jvm" / "mirrorlake-log-store.jar"
SHA256 = "b959261eb12b36c117d6f55ce2b6baa91cf4af029ef6e764e395b74989525cef"
"""Of the jar."""

LOCAL, S3 = "mirrorlake.LocalLogStore", "mirrorlake.S3LogStore"
STORES = {"file": LOCAL, "s3": S3, "s3a": S3}
"""By scheme: the storages on which Delta's own store can overwrite a commit."""

FILES = "mirrorlake.LocalFiles"
_FILES_BY = "spark.sql.streaming.checkpointFileManagerClass"
_FILES_SINCE = (4, 1)
"""The first version of Spark that has what `LocalFiles` extends where the jar looks for it."""

_SAFE = frozenset({LOCAL, S3, "io.delta.storage.S3DynamoDBLogStore"})


def configuration() -> dict[str, str]:
    """The settings of a session of ours that writes logs by the jar.

    Raises SparkUnavailable when the jar is not the one that was released.
    """
    if hashlib.sha256(JAR.read_bytes()).hexdigest() != SHA256:
        raise SparkUnavailable(
            "the jar of the log store is damaged", where=str(JAR), hint="Install mirrorlake again."
        )
    found = {_setting(scheme): store for scheme, store in STORES.items()}
    return found | ({_FILES_BY: FILES} if jars.spark_version() >= _FILES_SINCE else {})


def add(session: SparkSession) -> None:
    """Bring the jar to the driver and the executors of a session of ours, before it opens a table.

    Not by `spark.jars`, which would take the place of the jars that Spark has fetched.
    """
    jvm: Any = session._jvm  # noqa: SLF001
    url = jvm.java.io.File(str(JAR)).toURI().toURL()
    jvm.java.lang.Thread.currentThread().getContextClassLoader().addURL(url)
    session.sparkContext._jsc.addJar(str(url))  # noqa: SLF001


def check(session: SparkSession, scheme: str) -> None:
    """Look whether commits of a session that was passed in can overwrite others on a storage.

    scheme: of the URL of the tables. Raises UnsafeStorage.
    """
    wanted = STORES.get(scheme)
    found = session.sparkContext.getConf().get(_setting(scheme), "")
    if wanted is None or found in _SAFE:
        return
    raise UnsafeStorage(
        f"the session commits to {scheme}:// by a log store that can overwrite the commit of "
        "another process",
        where="spark",
        hint=f"Create it with spark.jars={JAR} and {_setting(scheme)}={wanted}.",
    )


def _setting(scheme: str) -> str:
    return f"spark.delta.logStore.{scheme}.impl"
