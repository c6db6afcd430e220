"""The replication slot: what it is, making and dropping it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from mirrorlake.errors import SlotInUse, printable
from mirrorlake.model.position import Lsn
from mirrorlake.sources.base import RetainedLog
from mirrorlake.sources.postgresql.connect import Connection, simple_query


@dataclass(frozen=True, slots=True)
class SlotState:
    """Of a row of pg_replication_slots. `status`: reserved, extended, unreserved or lost; failover:
    whether standbys may copy it, None where the server knows no such slots; two_phase: whether it
    sends transactions when they are prepared."""

    active_pid: int | None
    confirmed: Lsn | None
    status: str
    safe_bytes: int | None
    failover: bool | None
    two_phase: bool


def slot_state(connection: Connection, name: str) -> SlotState | None:
    row = connection.execute(
        """
        select active_pid, confirmed_flush_lsn::text, coalesce(wal_status, 'lost'), safe_wal_size,
               (to_jsonb(s) ->> 'failover')::boolean,
               coalesce((to_jsonb(s) ->> 'two_phase')::boolean, false)
        from pg_replication_slots s where slot_name = %s
        """,
        [name],
    ).fetchone()
    if row is None:
        return None
    pid, confirmed, *others = row
    return SlotState(pid, Lsn.parse(confirmed) if confirmed else None, *others)


def in_use(connection: Connection, name: str, advice: str) -> SlotInUse:
    """The error for a slot that another connection reads: which, from where, since when. advice:
    the first sentence of what to do."""
    row = connection.execute(
        """
        select a.pid, a.application_name, coalesce(a.client_addr::text, 'this machine'),
               to_char(a.backend_start at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS')
        from pg_replication_slots s join pg_stat_activity a on a.pid = s.active_pid
        where s.slot_name = %s
        """,
        [name],
    ).fetchone()
    if row is None:  # it has ended meanwhile
        return SlotInUse(f"replication slot {name} was in use", where="PostgreSQL")
    pid, program, address, since = row
    return SlotInUse(
        f"replication slot {name} is still read by server process {pid}, for "
        f"{printable(program or 'a program')} at {address} since {since} UTC",
        where="PostgreSQL",
        hint=f"{advice} If the program hangs, end it, or run `select pg_terminate_backend({pid})`.",
    )


def retained(connection: Connection, name: str) -> RetainedLog | None:
    """The WAL that the server keeps for the slot; None without it, or once it is lost."""
    row = connection.execute(
        "select pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint, safe_wal_size "
        "from pg_replication_slots where slot_name = %s",
        [name],
    ).fetchone()
    if row is None or row[0] is None:
        return None
    return RetainedLog(int(row[0]), None if row[1] is None else int(row[1]))


def create_slot(
    replication: Connection, name: str, *, temporary: bool, failover: bool = False
) -> tuple[Lsn, str]:
    """Make a slot. Returns its consistent point and the name of its exported snapshot.

    The snapshot lives until the next command on this connection. failover: standbys may copy the
    slot, where the server knows that.
    """
    kind = "TEMPORARY LOGICAL" if temporary else "LOGICAL"
    # The form without parentheses is understood by every version from 10 on.
    options = "EXPORT_SNAPSHOT"
    if failover and not temporary and knows_failover(replication):
        options = "(SNAPSHOT 'export', FAILOVER)"
    (row,) = simple_query(
        replication, f"CREATE_REPLICATION_SLOT {_quoted(name)} {kind} pgoutput {options}"
    )
    return Lsn.parse(row["consistent_point"] or ""), row["snapshot_name"] or ""


def current_time(replication: Connection) -> datetime:
    """By the clock of the server, which also gives the commit times."""
    (row,) = simple_query(
        replication, "select (extract(epoch from clock_timestamp()) * 1000000)::bigint as micros"
    )
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=int(row["micros"] or 0))


def knows_failover(connection: Connection) -> bool:
    """Whether standbys of the server can have copies of slots."""
    return connection.info.server_version >= 170_000


def takes_both(connection: Connection) -> bool:
    """Whether standbys can have copies of slots with two_phase."""
    return connection.info.server_version >= 180_000


def set_failover(replication: Connection, name: str, *, failover: bool) -> None:
    """Let standbys copy the slot, or not. It must not be in use."""
    word = "true" if failover else "false"
    simple_query(replication, f"ALTER_REPLICATION_SLOT {_quoted(name)} (FAILOVER {word})")


def drop_unused(connection: Connection, name: str) -> None:
    """Remove the slot, if it is there, once the server has seen that its reader is gone. Raises
    SlotInUse if it still has one after ten seconds."""
    if not freed(connection, name):
        raise in_use(connection, name, "Stop it, and run the command again.")
    drop_slot(connection, name)


def freed(connection: Connection, name: str) -> bool:
    """Wait until the server has seen that the reader of a slot is gone, for ten seconds. Returns
    whether it is."""
    for _ in range(_ENDING_SECONDS * _LOOKS_PER_SECOND):
        state = slot_state(connection, name)
        if state is None or not state.active_pid:
            return True
        connection.execute("select pg_sleep(%s)", [1 / _LOOKS_PER_SECOND])
    return False


_ENDING_SECONDS = 10
_LOOKS_PER_SECOND = 10


def drop_slot(connection: Connection, name: str) -> None:
    """Remove the slot, if it is there."""
    connection.execute(
        "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s",
        [name],
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
