"""The server goes away under capture, and comes back."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from structlog.testing import capture_logs

from mirrorlake import root
from mirrorlake.capture.capture import CAPTURE_STARTED, Capture
from mirrorlake.capture.missing_tables import TABLE_LOADED
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.capture.watch import outages
from mirrorlake.capture.watch.outages import SOURCE_SILENT, STREAM_INTERRUPTED, STREAM_RESUMED
from mirrorlake.demo.server import EmbeddedServer
from mirrorlake.errors import SourceUnavailable
from mirrorlake.model.clock import WallClock
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.sources.postgresql import connect
from mirrorlake.sources.postgresql import source as source_module
from mirrorlake.sources.postgresql.connect import OpenConnections, PostgresPulse
from mirrorlake.sources.postgresql.replication import stream as stream_module
from mirrorlake.sources.postgresql.settings import PostgresSettings
from mirrorlake.sources.postgresql.source import PostgresSource
from mirrorlake.storage.local import LocalStore
from tests.capture.landing import landing_capture
from tests.conformance.scene import PATIENCE, until
from tests.profiles import some

pytestmark = pytest.mark.postgres

Begin = Callable[..., Capture]
"""Makes a capture of the server."""

SOCKET = ".s.PGSQL.5432"
"""The name of the socket of a server in its folder."""

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

    def begun(reached: CrashHook = no_crash, url: str = "", workers: int = 2) -> Capture:
        settings = PostgresSettings(
            url or server.url, slot="ours", publication="ours", part_bytes=8192
        )
        return landing_capture(
            PostgresSource(settings),
            store,
            CaptureSettings(load_workers=workers, heartbeat_seconds=0.1),
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


@pytest.mark.full
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


@pytest.mark.full
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


class StallingProxy:
    """Passes everything on to a server; while it stalls it takes everything, and passes nothing."""

    def __init__(self, url: str, folder: Path) -> None:
        """folder: of its socket."""
        behind = parse_qs(urlsplit(url).query)["host"][0]
        self._server = f"{behind}/{SOCKET}"
        self._flows = threading.Event()
        self._flows.set()
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(f"{folder}/{SOCKET}")
        self._listening.listen()
        self.url = url.replace(behind, str(folder))
        threading.Thread(target=self._accept, daemon=True).start()

    def stall(self) -> None:
        self._flows.clear()

    def go_on(self) -> None:
        self._flows.set()

    def close(self) -> None:
        self._flows.set()
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client = self._listening.accept()[0]
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=ends, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError), source, target:
            while content := source.recv(1 << 16):
                self._flows.wait()
                target.sendall(content)


@pytest.fixture
def proxy(server: EmbeddedServer) -> Iterator[StallingProxy]:
    with tempfile.TemporaryDirectory() as folder:  # a short name, as one of a socket has to be
        proxy = StallingProxy(server.url, Path(folder))
        yield proxy
        proxy.close()


@pytest.mark.full
def test_a_proxy_that_stalls_is_told_and_what_follows_is_landed(
    server: EmbeddedServer,
    begin: Begin,
    stop: threading.Event,
    store: LocalStore,
    proxy: StallingProxy,
) -> None:
    """No connection ends and no packet is lost: the system has nothing to say of it."""
    records = Records(store, root.LANDING)
    with psycopg.connect(server.url, autocommit=True) as sql:
        sql.execute(SCHEMA)
    with capture_logs() as logs, Running(begin(url=proxy.url), stop) as running:
        until(lambda: running.ended or [e for e in logs if e["event"] == CAPTURE_STARTED])
        running.reaches(server, "insert into apples values (1, 'before')")
        proxy.stall()
        until(lambda: running.ended or records.outage() is not None)
        assert "PostgreSQL does not answer" in str(records.outage())
        proxy.go_on()
        until(lambda: running.ended or records.outage() is None)
        running.reaches(server, "insert into apples values (2, 'after')")
    assert STREAM_RESUMED in [e["event"] for e in logs]


@pytest.mark.full
def test_a_connection_on_which_nothing_comes_any_more_is_given_up(
    server: EmbeddedServer,
    begin: Begin,
    stop: threading.Event,
    proxy: StallingProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What stalls it may have forgotten its connections when it goes on."""
    monkeypatch.setattr(outages, "GIVE_UP_SECONDS", 1.0)
    with psycopg.connect(server.url, autocommit=True) as sql:
        sql.execute(SCHEMA)
    with capture_logs() as logs, Running(begin(url=proxy.url), stop) as running:
        until(lambda: running.ended or [e for e in logs if e["event"] == CAPTURE_STARTED])
        proxy.stall()
        until(lambda: running.ended or [e for e in logs if e["event"] == STREAM_INTERRUPTED])
        proxy.go_on()
        running.reaches(server, "insert into apples values (1, 'after')")
    assert SOURCE_SILENT in [e["event"] for e in logs]


