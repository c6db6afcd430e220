"""Ten tables at work: a process that changes them at a given rate, each change with its moment.

Of a hundred changed rows 60 are updated, 20 inserted and 20 deleted, in transactions of one table
each, in turn. Inserted and updated rows carry the time at which their transaction sent them.
"""

from __future__ import annotations

import multiprocessing
import random
import time
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event

import psycopg

TABLES = [f"public.ledger_{number}" for number in range(10)]
LEAST_ROWS = 10_000

_TABLE = """
create table {table} (
    id bigint primary key,
    account bigint not null,
    amount numeric(12, 2) not null,
    status integer not null,
    note text,
    sent_at timestamptz not null
)
"""
_ROW = "g, g * 7919 % 1000003, (g % 100000) / 100.0, g % 7, 'Entry no. ' || g, clock_timestamp()"


def fill(sql: psycopg.Connection, rows: int) -> None:
    """Make the tables, each with the rows 1..rows. The connection commits by itself."""
    for table in TABLES:
        sql.execute(_TABLE.format(table=table))
        sql.execute(f"insert into {table} select {_ROW} from generate_series(1, {rows}::bigint) g")
    sql.execute("vacuum analyze")


def touch(sql: psycopg.Connection) -> None:
    """Change one row in each table."""
    for table in TABLES:
        sql.execute(f"update {table} set status = 0 where id = {LEAST_ROWS}")


class Work:
    """The process that changes the tables. present: rows that each has."""

    def __init__(self, url: str, present: int, rate: int, seconds: float) -> None:
        context = multiprocessing.get_context("spawn")
        self._results, sending = context.Pipe(duplex=False)
        self._ended = context.Event()
        arguments = (url, present, rate, seconds, sending, self._ended)
        self._process = context.Process(target=_work, args=arguments, daemon=True)

    def start(self) -> None:
        self._process.start()

    def end(self) -> None:
        """Change no more."""
        self._ended.set()

    def result(self) -> tuple[int, float]:
        """Wait for the end. Returns the rows changed, and the seconds that it took."""
        changed, seconds = self._results.recv()
        self._process.join()
        return int(changed), float(seconds)


def _work(
    url: str, present: int, rate: int, seconds: float, results: Connection, ended: Event
) -> None:
    # As many transactions as a service with that load would have, up to a hundred a second.
    batch = 20 if rate <= 2_000 else 100
    chance = random.Random(5)
    state = [_Ends(present) for _ in TABLES]
    changed, turn, began = 0, 0, time.monotonic()
    with psycopg.connect(url) as sql:
        while time.monotonic() - began < seconds and not ended.is_set():
            changed += _transact(sql, TABLES[turn], state[turn], batch, chance)
            turn = (turn + 1) % len(TABLES)
            ahead = changed / rate - (time.monotonic() - began)
            if ahead > 0:
                time.sleep(ahead)
    results.send((changed, time.monotonic() - began))


class _Ends:
    """The rows of a table are those from `first` to `last`."""

    def __init__(self, present: int) -> None:
        self.first, self.last = 1, present


def _transact(
    sql: psycopg.Connection, table: str, ends: _Ends, batch: int, chance: random.Random
) -> int:
    fifth = batch // 5
    keys = chance.sample(range(ends.first + fifth, ends.last), batch - 2 * fifth)
    sql.execute(
        f"delete from {table} where id between %s and %s", (ends.first, ends.first + fifth - 1)
    )
    sql.execute(
        f"update {table} set amount = amount + 1, status = (status + 1) %% 7, "
        "sent_at = clock_timestamp() where id = any(%s)",
        (keys,),
    )
    sql.execute(
        f"insert into {table} select {_ROW.replace('%', '%%')} "
        "from generate_series(%s::bigint, %s) g",
        (ends.last + 1, ends.last + fifth),
    )
    sql.commit()
    ends.first, ends.last = ends.first + fifth, ends.last + fifth
    return batch
