"""The store by which Delta writes the log of a table, asked directly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from py4j.protocol import Py4JJavaError

from mirrorlake.spark.session.spark_session import Spark


class LogStore:
    """The store that Delta has chosen for the table at a location. folder: in which it writes."""

    def __init__(self, spark: Spark, location: str, folder: str = "_delta_log") -> None:
        session = spark.session
        self.folder, self._jvm = f"{location}/{folder}", session._jvm
        delta: Any = self._jvm.org.apache.spark.sql.delta  # type: ignore[union-attr]
        self._hadoop = session._jsparkSession.sessionState().newHadoopConf()
        self._store = delta.DeltaLog.forTable(session._jsparkSession, location).store()

    def write(self, name: str, lines: Sequence[str], *, overwrite: bool = False) -> bool:
        """Whether it was written; if not, because it was there."""
        jvm: Any = self._jvm
        path = jvm.org.apache.hadoop.fs.Path(f"{self.folder}/{name}")
        actions = jvm.org.apache.spark.api.python.PythonUtils.toSeq(list(lines))
        try:
            self._store.write(path, actions.iterator(), overwrite, self._hadoop)
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() != "FileAlreadyExistsException":
                raise
            return False
        return True

    def names_from(self, name: str) -> list[tuple[str, int, bool]]:
        """What is listed from a name on: path, size and whether it is a folder."""
        jvm: Any = self._jvm
        path = jvm.org.apache.hadoop.fs.Path(f"{self.folder}/{name}")
        listed = self._store.listFrom(path, self._hadoop)
        found = []
        while listed.hasNext():
            status = listed.next()
            found.append((status.getPath().toString(), status.getLen(), status.isDirectory()))
        return found
