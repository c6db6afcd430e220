"""The publications: what the slot carries of each table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import psycopg
from psycopg import sql

from mirrorlake.errors import PrerequisiteMissing
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.model.table import TableId
from mirrorlake.sources.postgresql import autovacuum
from mirrorlake.sources.postgresql.connect import Connection
from mirrorlake.sources.postgresql.foreign_text import foreign_texts
from mirrorlake.sources.postgresql.publishing import left_out, table_locks
from mirrorlake.sources.postgresql.settings import PostgresSettings
from mirrorlake.sources.table import SourceTable


@dataclass(frozen=True, slots=True)
class PublicationState:
    """A publication, and the tables it names or covers.

    partitions: it carries partitions under their own names; oids: of its tables, which another
    look finds under other names when they were renamed meanwhile.
    """

    name: str
    number: int  # oid
    inserts: bool
    updates: bool
    deletes: bool
    truncates: bool
    partitions: bool
    all_tables: bool
    owned: bool  # by our user
    comment: str | None
    tables: frozenset[TableId]
    oids: frozenset[int]


# The view of PostgreSQL waits while one of the tables is altered.
_COVERED = """
with covered(oid) as (
    select r.prrelid from pg_publication_rel r where r.prpubid = %(number)s
    union
    select c.oid from pg_publication p, pg_class c
    where p.oid = %(number)s and p.puballtables and c.oid >= 16384
    {schemas})
select n.nspname, c.relname, c.relispartition or c.relkind = 'p', c.oid::bigint
from covered m join pg_class c on c.oid = m.oid join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p') and c.relpersistence = 'p'
"""
_OF_SCHEMAS = """
    union
    select c.oid from pg_publication_namespace s join pg_class c on c.relnamespace = s.pnnspid
    where s.pnpubid = %(number)s
