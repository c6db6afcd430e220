"""Transactions with savepoints, that are prepared, or that others commit before."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress

import psycopg
import pytest

from tests.conformance.scene import Event, events
from tests.sources.postgresql.captured import Captured

pytestmark = pytest.mark.postgres

MANY = "insert into apples select g, repeat('x', 100) from generate_series({}, {}) g"


def sessions(captured: Captured, stack: ExitStack, count: int) -> list[psycopg.Connection]:
    return [
        stack.enter_context(psycopg.connect(captured.database.url, autocommit=True))
        for _ in range(count)
    ]


def ids(found: Sequence[Event]) -> list[int]:
    return [event.row["id"] for event in found]


def test_what_was_rolled_back_is_not_told_however_much_it_was(any_captured: Captured) -> None:
    captured = any_captured
    captured.begin("create table apples (id int primary key, note text)")
    # The server writes to its disk what it has not room for.
    name = captured.database.name
    captured.run(f"alter database {name} set logical_decoding_work_mem = '64kB'")
    with ExitStack() as stack:
        long, other = sessions(captured, stack, 2)
        long.execute("begin")
        long.execute(MANY.format(1, 3_000))
        long.execute("savepoint one")
        long.execute(MANY.format(3_001, 6_000))
        other.execute("insert into apples values (10001)")
        long.execute("savepoint two")
        long.execute("delete from apples where id <= 10")
        long.execute("rollback to one")
        other.execute("begin")
        other.execute(MANY.format(20_001, 23_000))
        other.execute("rollback")
        long.execute("savepoint three")
        long.execute("insert into apples values (3001)")
        long.execute("release three")
        assert ids(captured.changes()) == [10_001]
        long.execute("commit")
    found = captured.changes()
    assert ids(found) == [10_001, *range(1, 3_002)]
    assert len({event.transaction for event in found}) == 2


def test_a_large_transaction_with_a_savepoint_that_is_rolled_back_stops_nothing(
    any_captured: Captured,
) -> None:
    """PostgreSQL 18 says that it is aborted, in the form of streams that were not asked for."""
    captured = any_captured
    captured.begin("create table apples (id int primary key, note text)")
    captured.run(f"alter database {captured.database.name} set logical_decoding_work_mem = '64kB'")
    captured.run("insert into apples values (1)")
    for undone in ("rollback", "select 1 / 0"):
        with ExitStack() as stack, suppress(psycopg.errors.DivisionByZero):
            (session,) = sessions(captured, stack, 1)
            session.execute("begin")
            session.execute("savepoint one")
            session.execute("insert into apples values (2)")
            session.execute("release one")
            session.execute(MANY.format(10, 6_000))
            session.execute(undone)
    captured.run("insert into apples values (3)")
    assert ids(captured.changes()) == [1, 3]


def test_a_prepared_transaction_is_told_when_it_is_committed(any_captured: Captured) -> None:
    captured = any_captured
    captured.begin("create table apples (id int primary key, note text)")
    name = captured.database.name
    for number in (1, 2):
        captured.run(
            "begin",
            f"insert into apples values ({number})",
            f"prepare transaction '{name} {number}'",
        )
    captured.run("insert into apples values (3)")
    with captured.streaming() as (source, reader):
        chunks = reader.read_to(source.current())
        assert ids(events(chunks)) == [3]
        reader.stream.acknowledge(source.current())  # what was prepared lies before it
    captured.run(
        f"commit prepared '{name} 1'",
        f"rollback prepared '{name} 2'",
        "insert into apples values (4)",
    )
    assert ids(captured.changes()) == [1, 4]


def test_messages_of_others_in_the_log_change_nothing(any_captured: Captured) -> None:
    captured = any_captured
    captured.begin("create table apples (id int primary key, note text)")
    captured.run("select pg_logical_emit_message(false, 'other', 'x')")
    with captured.database.sql.transaction():
        captured.run(
            "insert into apples values (1)",
            "select pg_logical_emit_message(true, 'other', repeat('x', 100000))",
            "insert into apples values (2)",
        )
    captured.run("select pg_logical_emit_message(true, 'other', 'x')")
    assert ids(captured.changes()) == [1, 2]
