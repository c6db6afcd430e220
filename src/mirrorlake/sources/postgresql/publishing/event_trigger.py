"""An event trigger that keeps updates of a table possible when it loses its key.

PostgreSQL rejects updates of a table without replica identity that is published with them. Capture
moves such a table to the publication of inserts within about a second, while it runs, or takes it
out if its row condition has a column that its key does not contain; the trigger does so in the
transaction that alters the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from textwrap import indent

import psycopg
from psycopg import sql

from mirrorlake.sources.base import CheckResult, CheckSeverity
from mirrorlake.sources.postgresql.connect import Connection
from mirrorlake.sources.postgresql.publishing import publication
from mirrorlake.sources.postgresql.settings import PostgresSettings, TriggerPolicy

_CHECK = "event_trigger"
_ROW_CONDITIONS = 150_000  # the first version that has them

# What fails must not fail the statement of the user: capture moves the table later.
_BODY = """
declare
    lost record;
begin
    if tg_tag = 'CREATE TABLE' and not exists (
        select from pg_event_trigger_ddl_commands() d join pg_class c on c.oid = d.objid
        where d.classid = 'pg_class'::regclass and c.relispartition and c.relpersistence = 'p'
    ) then
        return;
    end if;
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
exception when others then
    raise warning 'mirrorlake: %', sqlerrm;
end
"""
_MOVE = """\
            if lost.moves then
                execute format('alter publication %I add table only %s%s', {append_name},
                               lost.name, lost.condition);
            end if;
