"""PostgreSQL itself goes away while it is captured."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from mirrorlake.demo.server import EmbeddedServer
from tests.conftest import Database
from tests.crash.project import (
    CHANGES,
    LARGE,
    MORE,
    PART_BYTES,
    SCHEMA,
    TABLES,
    Project,
    assert_landed,
    is_large_loading,
)
from tests.crash.signalled import until
from tests.crash.test_apply_crashes import assert_mirrored
from tests.crash.test_failover import end_of

PATIENCE_SECONDS = 180

AWAY_SECONDS = 5.5
"""How long the server stays away: the load fails, and the attempts after 1 and after 3 seconds."""

BACK_SECONDS = 25.0
"""In which the load goes on once it is back: the next attempt is after 7 seconds, or after 15 if
the server is not there yet, and it has to begin. Not after 30 more, the longest pause."""

pytestmark = [pytest.mark.postgres, pytest.mark.crash, pytest.mark.full]


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    """A server of our own to kill; what it says is durable is durable."""
    with EmbeddedServer(18, {"fsync": "on"}) as server:
        yield server


def test_capture_waits_for_a_killed_server_and_goes_on(
    server: EmbeddedServer, tmp_path: Path
) -> None:
    with psycopg.connect(server.url, autocommit=True) as sql:
        sql.execute(SCHEMA)
        project = Project(tmp_path, Database(server.url, server, sql, "killed"))
        project.write()
        capture = project.start("capture")
        _until_acknowledged(sql, capture)
        # What is changed now is acknowledged by a capture that streams; one that loads is killed in
        # tests/sources/postgresql/test_outages.py.
        sql.execute("insert into b.notes values (0, 'before')")
        _until_acknowledged(sql, capture)
        sql.execute(CHANGES)
    server.kill()
    server.start()
    with psycopg.connect(server.url, autocommit=True) as sql:
        sql.execute(MORE)
        project = Project(tmp_path, Database(server.url, server, sql, "killed"))
        _until_acknowledged(sql, capture)
        capture.terminate()
        _out, error = capture.communicate(timeout=120)
        assert capture.returncode == 0, error
        assert "stream_interrupted" in error
        project.run("capture", "--once")
        assert_landed(project)


def _until_acknowledged(sql: psycopg.Connection, capture: subprocess.Popen[str]) -> None:
    """Wait until everything that is committed now is acknowledged by capture."""
    target = sql.execute("select pg_current_wal_lsn()::text").fetchone()
    assert target is not None
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline and capture.poll() is None:
        row = sql.execute(
            "select confirmed_flush_lsn >= %s::pg_lsn and active from pg_replication_slots", target
        ).fetchone()
        if row is not None and row[0]:
            return
        sql.execute("select pg_sleep(0.05)")
    slots = sql.execute("select * from pg_replication_slots").fetchall()
    capture.send_signal(signal.SIGABRT)  # it tells where it is
    _out, error = capture.communicate(timeout=60)
    pytest.fail(f"capture did not acknowledge {target[0]}; slots: {slots}\n{error}")


def shut_down_at_once(server: EmbeddedServer) -> None:
    """As `pg_ctl stop -m immediate` does: it tells its clients so, and recovers when it starts."""
    postmaster = server._process
    assert postmaster is not None
    postmaster.send_signal(signal.SIGQUIT)
    postmaster.wait(30)
    server._process = None


@pytest.mark.spark
@pytest.mark.parametrize(
    ("end", "reads"), [(EmbeddedServer.kill, "capture"), (shut_down_at_once, "spark")]
)
def test_a_run_waits_for_a_server_that_is_away_while_it_loads_and_goes_on(
    server: EmbeddedServer, tmp_path: Path, end: Callable[[EmbeddedServer], None], reads: str
) -> None:
    """The same process from the first row to the last, which ends well."""
    log = tmp_path / "run.log"
    with psycopg.connect(server.url, autocommit=True) as sql:
        sql.execute(SCHEMA)
        sql.execute(LARGE)
    project = Project(tmp_path, Database(server.url, server, sql, "killed"))
    project.write()
    project.configure("load", part_bytes=PART_BYTES, on=reads)
    with project.started("run", "--log-json", "--log", str(log)) as run:
        _until(run, lambda: is_large_loading(project))
        end(server)
        gone = time.monotonic()
        assert is_large_loading(project), "it was loaded before"
        _until(run, lambda: time.monotonic() - gone > AWAY_SECONDS)
        assert len(_logged(log, "stream_interrupted")) >= 3
        server.start()
        back = time.monotonic()
        _until(run, lambda: _logged(log, "load_resumed"))
        assert time.monotonic() - back < BACK_SECONDS
        assert _logged(log, "load_resumed")[0]["kept"] >= 3
        with psycopg.connect(server.url, autocommit=True) as sql:
            sql.execute(CHANGES)
            project = Project(tmp_path, Database(server.url, server, sql, "killed"))
            project.run("wait", end_of(server), "--timeout", str(PATIENCE_SECONDS))
            run.terminate()
            _out, error = run.communicate(timeout=60)
            assert run.returncode == 0, error
            assert_mirrored(project, [*TABLES, "a.large"])


def _logged(log: Path, event: str, **facts: Any) -> list[dict[str, Any]]:
    """The entries of a log with this event and these facts."""
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    return [one for one in entries if {"event": event, **facts}.items() <= one.items()]


def _until(run: subprocess.Popen[str], holds: Callable[[], object]) -> None:
    """Wait for what comes of a run, which goes on meanwhile."""

    def is_reached() -> object:
        assert run.poll() is None, f"it ended with {run.returncode}: {run.communicate()[1]}"
        return holds()

    until(is_reached, pause=0.02)
