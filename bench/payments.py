"""The table of all comparisons: eleven columns as they are common, and changes to it.

The values follow from the key alone, so that every side can be given the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import psycopg

TABLE = "public.payments"
KEY = "id"

SCHEMA = f"""
create table {TABLE} (
    id bigint primary key,
    account bigint not null,
    reference text not null,
    amount numeric(12, 2) not null,
    rate double precision,
    settled boolean not null,
    status integer not null,
    booked_on date not null,
    created_at timestamptz not null,
    details jsonb not null,
    note text
)
"""

TYPES: Mapping[str, str] = {
    "id": "bigint",
    "account": "bigint",
    "reference": "varchar",
    "amount": "decimal(12, 2)",
    "rate": "double",
    "settled": "boolean",
    "status": "integer",
    "booked_on": "date",
    "created_at": "timestamptz",
    "details": "varchar",
    "note": "varchar",
}
"""The columns, by their types in DuckDB."""

_ROW = """
    {g}, {g} * 7919 % 1000003, md5({g}::text), (({g} * 31 % 1000000) / 100.0)::numeric(12, 2),
    case when {g} % 10 = 0 then null else ({g} % 9973) / 64.0 end, {g} % 3 = 0, ({g} % 7)::int,
    date '2020-01-01' + ({g} % 2000)::int, timestamptz '2020-01-01 00:00:00.123456+00'
        + {g} % 100000000 * interval '1 second',
    jsonb_build_object('channel', 'c' || {g} % 5, 'attempt', {g} % 4, 'vip', {g} % 2 = 0),
    case when {g} % 4 = 0 then null else 'Paid by transfer no. ' || {g} || ', "as agreed"' end
"""


def rows(number: str = "g") -> str:
    """The values of a row in PostgreSQL's SQL; `number` says its key."""
    return _ROW.format(g=number)


def insert(first: int, last: int) -> str:
    """A statement that inserts the rows first..last."""
    return f"insert into {TABLE} select {rows()} from generate_series({first}::bigint, {last}) g"


def fill(sql: psycopg.Connection, count: int) -> None:
    """Make the table, with `count` rows. The connection commits by itself."""
    sql.execute(SCHEMA)
    sql.execute(insert(1, count))
    sql.execute(f"vacuum analyze {TABLE}")


CHANGES_PER_TRANSACTION = 100
LEAST_ROWS = 10_000
"""Rows that the table must have for `change`."""


def change(sql: psycopg.Connection, present: int, transactions: int) -> None:
    """A hundred changes per transaction: 60 updates, 20 inserts, 20 deletions of the oldest.

    present: rows in the table, which are 1..present.
    """
    sql.execute(f"""
        do $$ begin
        for i in 0..{transactions - 1} loop
            insert into {TABLE} select {rows()}
                from generate_series({present} + i * 20 + 1::bigint, {present} + i * 20 + 20) g;
            update {TABLE} set amount = amount + 1, status = (status + 1) % 7,
                settled = not settled, details = details || jsonb_build_object('attempt', i)
                where id = any(array(
                    select i * 20 + 20 + g * 101 + i * 37 % 1000 from generate_series(1, 60) g));
            delete from {TABLE} where id between i * 20 + 1 and i * 20 + 20;
            commit;
        end loop;
        end $$
    """)


def canonical(given: Mapping[str, str] | None = None) -> list[str]:
    """The columns, the key first, as DuckDB's expressions that say the same however they are kept.

    JSON is compared by its members, because some peers write its text anew. given: how to read a
    column where it is not stored as its own type.
    """
    read = {name: f"{name}::{kind}" for name, kind in TYPES.items()} | dict(given or {})
    created, details = read.pop("created_at"), read.pop("details")
    members = [f"({details}) ->> '{member}'" for member in ("channel", "attempt", "vip")]
    return [*read.values(), f"epoch_us({created})", *members]
