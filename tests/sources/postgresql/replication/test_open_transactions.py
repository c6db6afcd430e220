"""For which transactions a new slot waits, and how long it may."""

from __future__ import annotations

import threading
from contextlib import closing

import psycopg
import pytest

from mirrorlake.errors import SourceUnavailable
from mirrorlake.sources.postgresql.replication import awaited
from tests.conformance.scene import loaded, until
from tests.sources.postgresql.captured import Captured

pytestmark = pytest.mark.postgres

APPLES = "create table apples (id int primary key)"
TEMPORARY = "select count(*) from pg_replication_slots where temporary and database = %s"


def slots(captured: Captured) -> int:
    found = captured.database.sql.execute(TEMPORARY, [captured.database.name]).fetchone()
    assert found is not None
    return int(found[0])


def test_an_open_transaction_is_told_until_it_ends(any_captured: Captured) -> None:
    any_captured.run(APPLES)
    source = any_captured.source()
    with closing(psycopg.connect(any_captured.database.url, application_name="nightly")) as other:
        other.execute("select count(*) from apples")  # has written nothing
        before = source.open_transactions()
        other.execute("savepoint one")
        other.execute("insert into apples values (1)")
        found = source.open_transactions()
        (identity,) = {*found} - {*before}
        named = found[identity]
        assert named is not None
        assert named.facts["application"] == "nightly"
        assert named.facts["pid"] == str(other.info.backend_pid)
        assert named.began is not None
        other.execute("savepoint two")
        other.execute("insert into apples values (2)")
        assert {*source.open_transactions()} - {*before} == {identity}
        other.commit()
        other.execute("insert into apples values (3)")
        (later,) = {*source.open_transactions()} - {*before}
        assert later != identity


def test_the_oldest_transaction_comes_first(captured: Captured) -> None:
    captured.run(APPLES)
    source, url = captured.source(), captured.database.url
    with closing(psycopg.connect(url)) as older, closing(psycopg.connect(url)) as newer:
        older.execute("select")
        for number, other in enumerate([newer, older]):
            other.execute("insert into apples values (%s)", [number])
        names = [one.facts.get("pid", "") for one in source.open_transactions().values() if one]
        assert names.index(str(older.info.backend_pid)) < names.index(str(newer.info.backend_pid))


def test_a_prepared_transaction_is_one(captured: Captured) -> None:
    captured.run(APPLES)
    gid = f"one of {captured.database.name}"
    captured.run("begin", "insert into apples values (1)", f"prepare transaction '{gid}'")
    try:
        found = captured.source().open_transactions()
    finally:
        captured.run(f"rollback prepared '{gid}'")
    (identity,) = [one for one, named in found.items() if named and named.facts.get("gid") == gid]
    assert identity not in captured.source().open_transactions()


def test_a_snapshot_that_would_wait_for_longer_is_not_taken(any_captured: Captured) -> None:
    any_captured.run(APPLES)
    source = any_captured.source()
    (table,) = source.discover()
    with closing(psycopg.connect(any_captured.database.url)) as other:
        other.execute("insert into apples values (1)")
        assert source.snapshot_within(0.2) is None
        until(lambda: slots(any_captured) == 0)
        other.commit()
    snapshot = source.snapshot_within(10)
    assert snapshot is not None
    with closing(snapshot):
        assert slots(any_captured) == 1
        assert loaded(snapshot, table) == [{"id": 1}]


def test_a_snapshot_waits_for_a_transaction_that_ends_in_time(captured: Captured) -> None:
    captured.run(APPLES)
    source = captured.source()
    (table,) = source.discover()
    with closing(psycopg.connect(captured.database.url)) as other:
        other.execute("insert into apples values (1)")
        ending = threading.Timer(0.3, other.commit)
        ending.start()
        snapshot = source.snapshot_within(10)
        ending.join()
    assert snapshot is not None
    with closing(snapshot):
        assert loaded(snapshot, table) == [{"id": 1}]


def test_a_cancellation_that_is_lost_is_repeated(
    captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured.run(APPLES)
    source, lost = captured.source(), list[object]()
    cancel = psycopg.Connection.cancel_safe

    def cancel_safe(connection: psycopg.Connection, *, timeout: float) -> None:
        if not lost:
            lost.append(connection)
            raise psycopg.errors.CancellationTimeout
        cancel(connection, timeout=timeout)

    monkeypatch.setattr(psycopg.Connection, "cancel_safe", cancel_safe)
    with closing(psycopg.connect(captured.database.url)) as other:
        other.execute("insert into apples values (1)")
        assert source.snapshot_within(0.1) is None
    assert lost


def test_a_server_that_is_slow_to_tell_them_can_be_asked_again(
    captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured.run(APPLES)
    source = captured.source()
    with monkeypatch.context() as patched:
        patched.setattr(awaited, "ANSWER_SECONDS", 0.2)
        patched.setattr(awaited, "_OPEN", "(select pg_sleep(5), $1 as id, null as since) o")
        patched.setattr(awaited, "_AWAITED", "select id from {open}")
        with pytest.raises(SourceUnavailable):
            source.open_transactions()
    assert source.current()
    assert isinstance(source.open_transactions(), dict)
