"""Changes that PostgreSQL rejects to the users of a table because we publish it.

A table that is published with updates needs a replica identity, which contains the columns of its
row condition. It may lose that at any time, also when it is not selected any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import psycopg

from mirrorlake.errors import PrerequisiteMissing
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import CheckResult, CheckSeverity
from mirrorlake.sources.postgresql.connect import Connection, is_found
from mirrorlake.sources.postgresql.foreign_text import foreign_texts
from mirrorlake.sources.postgresql.publishing import publication
from mirrorlake.sources.postgresql.settings import PostgresSettings
from mirrorlake.sources.table import SourceTable

# As PostgreSQL decides whether it rejects an update of a published table: a partition has an
# identity of its own.
_REJECTED = """
with recursive tree(root, oid) as (
    select r.prrelid, r.prrelid
    from pg_publication p join pg_publication_rel r on r.prpubid = p.oid
    where p.pubname = {name} and (p.pubupdate or p.pubdelete)
    union all
    select t.root, i.inhrelid from tree t join pg_class p on p.oid = t.oid and p.relkind = 'p'
    join pg_inherits i on i.inhparent = t.oid)
select n.nspname::text, c.relname::text
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.oid in (
    select t.root from tree t join pg_class l on l.oid = t.oid and l.relkind = 'r'
    where l.relreplident <> 'f' and not exists (
        select from pg_index i where i.indrelid = l.oid and i.indimmediate and i.indisvalid
        and case l.relreplident when 'd' then i.indisprimary when 'i' then i.indisreplident end))
or c.oid in (select m.oid from ({missing}) m)
"""


GONE_OR_LOCKED = (
    psycopg.errors.LockNotAvailable,
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedObject,
)
"""Waits for the next call, or somebody has done it meanwhile."""


def _rejected(name: str) -> str:
    """The query with this placeholder for the name of the publication."""
    missing = publication.MISSING_IN_IDENTITY.format(name=name)
    return _REJECTED.format(name=name, missing=missing)


def rejects_changes(connection: Connection, settings: PostgresSettings) -> bool:
    """Whether PostgreSQL rejects updates of a table for our publication of updates. Gives a stalled
    connection up."""
    name = settings.publication
    if not is_found(connection, _rejected("$1"), name):
        return False
    state = publication.state_of(connection, name)
    return state is not None and publication.is_ours(state, settings)


def include(connection: Connection, settings: PostgresSettings, table: SourceTable) -> None:
    """Add a table to its publication, unless PostgreSQL would reject updates of it. Raises
    PrerequisiteMissing."""
    with connection.transaction():
        publication.include(connection, settings, [table])
        if table.in_source in _found(connection, settings):
            raise PrerequisiteMissing(
                "PostgreSQL would reject updates of the table",
                where=f"publication {settings.publication}",
                hint="Add a primary key.",
            )


def _found(connection: Connection, settings: PostgresSettings) -> list[TableId]:
    """The tables of the publication of updates of which PostgreSQL rejects them."""
    query = _rejected("%(name)s")
    with foreign_texts(connection):
        rows = connection.execute(query, {"name": settings.publication}).fetchall()
    return [TableId(schema, table) for schema, table in rows]


def take_out(
    connection: Connection, settings: PostgresSettings, selected: Sequence[SourceTable]
) -> Iterator[CheckResult]:
    """Take the tables out of our publication of which updates are rejected, and tell it. One that
    is locked by others waits for the next call, and one that only others may take out is named.

    selected: as they are now. What goes to the publication of inserts is left to `follow_keys`.
    """
    if not rejects_changes(connection, settings):
        return
    moving = {table.in_source for table in selected if table.append_only}
    taken = {table.in_source for table in selected} - moving
    name = settings.publication
    for found in _found(connection, settings):
        if found in moving:
            continue
        try:
            publication.take_out(connection, name, found)
        except GONE_OR_LOCKED:
            continue
        except psycopg.errors.InsufficientPrivilege:
            yield CheckResult(
                "publication",
                CheckSeverity.WARNING,
                f"PostgreSQL rejects updates of {found} for publication {name}: its "
                "replica identity is missing, or lacks a column of its row condition",
                f"As the owner of the publication, run `{publication.removal(name, found)}`.",
            )
            continue
        yield CheckResult(
            "publication",
            CheckSeverity.WARNING,
            f"{found} was taken out of publication {name}, for which PostgreSQL rejected updates "
            "of it: its replica identity is missing, or lacks a column of its row condition",
            f"Run `mirrorlake repair {found}` when it has one again."
            if found in taken
            else f"It is not selected. If you select it again, run `mirrorlake repair {found}`.",
        )
