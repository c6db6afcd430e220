"""PostgreSQL itself goes away while it is captured."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from mirrorlake.demo.server import EmbeddedServer
from tests.conftest import Database
from tests.crash.project import CHANGES, MORE, SCHEMA, Project, assert_landed

PATIENCE_SECONDS = 180

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
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until and capture.poll() is None:
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
