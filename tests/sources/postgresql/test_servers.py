"""Servers that are set up in another way, that fall behind, or that are not there."""

from __future__ import annotations

import re
from collections.abc import Iterator

import psycopg
import pytest

from mirrorlake.demo.server import EmbeddedServer
from mirrorlake.errors import PrerequisiteMissing, SourceGap, SourceUnavailable
from mirrorlake.sources.base import ChangeStream, CheckSeverity
from mirrorlake.sources.postgresql.settings import PostgresSettings
from tests.conformance.scene import until
from tests.conftest import Database, database_on
from tests.sources.postgresql.captured import BEGINNING, Captured
from tests.sources.postgresql.checks.test_server import the_finding

pytestmark = pytest.mark.postgres

OK, WARNING, ERROR = CheckSeverity.OK, CheckSeverity.WARNING, CheckSeverity.ERROR
APPLES = "create table apples (id int primary key, size int)"


@pytest.fixture(scope="module")
def narrow() -> Iterator[EmbeddedServer]:
    """A server that keeps little WAL and has few slots."""
    limits = {"max_slot_wal_keep_size": "16MB", "max_replication_slots": "2"}
    with EmbeddedServer(18, limits) as server:
        yield server


@pytest.fixture
def limited(narrow: EmbeddedServer) -> Iterator[Captured]:
    for database in database_on(narrow):
        captured = Captured(database, database.settings())
        yield captured
        captured.close()


@pytest.fixture(scope="module")
def physical() -> Iterator[EmbeddedServer]:
    """A server that was never set up for logical decoding."""
    limits = {"wal_level": "replica", "max_replication_slots": "1", "max_wal_senders": "1"}
    with EmbeddedServer(18, limits) as server:
        yield server


@pytest.fixture
def unprepared(physical: EmbeddedServer) -> Iterator[Captured]:
    for database in database_on(physical):
        captured = Captured(database, database.settings())
        captured.run(APPLES)
        yield captured
        captured.close()


def read_and_go_on(stream: ChangeStream) -> bool:
    stream.read(1.0)
    return False


def write_wal(database: Database, segments: int) -> None:
    for _ in range(segments):
        database.execute("select pg_logical_emit_message(false, '', 'x')", "select pg_switch_wal()")


# -- settings of the server ----------------------------------------------------------------------


def test_a_server_without_logical_decoding_is_an_error(unprepared: Captured) -> None:
    finding = the_finding(unprepared, "wal_level", ERROR)
    assert finding.message == "wal_level is replica, but logical decoding requires logical"
    assert "alter system set wal_level = logical" in finding.remedy


@pytest.mark.parametrize("setting", ["max_replication_slots", "max_wal_senders"])
def test_too_few_slots_or_senders_are_an_error(unprepared: Captured, setting: str) -> None:
    # One for the stream and one for loading tables.
    finding = the_finding(unprepared, setting, ERROR)
    assert finding.message == "1 of 1 are free, but 2 are needed"
    assert f"alter system set {setting} = 3" in finding.remedy


def test_slots_that_others_hold_are_not_free(limited: Captured) -> None:
    limited.run(APPLES)
    assert the_finding(limited, "max_replication_slots", OK).message == "2 of 2 are free"
    limited.run("select pg_create_logical_replication_slot('other', 'pgoutput')")
    finding = the_finding(limited, "max_replication_slots", ERROR)
    assert finding.message == "1 of 2 are free, but 2 are needed"


def test_our_own_slot_is_not_asked_for_again(limited: Captured) -> None:
    limited.begin(APPLES)
    assert the_finding(limited, "max_replication_slots", OK).message == "1 of 2 are free"


def test_a_slot_that_cannot_be_made_says_why(limited: Captured) -> None:
    limited.run(
        "select pg_create_logical_replication_slot('one', 'pgoutput')",
        "select pg_create_logical_replication_slot('two', 'pgoutput')",
    )
    with pytest.raises(
        SourceUnavailable, match=r"returned an error: all replication slots are in use"
    ):
        limited.begin(APPLES)