"""


def state_of(connection: Connection, name: str) -> PublicationState | None:
    with foreign_texts(connection):
        return _state_of(connection, name)


def _state_of(connection: Connection, name: str) -> PublicationState | None:
    row = connection.execute(
        """
        select oid::bigint, pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot, puballtables,
               pg_has_role(pubowner, 'usage'), obj_description(oid, 'pg_publication')
        from pg_publication where pubname = %s
        """,
        [name],
    ).fetchone()
    if row is None:
        return None
    schemas = _OF_SCHEMAS if connection.info.server_version >= 150_000 else ""
    tables = connection.execute(_COVERED.format(schemas=schemas), {"number": row[0]}).fetchall()
    number, inserts, updates, deletes, truncates, via_root, all_tables, owned, comment = row
    return PublicationState(
        name=name,
        number=number,
        inserts=inserts,
        updates=updates,
        deletes=deletes,
        truncates=truncates,
        partitions=not via_root and any(of_partitions for _, _, of_partitions, _ in tables),
        all_tables=all_tables,
        owned=owned,
        comment=comment,
        tables=frozenset(TableId(schema, table) for schema, table, *_ in tables),
        oids=frozenset(oid for *_, oid in tables),
    )


def create(
    connection: Connection, settings: PostgresSettings, tables: Sequence[SourceTable]
) -> list[str]:
    """Make the publications that are not there yet. Returns the names of those made.

    One that an interrupted call left is made anew. Both are made, whatever the tables are:
    PostgreSQL looks a publication up as it was at the time of each change, and before version 18
    fails when there was none, so one that is made for a later table without key comes too late.
    """
    made: list[str] = []
    with connection.transaction():
        for name, members in by_publication(settings, tables).items():
            state = state_of(connection, name)
            if state is not None and is_ours(state, settings):
                drop(connection, name)
            elif state is not None:
                continue
            try:
                _create(connection, settings, name, members)
                made.append(name)
            except PrerequisiteMissing:
                # Who was given a publication to use may not be allowed to make a second one.
                if members or name == settings.publication:
                    raise
        include(connection, settings, tables, in_use=False)
    return made


def include(
    connection: Connection,
    settings: PostgresSettings,
    tables: Sequence[SourceTable],
    *,
    in_use: bool = True,
) -> None:
    """Add the tables that their publication does not carry yet, and where it is ours, anew those
    of which it filters other rows: all of them, or none. Raises psycopg.errors.LockNotAvailable.

    in_use: a slot reads the publication already.
    """
    with connection.transaction():
        append_only = [table for table in tables if table.append_only]
        for table in _misplaced(connection, settings, append_only):
            take_out(connection, settings.publication, table.in_source)
        for name, members in by_publication(settings, tables).items():
            state = state_of(connection, name)
            if state is None:
                if members:
                    _create(connection, settings, name, members)
                continue
            there = state.tables
            missing = [t for t in members if not state.all_tables and t.in_source not in there]
            otherwise = (
                left_out.otherwise(connection, name, members)
                if is_replaceable(state, settings)
                else []
            )
            missing += otherwise
            if missing:
                if in_use and (refused := late_addition(connection, name, missing)):
                    raise refused
                for table in otherwise:
                    take_out(connection, name, table.in_source)
                _run(
                    connection,
                    addition(name, missing),
                    f"publication {name} does not contain {_named(missing)} and cannot be changed",
                    missing,
                )
        _check_conditions(connection, settings.publication)


def follow_keys(
    connection: Connection,
    settings: PostgresSettings,
    tables: Sequence[SourceTable],
    reached: CrashHook = no_crash,
) -> bool:
    """Let tables that got a key, or lost it, go from one publication of ours to the other. Returns
    whether all could: one that is locked by others waits for the next call.

    A server that may lose changes of a table that is added keeps a table without key in none.
    """
    states = {
        name: state
        for name in (settings.publication, settings.append_publication)
        if (state := state_of(connection, name)) and is_ours(state, settings)
    }
    if loses_additions(connection.info.server_version) or len(states) < 2:
        return exclude(connection, settings, [table for table in tables if table.append_only])
    is_done = True
    for table in tables:
        name = name_of(settings, table)
        (other,) = states.keys() - {name}
        is_there = table.in_source in states[name].tables
        if is_there or table.in_source not in states[other].tables or states[other].all_tables:
            continue
        add = sql.SQL("alter publication {} add table {}").format(
            sql.Identifier(name), _member(table)
        )
        try:
            with connection.transaction():
                take_out(connection, other, table.in_source)
                reached(CrashPoint.PUBLICATION_LEFT)
                _run(connection, add, f"publication {name} cannot be changed")
                _check_conditions(connection, settings.publication)
            reached(CrashPoint.PUBLICATION_MOVED)
        except psycopg.errors.LockNotAvailable:
            is_done = False
        except PrerequisiteMissing:  # the table is found to be missing in its publication
            is_done &= exclude(connection, settings, [table] if table.append_only else [])
    return is_done


def exclude(
    connection: Connection, settings: PostgresSettings, tables: Sequence[SourceTable]
) -> bool:
    """Take tables out of the publication of updates, if it is ours. Returns whether all could: one
    that is locked by others waits for the next call.

    A table without a key that stays in it cannot be updated any more by its own users.
    """
    is_done = True
    for table in _misplaced(connection, settings, tables):
        try:
            with connection.transaction():  # a failure ends no transaction of the caller
                take_out(connection, settings.publication, table.in_source)
        except psycopg.errors.LockNotAvailable:
            is_done = False
    return is_done


def _misplaced(
    connection: Connection, settings: PostgresSettings, tables: Sequence[SourceTable]
) -> list[SourceTable]:
    """Those of the tables that the publication of updates names, if it is ours."""
    state = state_of(connection, settings.publication)
    if state is None or state.all_tables or not is_ours(state, settings):
        return []
    return [table for table in tables if table.in_source in state.tables]


def take_out(connection: Connection, name: str, table: TableId) -> None:
    """Take one table out of a publication. Raises psycopg.errors.LockNotAvailable."""
    with connection.transaction():
        autovacuum.let_end(connection)
        connection.execute(removal(name, table).encode())


def removal(name: str, table: TableId) -> str:
    """The statement that takes a table out of a publication."""
    statement = sql.SQL("alter publication {} drop table only {}").format(
        sql.Identifier(name), sql.Identifier(table.schema, table.name)
    )
    return statement.as_string()


CORRECTED = {14: 18, 15: 13, 16: 9, 17: 5}
"""The release of each version from which on a table that is added to a publication loses nothing.

