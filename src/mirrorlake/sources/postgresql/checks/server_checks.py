"""What must hold before capture, and keep holding: each as a finding with its remedy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from mirrorlake.errors import printable
from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.sources.base import REPAIR, CheckResult, CheckSeverity
from mirrorlake.sources.postgresql.connect import Connection, may_replicate
from mirrorlake.sources.postgresql.foreign_text import foreign_texts
from mirrorlake.sources.postgresql.publishing import publication
from mirrorlake.sources.postgresql.refusals import NEEDED_FUNCTIONS
from mirrorlake.sources.postgresql.replication import slot as slots
from mirrorlake.sources.postgresql.settings import PostgresSettings
from mirrorlake.sources.table import SourceTable

OLDEST, NEWEST = 14, 18
KEEP_FREE = 1 << 30
"""Bytes of WAL that a slot may still hold back before a warning becomes an error."""

LONG_TRANSACTION = timedelta(minutes=10)

_OK, _WARNING, _ERROR = CheckSeverity.OK, CheckSeverity.WARNING, CheckSeverity.ERROR


def server(connection: Connection, settings: PostgresSettings) -> Iterator[CheckResult]:
    """The server and the rights of our user in it."""
    yield _version(connection)
    yield _wal_level(connection)
    yield from _room(connection, settings)
    yield _rights(connection)
    yield _retention(connection)
    yield from _transactions(connection)


def watch(
    connection: Connection, settings: PostgresSettings, tables: Sequence[SourceTable]
) -> Iterator[CheckResult]:
    """What would lose changes silently: the slot and what the publications carry."""
    yield _slot(connection, settings)
    for name in publication.names_of(settings, tables):
        members = [
            t for t in tables if bool(t.append_only) == (name == settings.append_publication)
        ]
        yield from _publication(connection, settings, name, members)


def _version(connection: Connection) -> CheckResult:
    number = connection.info.server_version
    major = number // 10_000
    text = f"PostgreSQL {major}.{number % 10_000}"
    if major < OLDEST:
        return CheckResult(
            "version", _ERROR, f"{text} is too old", f"Use PostgreSQL {OLDEST} to {NEWEST}."
        )
    if major > NEWEST:
        return CheckResult(
            "version", _WARNING, f"{text} has not been tested", "Please report the result."
        )
    return CheckResult("version", _OK, text)


def _setting(connection: Connection, name: str) -> str:
    row = connection.execute("select current_setting(%s)", [name]).fetchone()
    return str(row[0]) if row else ""


def _wal_level(connection: Connection) -> CheckResult:
    level = _setting(connection, "wal_level")
    if level == "logical":
        return CheckResult("wal_level", _OK, "wal_level is logical")
    return CheckResult(
        "wal_level",
        _ERROR,
        f"wal_level is {level}, but logical decoding requires logical",
        "Run `alter system set wal_level = logical` and restart PostgreSQL.",
    )


def _room(connection: Connection, settings: PostgresSettings) -> Iterator[CheckResult]:
    """A slot and a sender for the stream, and one more of each while tables are loaded."""
    ours = slots.slot_state(connection, settings.slot) is not None
    for name, view in (
        ("max_replication_slots", "pg_replication_slots"),
        ("max_wal_senders", "pg_stat_replication"),
    ):
        most = int(_setting(connection, name))
        row = connection.execute(f"select count(*) from {view}").fetchone()  # noqa: S608
        free = most - (row[0] if row else 0)
        needed = 1 if ours else 2
        if free >= needed:
            yield CheckResult(name, _OK, f"{free} of {most} are free")
        else:
            yield CheckResult(
                name,
                _ERROR,
                f"{free} of {most} are free, but {needed} are needed",
                f"Run `alter system set {name} = {most + needed}` and restart PostgreSQL, or "
                "drop slots that nobody reads.",
            )


def _rights(connection: Connection) -> CheckResult:
    user = connection.info.user
    if not may_replicate(connection):
        return CheckResult(
            "rights",
            _ERROR,
            f"user {user} may not replicate",
            f'Run `alter role "{user}" with replication` as a superuser.',
        )
    return CheckResult("rights", _OK, f"user {user} may replicate")


def functions(connection: Connection) -> CheckResult | None:
    """The functions that our user needs and may not execute; without these, other checks fail.
    PostgreSQL lets everybody execute them; an administrator may have revoked that."""
    rows = connection.execute(
        "select format('%%s(%%s)', proname, pg_get_function_identity_arguments(oid)) "
        "from pg_proc where pronamespace = 'pg_catalog'::regnamespace and proname = any(%s) "
        "and not has_function_privilege(oid, 'execute') order by 1",
        [list(NEEDED_FUNCTIONS)],
    )
    missing = ", ".join(str(name) for (name,) in rows)
    if not missing:
        return None
    user = connection.info.user
    return CheckResult(
        "rights",
        _ERROR,
        f"user {user} may not execute {missing}",
        f'Run `grant execute on function {missing} to "{user}"` as a superuser.',
    )


def _retention(connection: Connection) -> CheckResult:
    limit = _setting(connection, "max_slot_wal_keep_size")
    if limit == "-1":
        return CheckResult(
            "max_slot_wal_keep_size",
            _WARNING,
            "a slot may retain WAL without limit: while capture is stopped, WAL fills the disk",
            "Set max_slot_wal_keep_size to an amount that the disk has room for, and watch "
            "`mirrorlake status`.",
        )
    return CheckResult(
        "max_slot_wal_keep_size",
        _OK,
        f"a slot may retain {limit} of WAL; if capture falls further behind, changes are lost "
        "and tables must be reloaded",
    )


_OPEN = """
select format('the transaction prepared as %%L in database %%I', gid, database), prepared,
       format('rollback prepared %%L', gid)