def test_what_a_failed_beginning_left_is_taken_up_by_the_next(limited: Captured) -> None:
    limited.run(
        "select pg_create_logical_replication_slot('one', 'pgoutput')",
        "select pg_create_logical_replication_slot('two', 'pgoutput')",
    )
    with pytest.raises(SourceUnavailable):
        limited.begin(APPLES)
    limited.run("select pg_drop_replication_slot('two')")
    assert len(limited.begin()) == 3


# -- a slot that falls behind --------------------------------------------------------------------


def test_the_limit_of_a_slot_is_told(limited: Captured) -> None:
    limited.run(APPLES)
    assert "16MB" in the_finding(limited, "max_slot_wal_keep_size", OK).message


def test_a_slot_that_is_close_to_its_limit_is_a_warning(limited: Captured) -> None:
    limited.begin(APPLES)
    write_wal(limited.database, 2)
    assert "close to its limit" in the_finding(limited, "slot", WARNING).message


def test_a_slot_that_was_invalidated_is_an_error(limited: Captured) -> None:
    limited.begin(APPLES)
    write_wal(limited.database, 4)
    limited.run("checkpoint")
    finding = the_finding(limited, "slot", ERROR)
    assert "invalidated" in finding.message
    assert "mirrorlake repair" in finding.remedy


def test_a_slot_that_was_invalidated_is_a_gap(limited: Captured) -> None:
    limited.begin(APPLES)
    write_wal(limited.database, 4)
    limited.run("checkpoint")
    source = limited.source()
    since = source.current()
    write_wal(limited.database, 1)
    with pytest.raises(SourceGap, match="was invalidated") as gap:
        source.resume(since, source.identity())
    size = re.search(r"changes in up to ([0-9.]+) MiB of the log, from ", gap.value.what)
    assert size
    assert float(size[1]) >= 0.9


def test_a_slot_that_was_invalidated_is_made_anew(limited: Captured) -> None:
    limited.begin(APPLES)
    write_wal(limited.database, 4)
    limited.run("checkpoint")
    limited.begin()
    assert len(limited.changes("insert into apples values (1, 2)")) == 1


# -- servers that do not answer ------------------------------------------------------------------


@pytest.mark.full
def test_a_server_that_is_not_there_is_a_finding(limited: Captured) -> None:
    limited.settings = PostgresSettings("postgresql://postgres@/postgres?host=/no/such/folder")
    (finding,) = limited.source().check()
    assert (finding.check, finding.severity) == ("reachable", ERROR)
    assert "does not answer" in finding.message
    assert finding.remedy


@pytest.mark.full
def test_a_server_that_is_killed_ends_the_stream_as_unavailable() -> None:
    with EmbeddedServer(18) as server, psycopg.connect(server.url, autocommit=True) as sql:
        captured = Captured(
            database := Database(server.url, server, sql, "postgres"), database.settings()
        )
        captured.begin(APPLES)
        stream = captured.source().stream(captured.tables, BEGINNING)
        server.kill()
        with pytest.raises(SourceUnavailable):
            until(lambda: read_and_go_on(stream))
        with pytest.raises(SourceUnavailable):
            captured.source().discover()


@pytest.mark.full
def test_a_standby_is_named_as_that() -> None:
    with EmbeddedServer(18) as server:
        server.halt()
        (server.folder / "data" / "standby.signal").touch()
        server.start()
        with psycopg.connect(server.url, autocommit=True) as sql:
            database = Database(server.url, server, sql, "postgres")
            source = Captured(database, database.settings()).source()
            with pytest.raises(SourceUnavailable, match="is a standby") as caught:
                source.discover()
            source.close()
    assert "target_session_attrs=read-write" in caught.value.hint


@pytest.mark.long
@pytest.mark.parametrize("version", [14, 17])
def test_a_table_cannot_join_where_its_changes_could_be_lost(
    request: pytest.FixtureRequest, version: int
) -> None:
    for database in database_on(request.getfixturevalue(f"postgres{version}")):
        captured = Captured(database, database.settings())
        captured.begin(APPLES)
        captured.run("create table pears (id int primary key)")
        source = captured.source()
        with pytest.raises(PrerequisiteMissing, match=r"can lose changes of .*: public\.pears"):
            source.objects.include(source.discover())
        captured.close()
