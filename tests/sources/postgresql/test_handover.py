"""Transactions that are open while a slot is made: each row is loaded or streamed, never both."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest

from mirrorlake.sources.base import Snapshot
from tests.conformance.scene import changes_now, loaded, named, until
from tests.sources.postgresql.captured import BEGINNING, Captured

pytestmark = pytest.mark.postgres


class Transaction:
    """An open transaction that has inserted one row."""

    def __init__(self, captured: Captured, key: int) -> None:
        self._database = captured.database
        self._connection = psycopg.connect(captured.database.url)
        self._connection.execute("insert into apples values (%s)", [key])
        row = self._connection.execute("select pg_current_xact_id()::xid::text").fetchone()
        assert row is not None
        self._xid = row[0]

    def is_waited_for(self) -> bool:
        """The server does not go on with the slot before this ends."""
        waiting = "select 1 from pg_locks where not granted and transactionid::text = %s"
        return self._database.sql.execute(waiting, [self._xid]).fetchone() is not None

    def commit(self) -> None:
        self._connection.commit()
        self._connection.close()


@contextmanager
def opened_around(captured: Captured, kind: str) -> Iterator[tuple[Snapshot, Transaction]]:
    """A snapshot that was asked for with row 1 open, and a transaction with row 3 still open.

    The server waits for the transactions that it finds open, then for those begun meanwhile.
    """
    source = captured.source()
    captured.tables = source.discover()
    if kind == "later":
        source.objects.establish(captured.tables).snapshot.close()
    first = Transaction(captured, 1)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(
            source.snapshot
            if kind == "later"
            else lambda: source.objects.establish(captured.tables).snapshot
        )
        until(first.is_waited_for)
        second = Transaction(captured, 2)
        first.commit()
        until(second.is_waited_for)
        third = Transaction(captured, 3)
        second.commit()
        snapshot = asked.result(30)
    yield snapshot, third
    snapshot.close()


@pytest.mark.full
@pytest.mark.parametrize("kind", ["first", "later"])
def test_a_transaction_open_at_the_point_is_streamed_and_not_loaded(
    any_captured: Captured, kind: str
) -> None:
    any_captured.run("create table apples (id int primary key)")
    with opened_around(any_captured, kind) as (snapshot, third):
        third.commit()
        rows = loaded(snapshot, named(any_captured.tables, "apples"))
    found = changes_now(any_captured.source(), any_captured.tables, BEGINNING)
    assert sorted(row["id"] for row in rows) == [1, 2]
    assert [event.row["id"] for event in found if not snapshot.point.covers(event.end)] == [3]


def test_a_commit_record_may_begin_exactly_at_the_point(any_captured: Captured) -> None:
    any_captured.run("create table apples (id int primary key)")

    def hit() -> bool:
        """The server may write a record of its own in between; then it is tried again."""
        any_captured.run("truncate apples")
        with opened_around(any_captured, "first") as (snapshot, third):
            third.commit()
        (begun, *_) = [c.transactions.after[0] for c in any_captured.chunks() if c.parts]
        (event,) = any_captured.changes()
        assert not snapshot.point.covers(event.end)
        asked = changes_now(any_captured.source(), any_captured.tables, snapshot.point)
        assert asked == [event]
        return begun == snapshot.point

    until(hit)
