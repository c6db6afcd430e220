"""Sessions of our own beside the one that is given, one per thread.

What a commit says of itself, and under which number, are settings of a session: two threads must
not share one, and a session of somebody else's must not have them.
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
"""In any other zone Delta verifies all files anew at each commit."""


class Sessions:
    """Sessions on the context of a given one. settings: what each of them starts with."""

    def __init__(self, spark: SparkSession, settings: Mapping[str, str] = UTC) -> None:
        self._spark, self._settings = spark, settings
        self._local = threading.local()

    @cached_property
    def _all(self) -> Any:
        """What knows the active session; looked up once, because it takes a while."""
        jvm: Any = self._spark._jvm  # noqa: SLF001
        return jvm.org.apache.spark.sql.SparkSession

    @contextlib.contextmanager
    def active(self) -> Iterator[SparkSession]:
        """The session of this thread, active meanwhile: Delta asks the active one for its settings.

        The thread may be one of a program that works with a session of its own.
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