@pytest.mark.full
@pytest.mark.parametrize("workers", [2, 1])
def test_a_load_on_which_nothing_comes_any_more_is_given_up(
    server: EmbeddedServer,
    begin: Begin,
    stop: threading.Event,
    proxy: StallingProxy,
    monkeypatch: pytest.MonkeyPatch,
    workers: int,
) -> None:
    """While the proxy still stalls: nothing waits for the parts that are read."""
    monkeypatch.setattr(outages, "GIVE_UP_SECONDS", 1.0)
    with psycopg.connect(server.url, autocommit=True) as sql:
        sql.execute(SCHEMA)
        sql.execute(ROWS)
    passages = itertools.count(1)

    def stall(reached: CrashPoint) -> None:
        if reached is CrashPoint.LOAD_STAGED and next(passages) == 3:
            proxy.stall()

    capture = begin(stall, url=proxy.url, workers=workers)
    with capture_logs() as logs, Running(capture, stop) as running:
        until(lambda: running.ended or [e for e in logs if e["event"] == STREAM_INTERRUPTED])
        proxy.go_on()
        until(lambda: running.ended or [e for e in logs if e["event"] == TABLE_LOADED])
        running.reaches(server, "insert into apples values (0, 'late')")
    (loaded,) = [entry for entry in logs if entry["event"] == TABLE_LOADED]
    assert loaded["rows"] == 2000


@pytest.mark.full
def test_a_look_at_the_catalog_on_which_nothing_comes_any_more_is_given_up(
    server: EmbeddedServer, proxy: StallingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "_ANSWER_SECONDS", 1)
    with psycopg.connect(server.url, autocommit=True) as sql:
        sql.execute(SCHEMA)
    source = PostgresSource(PostgresSettings(proxy.url, slot="ours", publication="ours"))
    with ThreadPoolExecutor(1) as pool, closing(source), closing(source.pulse()) as pulse:
        assert len(source.discover()) == 1
        proxy.stall()
        look = pool.submit(source.discover)
        with pytest.raises(SourceUnavailable):
            pulse.check()
        assert not look.done()
        pulse.give_up()
        assert isinstance(look.exception(PATIENCE), SourceUnavailable)
        proxy.go_on()
        assert len(source.discover()) == 1


