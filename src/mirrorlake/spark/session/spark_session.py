"""The Spark session: our own, or a given one, which is neither changed nor stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaClass
from pyspark import SparkContext
from pyspark.sql import SparkSession

from mirrorlake.errors import MirrorlakeError, SparkUnavailable, UnsafeStorage
from mirrorlake.freed_memory import TASK_ENVIRONMENT
from mirrorlake.spark.session import class_path, existing, jars, log_store, s3a, workers
from mirrorlake.spark.session.internals import MISSING, report_missing
from mirrorlake.spark.session.java_options import driver_options, executor_options
from mirrorlake.spark.session.thread_sessions import VERIFYING
from mirrorlake.spark.settings import SparkSettings
from mirrorlake.storage.urls import StorageLocation

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"

Say = Callable[[str], None]

_logs: list[Path] = []
"""The log files of the sessions that this process started, to be deleted when it ends abruptly."""


class Spark:
    """A session to work with, as a context manager."""

    def __init__(self, session: SparkSession, *, is_ours: bool, log: Path | None = None) -> None:
        self.session, self._is_ours, self.log = session, is_ours, log

    @classmethod
    def given(cls, session: Any, tables: StorageLocation | None = None) -> Spark:
        """Use an existing session. tables: their location, if on an object store.

        Raises SparkUnavailable if the session cannot write Delta, or its executors lack what tasks
        need; UsageError or StorageUnavailable if it cannot write to the location.
        """
        cls._check_classic(session)
        jars.coordinates()
        conf = session.sparkContext.getConf()
        extensions = conf.get("spark.sql.extensions") or ""
        catalog = conf.get("spark.sql.catalog.spark_catalog") or ""
        if EXTENSION not in extensions or catalog != CATALOG:
            raise SparkUnavailable(
                "the session was created without Delta",
                hint=f"Create it with spark.sql.extensions={EXTENSION} and "
                f"spark.sql.catalog.spark_catalog={CATALOG}.",
            )
        workers.check(session)
        log_store.check(session, _scheme(tables))
        if tables is not None:
            s3a.check(session, tables)
        return cls(session, is_ours=False)

    @classmethod
    def for_tasks(cls, session: Any) -> Spark:
        """Use an existing session for tasks alone, which needs no Delta. Raises SparkUnavailable
        if its executors lack what tasks need."""
        cls._check_classic(session)
        workers.check(session)
        return cls(session, is_ours=False)

    @staticmethod
    def _check_classic(session: Any) -> None:
        if not isinstance(session, SparkSession) or not hasattr(session, "_jsparkSession"):
            connect = type(session).__module__.startswith("pyspark.sql.connect")
            raise _not_classic("this is a Spark Connect session" if connect else "")

    @classmethod
    def start(
        cls,
        settings: SparkSettings,
        say: Say = lambda _line: None,
        tables: StorageLocation | None = None,
    ) -> Spark:
        """Start our own session. tables: their location, if on an object store.

        If somebody else has started one in this process, that is used as a given one. Raises
        SparkUnavailable, StorageUnavailable, UnsafeStorage.
        """
        if settings.master is None:
            active = SparkSession.getActiveSession()
            if active is None:
                raise SparkUnavailable(
                    "spark.master is not set, and there is no session",
                    hint="Set spark.master, for example local[*], or run inside a Spark job.",
                )
            return cls.given(active, tables)
        if settings.master.startswith("sc://"):
            raise _not_classic("spark.master is a Spark Connect URL")
        if (session := existing.of_others()) is not None:
            say("Using the Spark session of this process, without the settings of the project")
            return cls._of_others(session, tables)
        jars.check_java()
        found = jars.configuration(settings, tables)
        # Workers must run this Python to have our packages. If it has another path on other
        # machines, the project sets that, in a setting that only spark-submit reads.
        worker = settings.conf.get("spark.pyspark.python")
        os.environ.setdefault("PYSPARK_PYTHON", worker or sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        log = Path(tempfile.mkstemp(prefix="mirrorlake-spark-", suffix=".log")[1])
        _logs.append(log)
        builder: Any = SparkSession.builder.master(settings.master).appName("mirrorlake")
        conf = {**_ours(settings), **found, **log_store.configuration(), **settings.conf}
        is_local = settings.master.startswith("local")
        conf = class_path.resolved(conf, is_local=is_local)
        for name, value in conf.items():
            builder = builder.config(name, value)
        with (
            jars.fetching(conf, say),
            _standard_error_to(log),
            _signal_handlers_restored(),
            _loopback() if is_local else contextlib.nullcontext(),
        ):
            try:
                session = builder.getOrCreate()
            except Exception as error:
                raise _start_failure(error, log, settings) from error
        started = cls(session, is_ours=True, log=log)
        existing.use(started)
        try:
            _prepare(session, conf, tables)
        except MirrorlakeError:
            started.stop()
            raise
        return started

    @classmethod
    def _of_others(cls, session: SparkSession, tables: StorageLocation | None) -> Spark:
        """Use a session that was there although one of our own was asked for."""
        try:
            return cls.given(session, tables)
        except (SparkUnavailable, UnsafeStorage) as refused:
            raise type(refused)(
                refused.what,
                where="the Spark session that this process already has",
                hint=f"{refused.hint} Or run mirrorlake in a process without another session.",
            ) from refused

    def stop(self) -> None:
        """Stop the session, if it is ours and nobody else works in it. The JVM may be gone
        already."""
        if not self._is_ours:
            return
        if existing.leave(self):
            with contextlib.suppress(Exception):
                _leave_accumulators(self.session.sparkContext)
                self.session.stop()
        if self.log is not None:
            self.log.unlink(missing_ok=True)

    def __enter__(self) -> Spark:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()


def _prepare(
    session: SparkSession, conf: Mapping[str, str], tables: StorageLocation | None
) -> None:
    """Complete and check a session that was started with these settings."""
    if not _has(session, "io.delta.tables.DeltaTable"):
        raise SparkUnavailable(
            "Spark is running without Delta's jars",
            hint="Another session was started in this process before. Start mirrorlake first.",
        )
    if conf.get(class_path.PACKAGES):
        class_path.record(conf, session)
    # A JVM in which another session has ended has its own class path.
    if conf.get(class_path.PACKAGES) or not _has(session, log_store.LOCAL):
        log_store.add(session)
    log_store.check(session, _scheme(tables))  # spark.conf may name another
    workers.check(session)
    if tables is not None:
        s3a.check(session, tables)


def _has(session: SparkSession, name: str) -> bool:
    """Whether the JVM finds a class by its full name."""
    try:
        return isinstance(attrgetter(name)(session._jvm), JavaClass)  # noqa: SLF001
    except MISSING as error:
        report_missing("SparkSession._jvm", "the first statement, which fails without", error)
        return True


def _leave_accumulators(context: SparkContext) -> None:
    """Do not wait for the server that receives the values of accumulators, of which no task of ours
    has any: it looks once a second whether it should end."""
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        context._accumulatorServer = None  # type: ignore[assignment]  # noqa: SLF001  (no public way)
        threading.Thread(target=server.shutdown, name="accumulators", daemon=True).start()


def end_jvm(patience: float = 1.5) -> None:
    """End the JVM of this process at once, for a process that exits and deletes what was written.

    A JVM that is still starting has written nothing, and exits with this process.
    """
    gateway = getattr(SparkContext, "_gateway", None)  # no public way
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.terminate()  # Spark removes its own temporary files
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
    for log in _logs:
        log.unlink(missing_ok=True)


def _scheme(tables: StorageLocation | None) -> str:
    """The storage of the tables, by its URL."""
    return tables.url.partition("://")[0] if tables else "file"


def _ours(settings: SparkSettings) -> dict[str, str]:
    assert settings.master is not None
    local = settings.master.startswith("local")
    cores = str(os.cpu_count() or 2)
    conf = {
        "spark.sql.extensions": EXTENSION,
        "spark.sql.catalog.spark_catalog": CATALOG,
        "spark.sql.session.timeZone": "UTC",
        # Spark creates this folder although it stays empty; the default is in the current folder.
        "spark.sql.warehouse.dir": (jars.cache() / "mirrorlake" / "warehouse").as_uri(),
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.extraJavaOptions": driver_options(is_local=local, brief=settings.brief),
        "spark.scheduler.mode": "FAIR",  # for a quiet table's job during a busy one's
        "spark.executor.extraJavaOptions": executor_options(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Over TCP, each task waits 40 ms for a delayed acknowledgement.
        "spark.python.unix.domain.socket.enabled": "true",
        **{f"spark.executorEnv.{name}": value for name, value in TASK_ENVIRONMENT.items()},
        "spark.log.level": "WARN",
        **{f"spark.hadoop.{name}": value for name, value in VERIFYING.items()},
        "spark.sql.shuffle.partitions": cores,
        "spark.databricks.delta.snapshotPartitions": cores,
        # Delta would write all files of a small table into its checksum, with a query that takes
        # seconds at the first commit of a session. Its readers do not need that.
        "spark.databricks.delta.allFilesInCrc.enabled": "false",
    }
    if local:
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return conf


def _not_classic(what: str) -> SparkUnavailable:
    return SparkUnavailable(
        what or "this is not a classic Spark session",
        hint="Spark Connect does not give access to the transaction of a Delta table. Use a "
        "classic session, created by `SparkSession.builder` with a master such as local[*].",
    )


def _start_failure(error: Exception, log: Path, settings: SparkSettings) -> SparkUnavailable:
    text = log.read_text(errors="replace") if log.exists() else ""
    if "unresolved dependency" in text or "UNRESOLVED DEPENDENCIES" in text:
        return SparkUnavailable(
            f"the jars of {jars.coordinates()} could not be downloaded",
            where=str(log),
            hint="Check the connection to the Maven repository, or put the jars into a folder "
            "and set spark.jars to it.",
        )
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return SparkUnavailable(
        f"Spark did not start on {settings.master}: {reason}",
        where=str(log),
        hint="See the log for the cause.",
    )


@contextlib.contextmanager
def _standard_error_to(log: Path) -> Iterator[None]:
    """Redirects the JVM's standard error to a file, to keep its output off the terminal."""
    sys.stderr.flush()
    kept = os.dup(2)
    target = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(target, 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
        os.close(target)


@contextlib.contextmanager
def _loopback() -> Iterator[None]:
    """Keeps a JVM from looking up this machine's host name, which fails in some containers."""
    name = "SPARK_LOCAL_IP"
    if name in os.environ:
        yield
        return
    os.environ[name] = "127.0.0.1"
    try:
        yield
    finally:
        del os.environ[name]  # a later session may use a cluster


@contextlib.contextmanager
def _signal_handlers_restored() -> Iterator[None]:
    """PySpark handles Ctrl-C by cancelling every job of the session; our handler stops the run."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
