"""An event trigger that keeps updates of a table possible when it loses its key.

PostgreSQL rejects updates of a table without replica identity that is published with them. Capture
moves such a table to the publication of inserts within about a second, while it runs, or takes it
out if its row condition has a column that its key does not contain; the trigger does so in the
transaction that alters the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from textwrap import indent

import psycopg
from psycopg import sql

from mirrorlake.sources.base import CheckResult, CheckSeverity
from mirrorlake.sources.postgresql.connect import Connection
from mirrorlake.sources.postgresql.publishing import publication
from mirrorlake.sources.postgresql.settings import PostgresSettings

_CHECK = "event_trigger"
_ROW_CONDITIONS = 150_000  # the first version that has them

# What fails must not fail the statement of the user: capture moves the table later.
_BODY = """
declare
    lost record;
begin
    for lost in
        with recursive tree(root, oid, condition) as (
            select r.prrelid, r.prrelid, {condition}
            from pg_publication p join pg_publication_rel r on r.prpubid = p.oid
            where p.pubname = {name}
            union all
            select t.root, i.inhrelid, t.condition
            from tree t join pg_class p on p.oid = t.oid and p.relkind = 'p'
            join pg_inherits i on i.inhparent = t.oid
        ), lost_identity(root, condition) as (
            select t.root, ' where (' || t.condition || ')'
            from tree t join pg_class l on l.oid = t.oid and l.relkind = 'r'
            where l.relreplident <> 'f' and not exists (
                select from pg_index i
                where i.indrelid = l.oid and i.indimmediate and i.indisvalid and case l.relreplident
                    when 'd' then i.indisprimary when 'i' then i.indisreplident end)
        ), lost_condition(root) as (
            select m.oid from ({missing}
            ) m
        )
        select distinct root::regclass::text as name, condition, true as moves from lost_identity
        union
        select root::regclass::text, null, false from lost_condition
        where root not in (select root from lost_identity)
    loop
        begin
            execute format('alter publication %I drop table only %s', {name}, lost.name);
{move}        exception when others then
            raise warning 'mirrorlake: %', sqlerrm;
            exit when sqlstate = '55P03';  -- others may be locked as well
        end;
    end loop;
end
"""
_MOVE = """\
            if lost.moves then
                execute format('alter publication %I add table only %s%s', {append_name},
                               lost.name, lost.condition);
            end if;