Before, a transaction that runs meanwhile can make the decoder remember for good that the table is
not published, and this cannot be detected from outside.
"""


def loses_additions(version: int) -> bool:
    """Whether a server of this number, as 170002, has that fault."""
    major, minor = divmod(version, 10_000)
    return minor < CORRECTED.get(major, 0)


def late_addition(
    connection: Connection, name: str, tables: Sequence[SourceTable]
) -> PrerequisiteMissing | None:
    """Why tables cannot be added to a publication that a slot reads; None when they can."""
    version = connection.info.server_version
    if not loses_additions(version):
        return None
    major, minor = divmod(version, 10_000)
    return PrerequisiteMissing(
        f"PostgreSQL {major}.{minor} can lose changes of a table that is added to a "
        f"publication in use: {_named(tables)}",
        where=f"publication {name}",
        hint=f"Upgrade to {major}.{CORRECTED[major]} or later, or run `mirrorlake reset "
        "--all` to load all tables again.",
    )


def tried_condition(
    connection: Connection, settings: PostgresSettings, table: SourceTable
) -> PrerequisiteMissing | None:
    """What would be wrong with publishing the table under its row condition; nothing is changed."""
    name = f"{settings.publication}_tried"
    try:
        with connection.transaction(force_rollback=True):
            _create(connection, settings, name, [table])
            _check_conditions(connection, name)
    except PrerequisiteMissing as error:
        return error
    return None


MISSING_IN_IDENTITY = """
select c.oid, n.nspname, c.relname, a.attname
from pg_publication p join pg_publication_rel r on r.prpubid = p.oid
join pg_depend d on d.classid = 'pg_publication_rel'::regclass and d.objid = r.oid
join pg_class c on c.oid = r.prrelid join pg_namespace n on n.oid = c.relnamespace
join pg_attribute a on a.attrelid = d.refobjid and a.attnum = d.refobjsubid
where p.pubname = {name} and p.pubupdate and d.refclassid = 'pg_class'::regclass
  and d.refobjid = c.oid and d.refobjsubid > 0 and c.relreplident <> 'f'
  and strpos(to_jsonb(r) ->> 'prqual', ':varattno ' || a.attnum || ' ') > 0
  and not exists (
    select from pg_index i, unnest(i.indkey) with ordinality k(number, place)
    where i.indrelid = c.oid and k.number = a.attnum and k.place <= i.indnkeyatts
      and case c.relreplident when 'd' then i.indisprimary else i.indisreplident end)
