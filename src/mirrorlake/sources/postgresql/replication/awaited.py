"""For which transaction the server waits before it makes a slot.

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
select p.gid::text as gid, p.owner::text as owner,
       coalesce(p.database, a.datname)::text as database,
       a.pid::text as pid, a.usename::text as "user", a.application_name as application,
       extract(epoch from coalesce(p.prepared, a.xact_start))::text as began,
       format('commit prepared %L', p.gid) as commit, format('rollback prepared %L', p.gid) as back,
       format('select pg_terminate_backend(%s)', a.pid) as terminate
from pg_locks w
left join pg_prepared_xacts p on p.transaction = w.transactionid
left join pg_locks h on h.locktype = 'transactionid' and h.transactionid = w.transactionid
    and h.granted and h.pid is not null
left join pg_stat_activity a on a.pid = h.pid
where w.pid = any($1::int[]) and w.locktype = 'transactionid' and not w.granted
    and (p.gid is not null or a.pid is not null)
order by w.waitstart limit 1
"""


def awaited(connection: Connection, processes: Sequence[int]) -> AwaitedTransaction | None:
    """The transaction for which one of these server processes waits. Raises psycopg.Error."""
    listed = "{" + ",".join(map(str, processes)) + "}"
    for row in answer(connection, _AWAITED, listed, ANSWER_SECONDS):
        began = datetime.fromtimestamp(float(row["began"]), UTC) if row["began"] else None
        names = ["gid", "owner"] if row["gid"] is not None else ["pid", "user", "application"]
        facts = {name: printable(row[name]) for name in [*names, "database"] if row[name]}
        name, remedy = _session(facts, row) if row["gid"] is None else _prepared(facts, row)
        return AwaitedTransaction(name, began, printable(remedy), facts)
    return None


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
