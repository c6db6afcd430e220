"""Our own sessions beside a given one, one per thread.

The metadata and the application number of a commit are session settings: threads must not share
them, and the given session must not have them.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any

from pyspark.sql import SparkSession

from mirrorlake.spark.session.internals import MISSING, report_missing

UTC = MappingProxyType({"spark.sql.session.timeZone": "UTC"})
"""In any other time zone, Delta verifies all files again at each commit."""


VERIFYING = MappingProxyType({"parquet.page.verify-checksum.enabled": "true"})
"""Spark writes checksums of pages, but verifies them only with this setting of the session that
reads, which a given session need not have."""


def beside(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """A session of our own, with these settings, on the context of a given one."""
    session = spark.newSession()
    for name, value in {**VERIFYING, **settings}.items():
        session.conf.set(name, value)
    return session


class Sessions:
    """Sessions on the context of a given one.

    settings: the initial settings of each.
    for_internals: whether internals of Delta are called in them. Public operations activate their
        own session, so that they need no active one where a newer Spark cannot activate it.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: Mapping[str, str] = UTC,
        *,
        for_internals: bool = False,
    ) -> None:
        self._spark, self._settings, self._for_internals = spark, settings, for_internals
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
            session = self._local.session = beside(self._spark, self._settings)
        restore = self._activate(session)
        try:
            yield session
        finally:
            restore()

    def _activate(self, session: SparkSession) -> Callable[[], None]:
        """Activate a session, if that is possible. Returns what restores the one before."""
        try:
            active = self._all.getActiveSession()
            before = active.get() if active.isDefined() else None
            self._all.setActiveSession(session._jsparkSession)  # noqa: SLF001
        except MISSING as error:
            if self._for_internals:
                raise
            report_missing("SparkSession.setActiveSession", "public operations", error)
            return lambda: None
        return partial(self._restore, before)

    def _restore(self, before: Any) -> None:
        if before is not None:
            self._all.setActiveSession(before)
            return
        try:
            self._all.clearActiveSession()
        except MISSING as error:
            report_missing("SparkSession.clearActiveSession", "the given session", error)
            self._all.setActiveSession(self._spark._jsparkSession)  # noqa: SLF001
