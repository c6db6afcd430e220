"""Whether our user may create the publications, and add the selected tables to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mirrorlake.model.table import TableId
from mirrorlake.sources.base import CheckResult, CheckSeverity
from mirrorlake.sources.postgresql.catalog import CatalogTable
from mirrorlake.sources.postgresql.connect import Connection
from mirrorlake.sources.postgresql.publishing import publication
from mirrorlake.sources.postgresql.settings import PostgresSettings
from mirrorlake.sources.table import SourceTable

MOST_NAMES = 3

Catalog = Mapping[TableId, CatalogTable]


def publishing(
    connection: Connection,
    settings: PostgresSettings,
    catalog: Sequence[CatalogTable],
    selected: Sequence[SourceTable],
) -> Iterator[CheckResult]:
    """An error for each publication, database or table for which our user lacks a right."""
    by_name = {table.table: table for table in catalog}
    for name, members in publication.by_publication(settings, selected).items():
        state = publication.state_of(connection, name)
        if state is not None:
            yield from _addition(connection, state, by_name, members)
        elif members or name == settings.publication:
            yield from _creation(connection, settings, name, by_name, members)


def _creation(
    connection: Connection,
    settings: PostgresSettings,
    name: str,
    catalog: Catalog,
    members: Sequence[SourceTable],
) -> Iterator[CheckResult]:
    user = connection.info.user
    refused = f"user {user} may not create publication {name}"
    foreign = [catalog[t.in_source] for t in members if not catalog[t.in_source].owned]
    statement = publication.creation(settings, name, members).as_string(connection)
    administrator = f"`{statement}` as a superuser"
    # Membership in the role of a superuser would make a superuser of our user.
    if any(table.superuser for table in foreign):
        yield _error(f"{refused}: it does not own {_named(foreign)}", f"Run {administrator}.")
        return
    row = connection.execute(
        "select current_database()::text, has_database_privilege(current_database(), 'create'), "
        "current_setting('transaction_read_only')::boolean"
    ).fetchone()
    database, may_create, only_reads = row or ("", False, False)
    if only_reads:
        yield _error(
            f"{refused}: its transactions are read-only",
            f'Run `alter role "{user}" set default_transaction_read_only = off`, or '
            f"{administrator}.",
        )
    if not may_create:
        yield _error(
            f"{refused} in database {database}",
            f'Run `grant create on database "{database}" to "{user}"`, or {administrator}.',
        )
    for owner in sorted({table.owner for table in foreign}):
        owned = [table for table in foreign if table.owner == owner]
        yield _error(
            f"{refused}: it does not own {_named(owned)}",
            f"Run {_membership(connection, owner)}, or {administrator}.",
        )


def _membership(connection: Connection, owner: str) -> str:
    """The statements that let our user act as the owner of tables, in backticks.

    Whether a member has the rights of the role is an option of the user before PostgreSQL 16, and
    of each membership since then. PostgreSQL documentation: "Role Membership".
    """
    user = connection.info.user
    ((is_member, inherits),) = connection.execute(
        "select pg_has_role(%s, 'member'), rolinherit from pg_roles where rolname = current_user",
        [owner],
    ).fetchall()
    grant, inherit = f'grant "{owner}" to "{user}"', f'alter role "{user}" inherit'
    if not is_member and inherits:
        return f"`{grant}`"
    if connection.info.server_version >= _BY_MEMBERSHIP:
        return f"`{grant} with inherit true`"
    return f"`{inherit}`" if is_member else f"`{grant}` and `{inherit}`"


_BY_MEMBERSHIP = 160_000


def _addition(
    connection: Connection,
    state: publication.PublicationState,
    catalog: Catalog,
    members: Sequence[SourceTable],
) -> Iterator[CheckResult]:
    for table in members:
        is_published = state.all_tables or table.in_source in state.tables
        if is_published or (state.owned and catalog[table.in_source].owned):
            continue
        what = "the table" if state.owned else "the publication"
        statement = publication.addition(state.name, [table]).as_string(connection)
        yield CheckResult(
            "owner",
            CheckSeverity.ERROR,
            f"user {connection.info.user} may not add the table to publication {state.name}: it "
            f"does not own {what}",
            f"Run `{statement}` as a superuser.",
            table.table,
        )


def _named(tables: Sequence[CatalogTable]) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(str(table.table) for table in tables[:MOST_NAMES])
    more = len(tables) - MOST_NAMES
    return f"{shown} and {more} more tables" if more > 0 else shown


def _error(message: str, remedy: str) -> CheckResult:
    return CheckResult("publication", CheckSeverity.ERROR, message, remedy)
