"""For which transactions the server waits before it makes a slot.

A new slot begins behind all transactions that have written and are open. The server waits for them
one after another, also for those of other databases, and for prepared ones, which end only when
somebody ends them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from mirrorlake.errors import printable
from mirrorlake.sources.base import AwaitedTransaction
from mirrorlake.sources.postgresql.connect import Connection, answer

ANSWER_SECONDS = 2

# Without what a session does: a query may hold values of rows. Of sessions of other users an
# ordinary user sees no times.
_AWAITED = """
select o.id, p.gid::text as gid, p.owner::text as owner,
       coalesce(p.database, a.datname)::text as database,
       a.pid::text as pid, a.usename::text as "user", a.application_name as application,
       extract(epoch from coalesce(p.prepared, a.xact_start))::text as began,
       format('commit prepared %L', p.gid) as commit, format('rollback prepared %L', p.gid) as back,
       format('select pg_terminate_backend(%s)', a.pid) as terminate
from {open}
left join pg_prepared_xacts p on p.transaction = o.xid
left join pg_locks h on h.locktype = 'transactionid' and h.transactionid = o.xid
    and h.granted and h.pid is not null
left join pg_stat_activity a on a.pid = h.pid
order by o.since, coalesce(p.prepared, a.xact_start)
"""
_WAITED_FOR = """(
    select transactionid as xid, null as id, waitstart as since from pg_locks
    where pid = any($1::int[]) and locktype = 'transactionid' and not granted
) o"""
# A transaction has a lock on its own number, once it has one, and on those of its subtransactions.
_OPEN = """(
    select distinct on (virtualtransaction) transactionid as xid, virtualtransaction as id,
           null as since
    from pg_locks where locktype = $1 and mode = 'ExclusiveLock' and granted
    order by virtualtransaction, age(transactionid) desc
) o"""


def awaited(connection: Connection, processes: Sequence[int]) -> AwaitedTransaction | None:
    """The transaction for which one of these server processes waits. Raises psycopg.Error."""
    listed = "{" + ",".join(map(str, processes)) + "}"
    rows = answer(connection, _AWAITED.format(open=_WAITED_FOR), listed, ANSWER_SECONDS)
    return next(filter(None, map(_transaction, rows)), None)


def open_transactions(connection: Connection) -> dict[str, AwaitedTransaction | None]:
    """Those that have written and are open, as in `Source`. Raises psycopg.Error."""
    query = _AWAITED.format(open=_OPEN)
    rows = answer(connection, query, "transactionid", ANSWER_SECONDS)
    return {str(row["id"]): _transaction(row) for row in rows}


def _transaction(row: dict[str, str | None]) -> AwaitedTransaction | None:
    """None where nobody is known to have it: it may just have ended."""
    if row["gid"] is None and row["pid"] is None:
        return None
    began = datetime.fromtimestamp(float(row["began"]), UTC) if row["began"] else None
    names = ["gid", "owner"] if row["gid"] is not None else ["pid", "user", "application"]
    facts = {name: printable(row[name]) for name in [*names, "database"] if row[name]}
    name, remedy = _session(facts, row) if row["gid"] is None else _prepared(facts, row)
    return AwaitedTransaction(name, began, printable(remedy), facts)


def _prepared(facts: dict[str, str], row: dict[str, str | None]) -> tuple[str, str]:
    name = f"the transaction prepared as '{facts['gid']}' by {facts['owner']}"
    remedy = f"Run `{row['commit']}` or `{row['back']}` there."
    return f"{name} in database {facts['database']}", remedy


def _session(facts: dict[str, str], row: dict[str, str | None]) -> tuple[str, str]:
    of = f" of {facts['user']}" if "user" in facts else ""
    program = f", {facts['application']}," if "application" in facts else ""
    where = f" in database {facts['database']}" if "database" in facts else ""
    return (
        f"the transaction of process {facts['pid']}{program}{of}{where}",
        f"Commit it there, or run `{row['terminate']}`.",
    )
