"""A standby takes over while the primary is mirrored."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from mirrorlake.demo.server import EmbeddedServer
from mirrorlake.sources.postgresql.connect import connect_replication, simple_query
from tests.conftest import Database
from tests.crash.forked import mirrorlake
from tests.crash.project import CHANGES, MORE, SCHEMA, Project, assert_landed
from tests.standby import (
    HAS_REPLAYED,
    SYNCHRONIZED,
    either,
    end_of,
    pair,
    until_copied,
    wait_for,
)

pytestmark = [pytest.mark.postgres, pytest.mark.crash, pytest.mark.full]

IS_ACKNOWLEDGED = """
    select coalesce(bool_and(confirmed_flush_lsn >= %s::pg_lsn), false)
    from pg_replication_slots where slot_name like 'mirrorlake%%'
"""


def project_on(folder: Path, url: str, server: EmbeddedServer, sql: psycopg.Connection) -> Project:
    project = Project(folder, Database(url, server, sql, "failover"))
    project.write()
    return project


@contextmanager
def load_on(server: EmbeddedServer, number: int) -> Iterator[None]:
    """Somebody writes, until the server is gone or the block ends. number: where keys begin."""
    done = threading.Event()

    def write() -> None:
        nonlocal number
        try:
            with psycopg.connect(server.url, autocommit=True) as sql:
                while not done.wait(0.005):
                    number += 1
                    sql.execute("insert into a.items values (%s, 1, 'load')", [number])
                    sql.execute(
                        "update a.orders set note = %s where id %% 7 = %s", [number, number % 7]
                    )
        except psycopg.OperationalError:
            return  # it was killed

    writing = threading.Thread(target=write)
    writing.start()
    try:
        yield
    finally:
        done.set()
        writing.join()


def ended(capture: subprocess.Popen[str]) -> str:
    """What it logged."""
    capture.terminate()
    _out, error = capture.communicate(timeout=120)
    assert capture.returncode == 0, error
    return error


@pytest.mark.parametrize("version", [17, 18])
def test_capture_goes_on_with_a_standby_that_is_promoted_under_load(
    tmp_path: Path, version: int
) -> None:
    with pair(version, {"fsync": "on", **SYNCHRONIZED}) as (first, second):
        with psycopg.connect(first.url, autocommit=True) as sql:
            sql.execute(SCHEMA)
            project = project_on(tmp_path, either(first, second), first, sql)
            capture = project.start("capture")
            wait_for(first, IS_ACKNOWLEDGED, "0/0")
            sql.execute(CHANGES)
            until_copied(first, second)
        with load_on(first, 100_000):
            wait_for(first, "select count(*) > 300 from a.items")
            first.kill()
        second.promote()
        with psycopg.connect(second.url, autocommit=True) as sql, load_on(second, 200_000):
            sql.execute(MORE)
            wait_for(second, IS_ACKNOWLEDGED, end_of(second))
        with psycopg.connect(second.url, autocommit=True) as sql:
            project = replace(project, database=Database(second.url, second, sql, "failover"))
            log = ended(capture)
            assert "stream_interrupted" in log
            project.run("capture", "--once")
            assert_landed(project)


@pytest.mark.long
def test_capture_goes_on_with_a_standby_that_has_prepared_transactions(tmp_path: Path) -> None:
    """Standbys copy slots with `two_phase` from PostgreSQL 18 on."""
    settings = {"fsync": "on", "max_prepared_transactions": "10", **SYNCHRONIZED}
    with pair(18, settings) as (first, second):
        with psycopg.connect(first.url, autocommit=True) as sql:
            sql.execute(SCHEMA)
            project = project_on(tmp_path, either(first, second), first, sql)
            project.run("capture", "--once")
            make_two_phase(first)
            capture = project.start("capture")
            sql.execute(CHANGES)
            until_copied(first, second)
            for number, name in ((1, "kept"), (2, "gone")):
                for statement in (
                    "begin",
                    f"insert into a.items values (7000, {number}, '{name}')",
                    f"insert into b.notes values (700{number}, '{name}')",
                    f"prepare transaction '{name}'",
                ):
                    sql.execute(statement)
            prepared = end_of(first)
        with load_on(first, 100_000):
            wait_for(first, "select count(*) > 300 from a.items")
            wait_for(second, HAS_REPLAYED, prepared)
            first.kill()
        second.promote()
        with psycopg.connect(second.url, autocommit=True) as sql, load_on(second, 200_000):
            sql.execute("rollback prepared 'gone'")
            sql.execute("commit prepared 'kept'")
            sql.execute(MORE)
            wait_for(second, IS_ACKNOWLEDGED, end_of(second))
        with psycopg.connect(second.url, autocommit=True) as sql:
            project = replace(project, database=Database(second.url, second, sql, "failover"))
            assert "stream_interrupted" in ended(capture)
            project.run("capture", "--once")
            assert_landed(project)
            notes = sql.execute('select note from a.items where "order" = 7000').fetchall()
            assert notes == [("kept",)]


def make_two_phase(server: EmbeddedServer) -> None:
    """Let the slot of a capture that has ended send transactions when they are prepared."""
    with psycopg.connect(server.url, autocommit=True) as sql:
        query = "select slot_name from pg_replication_slots where slot_name like 'mirrorlake%'"
        ((name,),) = sql.execute(query).fetchall()
    with closing(connect_replication(server.url)) as replication:
        simple_query(replication, f"ALTER_REPLICATION_SLOT {name} (TWO_PHASE true)")


OLDER = [pytest.param(version, marks=pytest.mark.long) for version in (15, 16, 17)]


@pytest.mark.parametrize("version", [14, 18, *OLDER])
def test_what_a_promoted_standby_lacks_is_named_and_repaired(tmp_path: Path, version: int) -> None:
    """The mirror is ahead of the standby (17, 18), or there is no copy of the slot (14 to 16)."""
    with pair(version, {}) as (first, second):
        with psycopg.connect(first.url, autocommit=True) as sql:
            sql.execute(SCHEMA)
            url = either(first, second)
            project = project_on(tmp_path, url, first, sql)
            capture = project.start("capture")
            wait_for(first, IS_ACKNOWLEDGED, "0/0")
            if version >= 17:
                until_copied(first, second)
            ended(capture)
            second.halt()
            sql.execute(CHANGES)
            project.run("capture", "--once")
        first.kill()
        second.start()
        second.promote()
        with psycopg.connect(second.url, autocommit=True) as sql:
            sql.execute("update a.orders set note = 'on the standby' where id < 20")
            done = mirrorlake("capture", "--once", "-c", str(project.file), TEST_URL=url)
            assert done.code == 1
            assert "lacks the changes in the last" in done.error
            assert "mirrorlake repair" in done.error
            project.run("repair", "--yes")
            sql.execute(MORE)
            project.run("capture", "--once")
            project = replace(project, database=Database(second.url, second, sql, "failover"))
            assert_landed(project)


@pytest.mark.long
@pytest.mark.parametrize("is_behind", [True, False])
def test_a_standby_takes_over_while_landed_files_are_missing(
    tmp_path: Path, *, is_behind: bool
) -> None:
    """A promoted standby sends again what its copy of the slot still has, and names what not."""
    with pair(18, {"fsync": "on", **SYNCHRONIZED}) as (first, second):
        with psycopg.connect(first.url, autocommit=True) as sql:
            sql.execute(SCHEMA)
            url = either(first, second)
            project = project_on(tmp_path, url, first, sql)
            capture = project.start("capture")
            wait_for(first, IS_ACKNOWLEDGED, "0/0")
            until_copied(first, second)
            ended(capture)
            shutil.copytree(project.root, tmp_path / "earlier")
            if is_behind:
                stop_copying(second)
            sql.execute(CHANGES)
            project.run("capture", "--once")
            if not is_behind:
                until_copied(first, second)
            wait_for(second, HAS_REPLAYED, end_of(first))
        first.kill()
        second.promote()
        shutil.rmtree(project.root)
        (tmp_path / "earlier").rename(project.root)
        with psycopg.connect(second.url, autocommit=True) as sql:
            if not is_behind:
                done = mirrorlake("capture", "--once", "-c", str(project.file), TEST_URL=url)
                assert done.code == 1
                assert "but the landing zone holds changes only up to" in done.error
                project.run("repair", "--yes")
            sql.execute(MORE)
            project.run("capture", "--once")
            project = replace(project, database=Database(second.url, second, sql, "failover"))
            assert_landed(project)


def stop_copying(standby: EmbeddedServer) -> None:
    """The copy of the slot stays as it is."""
    standby.halt()
    standby._settings = {**standby._settings, "sync_replication_slots": "off"}
    standby.start()
