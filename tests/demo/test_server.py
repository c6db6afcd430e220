"""The PostgreSQL that the demo and the tests start."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from mirrorlake.demo.server import EmbeddedServer, binaries
from mirrorlake.errors import Unavailable
from tests.conftest import Database

pytestmark = pytest.mark.postgres


def test_it_listens_on_no_port(database: Database) -> None:
    with psycopg.connect(database.url) as sql:
        assert sql.execute("show listen_addresses").fetchone() == ("",)


def test_it_wants_its_password(database: Database) -> None:
    url = database.url.replace(f":{database.server.password}@", "{}@")
    for password in ("", ":", ":wrong", ":postgres"):
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(url.format(password))
    assert not [
        path
        for path in database.server.folder.rglob("*")
        if path.is_file() and database.server.password.encode() in path.read_bytes()
    ]


def test_nobody_else_enters_the_folder_in_which_it_listens(database: Database) -> None:
    folder = database.server.folder
    assert [path.name for path in folder.iterdir() if path.is_socket()] == [".s.PGSQL.5432"]
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("version", [18, pytest.param(16, marks=pytest.mark.full)])
def test_it_runs_from_where_others_may_not_enter(tmp_path: Path, version: int) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    site = binaries(version).parent.parent
    (private / "site").symlink_to(site)
    install = private / "site" / binaries(version).relative_to(site)
    with EmbeddedServer(version, install=install) as server:
        assert server.folder.stat().st_mode & 0o777 == 0o700
    assert private.stat().st_mode & 0o777 == 0o700


def test_a_server_that_does_not_start_leaves_nothing_and_says_why() -> None:
    server = EmbeddedServer(settings={"no_such_setting": "1"})
    with pytest.raises(Unavailable, match="no_such_setting"), server:
        pass
    assert not server.folder.exists()


@pytest.mark.full
def test_it_is_started_at_once_after_it_was_killed() -> None:
    with EmbeddedServer() as server:
        busy = [psycopg.connect(server.url) for _ in range(10)]
        for connection in busy:
            connection.execute("create temporary table t as select generate_series(1, 10000)")
        server.kill()
        server.start()
        with psycopg.connect(server.url) as sql:
            assert sql.execute("select count(*) from pg_stat_activity").fetchone() is not None
        for connection in busy:
            connection.close()


def test_it_is_abandoned_at_any_moment() -> None:
    server = EmbeddedServer().start()
    server.abandon()
    server.abandon()
    assert not server.folder.exists()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(server.url)