from pg_prepared_xacts where prepared < now() - %(longest)s
union all
select format('the transaction of process %%s of %%I in database %%I', pid, usename, datname),
       xact_start, format('select pg_terminate_backend(%%s)', pid)
from pg_stat_activity
where xact_start < now() - %(longest)s and backend_xid is not null
  and backend_type = 'client backend'
order by 2
"""


def _transactions(connection: Connection) -> Iterator[CheckResult]:
    """Transactions that have written, in any database, and do not end. Of those of other users
    only prepared ones are seen, unless our user may see all."""
    with foreign_texts(connection):
        found = connection.execute(_OPEN, {"longest": LONG_TRANSACTION}).fetchall()
    for name, since, statement in found:
        yield CheckResult(
            "transactions",
            _WARNING,
            f"{printable(name)} has been open since {since:%Y-%m-%d %H:%M:%S %Z}: a new "
            "replication slot waits for its end, and WAL is retained from its start",
            f"Commit it there, or run `{printable(statement)}` there.",
        )
    if not found:
        minutes = LONG_TRANSACTION.total_seconds() / 60
        text = f"no transaction has been open for longer than {minutes:.0f} minutes"
        yield CheckResult("transactions", _OK, text)


def _slot(connection: Connection, settings: PostgresSettings) -> CheckResult:
    state = slots.slot_state(connection, settings.slot)
    if state is None:
        return CheckResult(
            "slot",
            _ERROR,
            f"replication slot {settings.slot} no longer exists",
            f"Changes since its last position are lost. {REPAIR}",
        )
    if state.status == "lost":
        return CheckResult(
            "slot",
            _ERROR,
            f"replication slot {settings.slot} was invalidated: it retained more WAL than "
            "max_slot_wal_keep_size",
            f"Raise the limit first. {REPAIR}",
        )
    if state.status == "unreserved" or (state.safe_bytes or KEEP_FREE) < KEEP_FREE // 4:
        return CheckResult(
            "slot",
            _WARNING,
            f"replication slot {settings.slot} is close to its limit: "
            f"{max(state.safe_bytes or 0, 0) >> 20} MiB of WAL are left",
            "Let capture catch up, or raise max_slot_wal_keep_size now.",
        )
    return CheckResult("slot", _OK, f"replication slot {settings.slot} is {state.status}")


def _publication(
    connection: Connection, settings: PostgresSettings, name: str, members: Sequence[SourceTable]
) -> Iterator[CheckResult]:
    keyed = name == settings.publication
    state = publication.state_of(connection, name)
    if state is None:
        yield CheckResult(
            "publication",
            _ERROR,
            f"publication {name} no longer exists: changes of its tables are not captured",
            f"Changes since it was dropped are lost. {REPAIR}",
        )
        return
    # A table without key must not publish updates: they would be refused to its own users.
    operations = "insert, update, delete, truncate" if keyed else "insert, truncate"
    if not (state.inserts and state.truncates and (not keyed or (state.updates and state.deletes))):
        yield CheckResult(
            "publication",
            _ERROR,
            f"publication {name} does not publish all operations",
            f"Run `alter publication \"{name}\" set (publish = '{operations}')`. Changes that it "
            f"did not publish are lost. {REPAIR}",
        )
    if state.partitions:
        yield CheckResult(
            "publication",
            _ERROR,
            f"publication {name} publishes partitions under their own names",
            f'Run `alter publication "{name}" set (publish_via_partition_root = true)`, then '
            "run `mirrorlake reset TABLE` for each partitioned table to reload it.",
        )
    is_ours = publication.is_ours(state, settings)
    # Where others add the table again, such a server loses its changes without a word.
    loses = not is_ours and publication.loses_additions(connection.info.server_version)
    kind = None if loses else SchemaChangeKind.PUBLICATION_CHANGED
    for table in members:
        if int(table.identity) not in state.oids:
            if refused := publication.late_addition(connection, name, [table]):
                yield CheckResult("version", _ERROR, refused.what, refused.hint, table.table)
                continue
            yield CheckResult(
                "publication",
                _ERROR,
                f"publication {name} no longer contains the table: its changes are lost",
                f"Run `mirrorlake repair {table.table}` to compare it with the source.",
                table.table,
                kind,
                ""
                if is_ours
                else f"Run `{publication.addition(name, [table]).as_string(connection)}`.",
            )