"""
"""The columns of row conditions that the log does not contain for old rows: of these tables
PostgreSQL rejects updates. A column may also be there because the publication lists it, which
depends on it in the same way."""


def _check_conditions(connection: Connection, publication: str) -> None:
    """Refuse a row condition on a column that the log does not contain for old rows.

    PostgreSQL would refuse every update and deletion of such a table to its own users.
    """
    query = MISSING_IN_IDENTITY.format(name="%s") + "order by nspname, relname, attname limit 1"
    with foreign_texts(connection):
        row = connection.execute(query, [publication]).fetchone()
    if row is not None:
        _oid, schema, name, column = row
        raise PrerequisiteMissing(
            f"the row condition uses {column}, which is not in the replica identity",
            where=f"table {TableId(schema, name)}",
            hint=f"Run `alter table {sql.Identifier(schema, name).as_string()} replica identity "
            "full`, or use only key columns in the condition.",
        )


def name_of(settings: PostgresSettings, table: SourceTable) -> str:
    """The publication that carries the table."""
    return settings.append_publication if table.append_only else settings.publication


def names_of(settings: PostgresSettings, tables: Iterable[SourceTable]) -> list[str]:
    """The publications that the stream reads."""
    found = by_publication(settings, tables)
    return [name for name, members in found.items() if members or name == settings.publication]


def read_by(
    connection: Connection, settings: PostgresSettings, tables: Iterable[SourceTable]
) -> list[str]:
    """The publications that the stream reads: also one that a table may come to later."""
    found = names_of(settings, tables)
    other = settings.append_publication
    is_there = other not in found and state_of(connection, other) is not None
    return [*found, other] if is_there else found


def drop(connection: Connection, name: str) -> None:
    connection.execute(sql.SQL("drop publication if exists {}").format(sql.Identifier(name)))


def by_publication(
    settings: PostgresSettings, tables: Iterable[SourceTable]
) -> dict[str, list[SourceTable]]:
    """The tables of each of the two publications."""
    found: dict[str, list[SourceTable]] = {
        settings.publication: [],
        settings.append_publication: [],
    }
    for table in tables:
        found[name_of(settings, table)].append(table)
    return found


def _create(
    connection: Connection, settings: PostgresSettings, name: str, members: Sequence[SourceTable]
) -> None:
    what = f"publication {name} cannot be created"
    _run(connection, creation(settings, name, members), what, members)
    _comment(connection, name, mark(settings))


def creation(settings: PostgresSettings, name: str, members: Sequence[SourceTable]) -> sql.Composed:
    """The statement that creates a publication of these tables."""
    # A table without key must not publish updates: they would be refused to its own users.
    is_append = name == settings.append_publication
    operations = "insert, truncate" if is_append else "insert, update, delete, truncate"
    statement = sql.SQL("create publication {}").format(sql.Identifier(name))
    if members:
        statement += sql.SQL(" for table ") + _members(members)
    return statement + sql.SQL(" with (publish = {}, publish_via_partition_root = true)").format(
        sql.Literal(operations)
    )


def addition(name: str, tables: Sequence[SourceTable]) -> sql.Composed:
    """The statement that adds tables to a publication."""
    return sql.SQL("alter publication {} add table {}").format(
        sql.Identifier(name), _members(tables)
    )


def is_ours(state: PublicationState, settings: PostgresSettings) -> bool:
    """Whether we made it, for this slot."""
    ours = mark(settings)
    return state.comment == ours or (state.comment or "").startswith(f"{ours}{_FOR}")


def is_replaceable(state: PublicationState, settings: PostgresSettings) -> bool:
    """Whether we may add its tables anew, with the row conditions of the project."""
    return is_ours(state, settings) and state.owned and not state.all_tables


def home_of(state: PublicationState, settings: PostgresSettings) -> str | None:
    """The landing zone for which we made it, if it is noted."""
    ours = f"{mark(settings)}{_FOR}"
    comment = state.comment or ""
    return comment.removeprefix(ours) if comment.startswith(ours) else None


def name_home(connection: Connection, settings: PostgresSettings, home: str) -> None:
    """Note on the publications that we made, and own, for which landing zone it was."""
    for name in (settings.publication, settings.append_publication):
        state = state_of(connection, name)
        if state is None or not is_ours(state, settings) or home_of(state, settings) == home:
            continue
        with suppress(psycopg.errors.InsufficientPrivilege):
            _comment(connection, name, f"{mark(settings)}{_FOR}{home}")


_FOR = " for the landing zone "


def _comment(connection: Connection, name: str, text: str) -> None:
    connection.execute(
        sql.SQL("comment on publication {} is {}").format(sql.Identifier(name), sql.Literal(text))
    )


def mark(settings: PostgresSettings) -> str:
    """What we write on what we make, to know it again after an interruption."""
    return f"Made by mirrorlake with replication slot {settings.slot}"


def _members(tables: Sequence[SourceTable]) -> sql.Composed:
    return sql.SQL(", ").join(_member(table) for table in tables)


def _member(table: SourceTable) -> sql.Composable:
    # Without ONLY the tables that inherit from it would be added, which have no key of it: their
    # own users could not update them any more.
    name = sql.SQL("only ") + sql.Identifier(table.in_source.schema, table.in_source.name)
    condition = table.selection.get("rows")
    if condition is None:
        return name
    # The condition is the project's own SQL, written by who may change the publication anyway.
    return name + sql.SQL(" where (") + sql.SQL(condition) + sql.SQL(")")


def _run(
    connection: Connection,
    statement: sql.SQL | sql.Composed,
    what: str,
    tables: Sequence[SourceTable] = (),
) -> None:
    """tables: those that the statement locks, if they are several."""
    try:
        with connection.transaction():
            autovacuum.let_end(connection)
            if len(tables) > 1:
                table_locks.take(connection, tables)
            connection.execute(statement)
    except psycopg.OperationalError:  # it is not about the statement
        raise
    except psycopg.Error as error:
        said = (error.diag.message_primary, error.diag.message_detail)
        reason = ": ".join(part for part in said if part) or "no reason given"
        raise PrerequisiteMissing(
            f"{what}: {reason}",
            where="PostgreSQL",
            hint=f"Run `{statement.as_string(connection)}` as a superuser.",
        ) from error


def _named(tables: Sequence[SourceTable]) -> str:
    return ", ".join(str(table.table) for table in tables)