"""
_TAGS = (
    "'ALTER TABLE', 'ALTER TYPE', 'CREATE TABLE', 'DROP INDEX', 'DROP TYPE', 'DROP DOMAIN', "
    "'DROP COLLATION', 'DROP OPERATOR CLASS', 'DROP SCHEMA', 'DROP EXTENSION', 'DROP OWNED'"
)
_SETTINGS = "set search_path = pg_catalog, pg_temp set lock_timeout = '100ms'"
"""Unless `pg_temp` is named, tables of any user in it come before those of the catalog."""


def name_of(settings: PostgresSettings) -> str:
    """The name of the event trigger, and of its function in schema `public`."""
    return f"{settings.publication}_keys"


def body(settings: PostgresSettings, version: int) -> str:
    """The function in PL/pgSQL, for a server of this number."""
    literals = {
        "name": sql.Literal(settings.publication).as_string(),
        "append_name": sql.Literal(settings.append_publication).as_string(),
    }
    has_conditions = version >= _ROW_CONDITIONS
    condition = "pg_get_expr(r.prqual, r.prrelid)" if has_conditions else "null::text"
    # Where an added table can lose changes, it is in no publication, as `follow_keys` leaves it.
    move = "" if publication.loses_additions(version) else _MOVE.format(**literals)
    missing = indent(publication.MISSING_IN_IDENTITY.format(**literals).rstrip(), " " * 16)
    return _BODY.format(**literals, condition=condition, missing=missing, move=move)


def follow(connection: Connection, settings: PostgresSettings) -> list[CheckResult]:
    """Make the trigger, or remove it, as the settings ask. It gives way to other sessions: what
    is locked waits for the next call. Returns a warning where that is not possible."""
    if not settings.event_trigger:
        return _warnings(connection, settings, drop)
    missing = _is_missing(connection, settings)
    return _warnings(connection, settings, create) if missing else []


def check(connection: Connection, settings: PostgresSettings) -> list[CheckResult]:
    """Whether our user may make the trigger that the settings ask for; nothing is changed."""
    if not settings.event_trigger:
        return []
    return _warnings(connection, settings, create, force_rollback=True)


def _warnings(
    connection: Connection,
    settings: PostgresSettings,
    change: Callable[[Connection, PostgresSettings], object],
    *,
    force_rollback: bool = False,
) -> list[CheckResult]:
    try:
        with connection.transaction(force_rollback=force_rollback):
            change(connection, settings)
    except psycopg.errors.LockNotAvailable:
        return []
    except psycopg.OperationalError:  # it is not about the statement
        raise
    except psycopg.Error as error:
        return [_refused(settings, error)]
    return []


def create(connection: Connection, settings: PostgresSettings) -> None:
    """Raises psycopg.errors.InsufficientPrivilege, or LockNotAvailable."""
    name = sql.Identifier(name_of(settings))
    text = sql.Literal(body(settings, connection.info.server_version))
    drop(connection, settings)
    connection.execute(
        sql.SQL(
            "create function public.{}() returns event_trigger language plpgsql security definer "
            f"{_SETTINGS} as {{}}"
        ).format(name, text)
    )
    mark = sql.Literal(publication.mark(settings))
    connection.execute(sql.SQL("comment on function public.{}() is {}").format(name, mark))
    connection.execute(
        sql.SQL(
            f"create event trigger {{0}} on ddl_command_end when tag in ({_TAGS}) "
            "execute function public.{0}()"
        ).format(name)
    )


def remove(connection: Connection, settings: PostgresSettings) -> list[str]:
    """Remove what `create` made, if our user may. Returns what was removed."""
    if _made(connection, settings) is None or _warnings(connection, settings, drop):
        return []
    return [f"event trigger {name_of(settings)}"]


def drop(connection: Connection, settings: PostgresSettings) -> bool:
    """Remove what `create` made. Returns whether it was there."""
    if _made(connection, settings) is None:
        return False
    name = sql.Identifier(name_of(settings))
    # With the trigger that calls it. Of that name there may be another.
    connection.execute(sql.SQL("drop function public.{}() cascade").format(name))
    return True


def _is_missing(connection: Connection, settings: PostgresSettings) -> bool:
    """Whether the trigger is not there as it has to be. Publications of others have none."""
    state = publication.state_of(connection, settings.publication)
    if state is None or not publication.is_ours(state, settings):
        return False
    found = _made(connection, settings)
    return found is None or list(found) != [body(settings, connection.info.server_version), 1]


def _made(connection: Connection, settings: PostgresSettings) -> Sequence[object] | None:
    """The text of our function, and the number of its triggers; None if we made none."""
    return connection.execute(
        """
        select p.prosrc, (select count(*) from pg_event_trigger e where e.evtfoid = p.oid)
        from pg_proc p join pg_namespace n on n.oid = p.pronamespace
        where n.nspname = 'public' and p.proname = %s and p.pronargs = 0
          and obj_description(p.oid, 'pg_proc') = %s
        """,
        [name_of(settings), publication.mark(settings)],
    ).fetchone()


def _refused(settings: PostgresSettings, error: psycopg.Error) -> CheckResult:
    name = name_of(settings)
    if settings.event_trigger:
        what = "made"
        remedy = (
            "Let a role mirror that may create event triggers, such as a superuser, or remove "
            "source.event_trigger."
        )
    else:
        what = "removed"
        identifier = sql.Identifier(name).as_string()
        remedy = (
            f"As its owner, run `drop function public.{identifier}() cascade`, which drops the "
            "trigger too."
        )
    message = f"the event trigger {name} cannot be {what}: {error.diag.message_primary}"
    return CheckResult(_CHECK, CheckSeverity.WARNING, message, remedy)
