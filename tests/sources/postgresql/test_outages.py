"""The server goes away under capture, and comes back."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import psycopg
import pytest
from structlog.testing import capture_logs

from mirrorlake import root
from mirrorlake.capture.capture import (
    CAPTURE_STARTED,
    STREAM_INTERRUPTED,
    STREAM_RESUMED,
    TABLE_LOADED,
    Capture,
)
from mirrorlake.capture.record import Records
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.demo.server import EmbeddedServer
from mirrorlake.errors import SourceUnavailable
from mirrorlake.model.clock import WallClock
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.sources.postgresql.settings import PostgresSettings
from mirrorlake.sources.postgresql.source import PostgresSource
from mirrorlake.storage.local import LocalStore
from tests.capture.landing import landing_capture
from tests.conformance.scene import until
from tests.profiles import some

pytestmark = pytest.mark.postgres

Begin = Callable[..., Capture]
"""Makes a capture of the server."""

SCHEMA = "create table apples (id int primary key, note text)"
ROWS = "insert into apples select g, repeat('x', 100) from generate_series(1, 2000) g"


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    """A server of our own to kill; what it says is durable is durable."""
    with EmbeddedServer(18, {"fsync": "on"}) as server:
        yield server


@pytest.fixture
def stop() -> threading.Event:
    return threading.Event()


@pytest.fixture
def begin(server: EmbeddedServer, store: LocalStore, stop: threading.Event) -> Begin:
    """A capture of the server, with something that is called at each crash point."""

    def begun(reached: CrashHook = no_crash) -> Capture:
        settings = PostgresSettings(server.url, slot="ours", publication="ours", part_bytes=8192)
        return landing_capture(
            PostgresSource(settings),
            store,
            CaptureSettings(load_workers=2, heartbeat_seconds=0.1),
            WallClock(stop),
            reached=reached,
            stop=stop,
        )

    return begun


def restart(server: EmbeddedServer) -> None:
    server.kill()
    server.start()


class Running:
    """A capture that runs on a thread of its own."""

    def __init__(self, capture: Capture, stop: threading.Event) -> None:
        self._capture, self._stop = capture, stop
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            with closing(self._capture):
                self._capture.run()
        except BaseException as error:  # noqa: BLE001  (told to the test)
            self._error = error

    @property
    def ended(self) -> bool:
        return self._error is not None

    def __enter__(self) -> Running:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stop.set()
        self._thread.join(60)
        if self._error:
            raise self._error

    def reaches(self, server: EmbeddedServer, *statements: str) -> None:
        """Wait until it has landed what these statements do, or has ended."""
        with psycopg.connect(server.url, autocommit=True) as sql:
            for statement in statements:
                sql.execute(statement)
            (target,) = sql.execute("select pg_current_wal_lsn()::text").fetchone() or ("",)

            def is_landed() -> bool:
                asked = "select confirmed_flush_lsn >= %s::pg_lsn from pg_replication_slots"
                row = sql.execute(asked, [target]).fetchone()
                return self.ended or bool(row and row[0])

            until(is_landed)


@pytest.mark.full
@pytest.mark.parametrize(
    "point", some([CrashPoint.LOAD_STAGED, CrashPoint.SLOT_CREATED, CrashPoint.ESTABLISHED])
)
def test_a_load_during_which_the_server_is_killed_begins_again(
    server: EmbeddedServer, begin: Begin, stop: threading.Event, point: CrashPoint
) -> None:
    with psycopg.connect(server.url, autocommit=True) as sql:
        sql.execute(SCHEMA)
        sql.execute(ROWS)
    passages = itertools.count(1)
    at = 3 if point is CrashPoint.LOAD_STAGED else 1

    def kill(reached: CrashPoint) -> None:
        if reached is point and next(passages) == at:
            restart(server)

    with capture_logs() as logs, Running(begin(kill), stop) as running:
        until(lambda: running.ended or [e for e in logs if e["event"] == TABLE_LOADED])
        running.reaches(server, "insert into apples values (0, 'late')")
    (loaded,) = [entry for entry in logs if entry["event"] == TABLE_LOADED]
    assert loaded["rows"] == 2000


def test_after_all_connections_are_lost_the_first_attempt_succeeds(
    server: EmbeddedServer, begin: Begin, stop: threading.Event
) -> None:
    with psycopg.connect(server.url, autocommit=True) as sql:
        sql.execute(SCHEMA)
        with capture_logs() as logs, Running(begin(), stop) as running:
            until(lambda: running.ended or [e for e in logs if e["event"] == CAPTURE_STARTED])
            running.reaches(server, "insert into apples values (1, 'before')")
            ended = sql.execute(
                "select pg_terminate_backend(pid, 10000) from pg_stat_activity "
                "where application_name = 'mirrorlake'"
            ).fetchall()
            running.reaches(server, "insert into apples values (2, 'after')")
    assert len(ended) == 2
    waits = [e["retry_seconds"] for e in logs if e["event"] == STREAM_INTERRUPTED]
    assert waits == [1.0]


def test_a_server_that_is_down_is_told_within_seconds_and_until_it_is_back(
    server: EmbeddedServer, begin: Begin, stop: threading.Event, store: LocalStore
) -> None:
    records = Records(store, root.LANDING)
    with psycopg.connect(server.url, autocommit=True) as sql:
        sql.execute(SCHEMA)
    with capture_logs() as logs, Running(begin(), stop) as running:
        until(lambda: running.ended or [e for e in logs if e["event"] == CAPTURE_STARTED])
        server.kill()
        killed = time.monotonic()
        until(lambda: running.ended or records.outage() is not None)
        assert time.monotonic() - killed < 5
        outage = records.outage()
        assert outage is not None
        assert "PostgreSQL" in outage.reason
        server.start()
        running.reaches(server, "insert into apples values (1, 'after')")
        until(lambda: running.ended or records.outage() is None)
    assert [e["event"] for e in logs].count(STREAM_RESUMED) == 1


def test_a_server_that_never_answered_is_not_waited_for(
    server: EmbeddedServer, begin: Begin
) -> None:
    server.kill()
    try:
        with closing(begin()) as capture, pytest.raises(SourceUnavailable):
            capture.run()
    finally:
        server.start()