@pytest.mark.full
def test_a_server_that_is_busy_with_the_log_is_not_told_to_be_away(
    server: EmbeddedServer,
    begin: Begin,
    stop: threading.Event,
    store: LocalStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process that reads the log for us is stopped: it sends nothing, as one that decodes a
    large transaction of which it sends nothing."""
    records, answers = Records(store, root.LANDING), list[float]()
    monkeypatch.setattr(connect, "_ANSWER_SECONDS", 60)  # however slow this machine is
    query = PostgresPulse._query

    def counted(pulse: PostgresPulse) -> None:
        query(pulse)
        answers.append(time.monotonic())

    monkeypatch.setattr(PostgresPulse, "_query", counted)
    with psycopg.connect(server.url, autocommit=True) as sql:
        sql.execute(SCHEMA)
        with capture_logs() as logs, Running(begin(), stop) as running:
            until(lambda: running.ended or [e for e in logs if e["event"] == CAPTURE_STARTED])
            ((sender,),) = sql.execute("select pid from pg_stat_replication").fetchall()
            os.kill(sender, signal.SIGSTOP)
            try:
                before = len(answers)
                until(lambda: running.ended or len(answers) >= before + 3)
            finally:
                os.kill(sender, signal.SIGCONT)
            running.reaches(server, "insert into apples values (1, 'after')")
    assert SOURCE_SILENT not in [e["event"] for e in logs]
    assert records.outage() is None


@pytest.mark.full
def test_a_stream_that_is_heard_is_not_asked_and_looked_at_when_it_may_be_silent(
    server: EmbeddedServer,
) -> None:
    """Threads of many idle streams that look more often would take a share of a core."""
    with psycopg.connect(server.url) as sql:
        heard = [time.monotonic()]
        pulse = PostgresPulse(
            "postgresql://u@nobody.invalid/d", sql.info, lambda: heard[0], OpenConnections()
        )
        assert 0.5 < pulse.check() <= connect._QUIET_SECONDS
        heard[0] -= 1.0
        assert pulse.check() <= connect._QUIET_SECONDS - 1.0


@pytest.mark.full
@pytest.mark.parametrize("what", ["IDENTIFY_SYSTEM", "START_REPLICATION", "catch up"])
def test_a_single_run_gives_up_a_connection_on_which_nothing_comes_any_more(
    server: EmbeddedServer,
    begin: Begin,
    store: LocalStore,
    proxy: StallingProxy,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
) -> None:
    """Before the stream has begun, as it begins, and while it is read."""
    monkeypatch.setattr(outages, "GIVE_UP_SECONDS", 1.0)
    monkeypatch.setattr(connect, "_ANSWER_SECONDS", 1)
    with psycopg.connect(server.url, autocommit=True) as sql:
        sql.execute(SCHEMA)

    def stalling(connection: psycopg.Connection, query: str) -> list[dict[str, str | None]]:
        if query.startswith(what):
            proxy.stall()
        return connect.simple_query(connection, query)

    monkeypatch.setattr(source_module, "simple_query", stalling)
    monkeypatch.setattr(stream_module, "simple_query", stalling)
    with closing(begin(url=proxy.url)) as capture, ThreadPoolExecutor(1) as pool:

        def once() -> None:
            capture.open()
            if what == "catch up":
                sql.execute("insert into apples values (1)")
                current = capture._source.current()
                monkeypatch.setattr(capture._source, "current", lambda: current)
                proxy.stall()
            capture.once()

        with psycopg.connect(server.url, autocommit=True) as sql:
            error = pool.submit(once).exception(PATIENCE)
        proxy.go_on()
    assert isinstance(error, SourceUnavailable)


@pytest.mark.full
def test_a_server_that_takes_connections_and_never_answers_is_given_up(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connect._PATIENCE, "connect_timeout", "2")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        url = f"postgresql://nobody@{host}:{port}/none"
        with closing(begin(url=url)) as capture, ThreadPoolExecutor(1) as pool:
            assert isinstance(pool.submit(capture.run).exception(PATIENCE), SourceUnavailable)


@pytest.mark.full
def test_a_server_that_never_answered_is_not_waited_for(
    server: EmbeddedServer, begin: Begin
) -> None:
    server.kill()
    try:
        with closing(begin()) as capture, pytest.raises(SourceUnavailable):
            capture.run()
    finally:
        server.start()


@pytest.mark.full
def test_a_server_from_which_rows_come_is_not_silent_although_it_takes_no_login() -> None:
    opened = OpenConnections()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        peer = cast("psycopg.ConnectionInfo", SimpleNamespace(host=host, hostaddr=host, port=port))
        with closing(PostgresPulse("postgresql://nobody@/", peer, lambda: -inf, opened)) as pulse:
            with pytest.raises(SourceUnavailable):
                pulse.check()
            rows = threading.Timer(1, opened.hear)
            rows.start()
            assert pulse.check() > 0  # rows came while it waited
            assert pulse.check() > 0
            rows.join()
