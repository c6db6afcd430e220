"""Our own sessions beside a given one, one per thread.

The metadata and the application number of a commit are session settings: threads must not share
them, and the given session must not have them.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

from pyspark.sql import SparkSession

UTC = MappingProxyType({"spark.sql.session.timeZone": "UTC"})
"""In any other time zone, Delta verifies all files again at each commit."""


class Sessions:
    """Sessions on the context of a given one. settings: the initial settings of each."""

    def __init__(self, spark: SparkSession, settings: Mapping[str, str] = UTC) -> None:
        self._spark, self._settings = spark, settings
        self._local = threading.local()

    @cached_property
    def _all(self) -> Any:
        """The class that holds the active session; looked up once, because that is slow."""
        jvm: Any = self._spark._jvm  # noqa: SLF001
        return jvm.org.apache.spark.sql.SparkSession

    @contextlib.contextmanager
    def active(self) -> Iterator[SparkSession]:
        """The session of this thread, activated meanwhile, because Delta reads the settings of the
        active session.

        The thread may belong to a program that uses its own session.
        """
        session: SparkSession | None = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = self._spark.newSession()
            for name, value in self._settings.items():
                session.conf.set(name, value)
        before = self._all.getActiveSession()
        self._all.setActiveSession(session._jsparkSession)  # noqa: SLF001
        try:
            yield session
        finally:
            if before.isDefined():
                self._all.setActiveSession(before.get())
            else:
                self._all.clearActiveSession()