"""
_TAGS = (
    "ALTER TABLE", "ALTER TYPE", "CREATE SCHEMA", "CREATE TABLE", "DROP ACCESS METHOD",
    "DROP COLLATION", "DROP DOMAIN", "DROP EXTENSION", "DROP FUNCTION", "DROP INDEX",
    "DROP OPERATOR", "DROP OPERATOR CLASS", "DROP OPERATOR FAMILY", "DROP OWNED", "DROP ROUTINE",
    "DROP SCHEMA", "DROP TYPE",
)  # fmt: skip
"""What may take a key away, in order: an index also depends on what compares its columns."""

_FUNCTION = """\
create function public.{0}() returns event_trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '100ms'
as {1}"""
"""Unless `pg_temp` is named, tables of any user in it come before those of the catalog."""

_TRIGGER = """\
create event trigger {0} on ddl_command_end when tag in (
{1})
    execute function public.{0}()"""
_DROP = "drop function public.{0}() cascade"
_ENABLE = "alter event trigger {0} enable always"
"""Also where `session_replication_role` is `replica`: updates are rejected there too."""


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


def script(settings: PostgresSettings, version: int, *, replaces: bool = False) -> str:
    """The statements by which an administrator makes what `create` makes. replaces: there is a
    function of its name."""
    name = sql.Identifier(name_of(settings)).as_string()
    text = body(settings, version)
    quote = "$$" if "$$" not in text else "$mirrorlake$"
    # One that another role owns is not replaced in place: it could change what runs afterwards.
    statements = [_DROP] if replaces else []
    statements += [_FUNCTION.replace("{1}", "{quote}{text}{quote}"), _trigger(), _ENABLE]
    return "\n".join(f"{one.format(name, quote=quote, text=text)};" for one in statements)


def _trigger() -> str:
    rows = [_literals(_TAGS[at : at + 5]) for at in range(0, len(_TAGS), 5)]
    return _TRIGGER.format("{0}", indent(",\n".join(rows), " " * 8))


class KeysTrigger:
    """The trigger of a source, as its settings ask. It gives way to other sessions."""

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings, self._is_refused = settings, False

    def follow(self, connection: Connection) -> list[CheckResult]:
        """Make the trigger, or remove it: what is locked waits for the next call. Returns a warning
        where the settings ask for what is not possible."""
        settings = self._settings
        if settings.event_trigger is TriggerPolicy.NEVER:
            return _warnings(connection, settings, drop)
        if self._is_refused or not _is_missing(connection, settings):
            return []
        found = _warnings(connection, settings, create)
        if settings.event_trigger is TriggerPolicy.ALWAYS:
            return found
        # Each attempt is an error in the log of the server. `check` tells it.
        self._is_refused = bool(found)
        return []


def check(connection: Connection, settings: PostgresSettings) -> list[CheckResult]:
    """Whether the trigger is there, or our user may make it; nothing is changed."""
    if settings.event_trigger is TriggerPolicy.NEVER:
        return []
    state = publication.state_of(connection, settings.publication)
    is_theirs = state is not None and not publication.is_ours(state, settings)
    if is_theirs or _is_there(_found(connection, settings), connection, settings):
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
        return [_refused(connection, settings, error)]
    return []


def create(connection: Connection, settings: PostgresSettings) -> None:
    """Raises psycopg.errors.InsufficientPrivilege, or LockNotAvailable."""
    name = sql.Identifier(name_of(settings))
    text = sql.Literal(body(settings, connection.info.server_version))
    mark = sql.Literal(publication.mark(settings))
    drop(connection, settings)
    connection.execute(sql.SQL(_FUNCTION).format(name, text))
    connection.execute(sql.SQL("comment on function public.{}() is {}").format(name, mark))
    connection.execute(sql.SQL(_trigger()).format(name))
    connection.execute(sql.SQL(_ENABLE).format(name))


def remove(connection: Connection, settings: PostgresSettings) -> list[str]:
    """Remove what `create` made, if our user may. Returns what was removed."""
    found = _found(connection, settings)
    if found is None or not found.is_ours or _warnings(connection, settings, drop):
        return []
    return [f"event trigger {name_of(settings)}"]


def drop(connection: Connection, settings: PostgresSettings) -> bool:
    """Remove what `create` made. Returns whether it was there."""
    found = _found(connection, settings)
    if found is None or not found.is_ours:
        return False
    name = sql.Identifier(name_of(settings))
    # With the trigger that calls it. Of that name there may be another.
    connection.execute(sql.SQL(_DROP).format(name))
    return True


@dataclass(frozen=True, slots=True)
class _Found:
    """A function of our name, and what calls it. is_ours: we made it, and no administrator."""

    text: str
    is_ours: bool
    is_definer: bool
    triggers: int
    tags: Sequence[str] | None


def _found(connection: Connection, settings: PostgresSettings) -> _Found | None:
    row = connection.execute(
        """
        select p.prosrc, coalesce(obj_description(p.oid, 'pg_proc') = %s, false), p.prosecdef,
               count(e.oid), max(e.evttags)
        from pg_proc p join pg_namespace n on n.oid = p.pronamespace
        left join pg_event_trigger e on e.evtfoid = p.oid
                  and e.evtevent = 'ddl_command_end' and e.evtenabled = 'A'
        where n.nspname = 'public' and p.proname = %s and p.pronargs = 0
        group by p.oid, p.prosrc, p.prosecdef
        """,
        [publication.mark(settings), name_of(settings)],
    ).fetchone()
    return None if row is None else _Found(*row)


def _is_there(found: _Found | None, connection: Connection, settings: PostgresSettings) -> bool:
    """Whether the trigger is as it has to be, whoever made it."""
    return (
        found is not None
        and found.text == body(settings, connection.info.server_version)
        and found.is_definer
        and found.triggers == 1
        and sorted(found.tags or ()) == sorted(_TAGS)
    )


def _is_missing(connection: Connection, settings: PostgresSettings) -> bool:
    """Whether the trigger is not there as it has to be. Publications of others have none."""
    state = publication.state_of(connection, settings.publication)
    if state is None or not publication.is_ours(state, settings):
        return False
    return not _is_there(_found(connection, settings), connection, settings)


def _literals(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _refused(
    connection: Connection, settings: PostgresSettings, error: psycopg.Error
) -> CheckResult:
    name, said = name_of(settings), error.diag.message_primary
    if settings.event_trigger is TriggerPolicy.NEVER:
        identifier = sql.Identifier(name).as_string()
        return CheckResult(
            _CHECK,
            CheckSeverity.WARNING,
            f"the event trigger {name} cannot be removed: {said}",
            f"As its owner, run `drop function public.{identifier}() cascade`, which drops the "
            "trigger too.",
        )
    found = _found(connection, settings)
    return CheckResult(
        _CHECK,
        CheckSeverity.WARNING,
        f"the event trigger {name} cannot be made: {said}. Until capture has seen that a table "
        "lost its key, updates of the table are rejected",
        "Let a superuser run what `mirrorlake check --sql` prints about it, or set "
        "source.event_trigger to false.",
        script=script(settings, connection.info.server_version, replaces=found is not None),
    )
