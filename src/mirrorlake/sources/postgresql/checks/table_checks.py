"""What must hold for each selected table: its columns, its identity, what we may do with it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from psycopg import sql

from mirrorlake.errors import NotLogged, PublishedOtherwise, printable
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import CheckResult, CheckSeverity
from mirrorlake.sources.postgresql.catalog import CatalogTable
from mirrorlake.sources.postgresql.checks.publishing_checks import publishing
from mirrorlake.sources.postgresql.connect import Connection
from mirrorlake.sources.postgresql.foreign_text import foreign_texts
from mirrorlake.sources.postgresql.publishing import publication
from mirrorlake.sources.postgresql.settings import PostgresSettings
from mirrorlake.sources.table import SourceTable

_OK, _WARNING, _ERROR = CheckSeverity.OK, CheckSeverity.WARNING, CheckSeverity.ERROR


GONE_HINT = "Name it as it is called now, or remove it from the project file."
IDLE_HINT = "Correct the spelling (names are case-sensitive), or remove it from the project file."

MOST_SCHEMAS = 10
"""That are named where no table is selected."""

_NAMES = """
select n.nspname::text, c.relname::text
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p') and not c.relispartition
"""


def tables(
    connection: Connection,
    settings: PostgresSettings,
    catalog: Sequence[CatalogTable],
    selected: Sequence[SourceTable],
) -> Iterator[CheckResult]:
    """The selected tables, one by one."""
    if not selected:
        yield CheckResult(
            "tables",
            _ERROR,
            "no table is selected",
            where_tables_are(connection),
        )
    yield from _idle_tables(connection, settings)
    columns = columns_of(catalog)
    certain = idle(settings, columns)
    for what in idle(settings, columns, precautions=True):
        yield CheckResult("selection", _ERROR if what in certain else _WARNING, what, IDLE_HINT)
    by_name = {table.table: table for table in catalog}
    updates = publication.state_of(connection, settings.publication)
    for table in selected:
        facts = by_name[table.in_source]
        if (
            updates
            and updates.updates
            and table.in_source in updates.tables
            and not facts.identity.identifies
        ):
            yield _blocked(table.table, settings.publication)
        yield from _table(table, facts)
        yield from _access(connection, table, facts)
    published = [table for table in selected if table.refused is None]
    yield from _conditions(connection, settings, published)
    yield from publishing(connection, settings, catalog, published)


def columns_of(catalog: Sequence[CatalogTable]) -> dict[TableId, frozenset[str]]:
    """The columns of each table, generated ones included."""
    return {
        table.table: frozenset((*(name for name, _, _ in table.columns), *table.generated))
        for table in catalog
    }


def idle(
    settings: PostgresSettings,
    columns: Mapping[TableId, Collection[str]],
    *,
    precautions: bool = False,
    loaded: Collection[TableId] = (),
) -> list[str]:
    """Settings for columns and rows that do not exist, as sentences. columns: of each selected
    table.

    A misspelt name would mirror what somebody meant to leave out. Those of `loaded` tables are
    left out: they were right once, because a table stops when it is selected otherwise than it
    was loaded, and what they name was dropped or renamed since.
    """
    selection = settings.selection
    idle_columns = selection.idle_columns(columns, precautions=precautions, loaded=loaded)
    return [*idle_columns, *selection.idle_rows([*columns, *loaded])]


def gone(
    settings: PostgresSettings, columns: Mapping[TableId, Collection[str]]
) -> Iterator[CheckResult]:
    """Settings that concern nothing any more, because it was dropped or renamed."""
    for what in idle(settings, columns):
        yield CheckResult("selection", _WARNING, what, GONE_HINT)


def where_tables_are(connection: Connection) -> str:
    """What to select where nothing is selected: the schemas of the database that have tables."""
    advice = "Add a pattern to source.tables in the project file (names are case-sensitive)"
    system = {"information_schema", "pg_catalog", "pg_toast"}
    found = sorted({name.schema for name in _names(connection)} - system)
    if not found:
        return f"{advice}. The database has no tables yet."
    shown = ", ".join(f'"{printable(schema)}.*"' for schema in found[:MOST_SCHEMAS])
    more = f" and {len(found) - MOST_SCHEMAS} more" if len(found) > MOST_SCHEMAS else ""
    return f"{advice}. The database has tables for {shown}{more}."


def _names(connection: Connection) -> list[TableId]:
    with foreign_texts(connection):
        return [TableId(schema, name) for schema, name in connection.execute(_NAMES)]


def _idle_tables(connection: Connection, settings: PostgresSettings) -> Iterator[CheckResult]:
    for pattern in settings.selection.idle_tables(_names(connection)):
        yield CheckResult(
            "selection",
            _WARNING,
            f"{pattern} in source.tables matches no table of the database",
            "Correct the spelling (names are case-sensitive), or remove the pattern. Partitions "
            "are selected by the name of their root table.",
        )


def changed(
    tables: Sequence[SourceTable], now: Mapping[TableId, SourceTable]
) -> Iterator[CheckResult]:
    """Tables that are other tables now."""
    for table in tables:
        current = now.get(table.table)
        if current is None:  # it is missing in its publication too
            continue
        remedy = f"Run `mirrorlake reset {table.table}` to reload it."
        if current.identity != table.identity:
            yield CheckResult(
                "table", _ERROR, "it was dropped and created again", remedy, table.table
            )
        elif current.renamed is not None:
            yield CheckResult(
                "table",
                _WARNING,
                f"it is named {current.renamed} in the source, and keeps its name in the mirror",
                f"Run `mirrorlake reset {table.table}` to reload it under the new name.",
                table.table,
            )


def _table(table: SourceTable, catalog: CatalogTable) -> Iterator[CheckResult]:
    name = table.table
    if table.refused:
        named = {NotLogged: "logged", PublishedOtherwise: "published"}
        check = named.get(type(table.refused), "columns")
        yield CheckResult(check, _ERROR, table.refused.what, table.refused.hint, name)
    if catalog.generated:
        yield CheckResult(
            "columns",
            _WARNING,
            "generated columns are not mirrored, because the WAL does not contain them: "
            f"{', '.join(catalog.generated)}",
            "Compute them in a view over the mirrored table.",
            name,
        )
    if not (table.schema.names or table.refused):
        yield CheckResult(
            "columns",
            _WARNING,
            "the table has no column that is mirrored, so that nothing of its rows is, whatever "
            "its replica identity",
            "Exclude it in source.tables, or add a column: the table is then read again.",
            name,
        )
    elif table.append_only:
        updates, deletes = (sum(pair[i] for pair in catalog.counted.values()) for i in (0, 1))
        yield CheckResult(
            "replica identity",
            _WARNING,
            f"{table.append_only}: it is mirrored append-only; its updates and deletes are not "
            f"captured (PostgreSQL has counted {updates:,} updates and "
            f"{deletes:,} deletes so far)",
            _identity_remedy(name, catalog),
            name,
        )
    elif table.whole_rows:
        message = "no key: a change finds its row by all columns"
        yield CheckResult("replica identity", _OK, message, table=name)
    else:
        yield CheckResult("replica identity", _OK, f"key {', '.join(table.key)}", table=name)


def _blocked(table: TableId, name: str) -> CheckResult:
    return CheckResult(
        "replica identity",
        _ERROR,
        f"publication {name} publishes updates of the table, which has no replica identity: "
        "PostgreSQL rejects every update of it",
        f'Run `alter publication "{name}" drop table {_sql(table)}`, or add a primary key.',
        table,
    )


def _access(
    connection: Connection, table: SourceTable, catalog: CatalogTable
) -> Iterator[CheckResult]:
    """What our user may do with the table."""
    name, user = table.table, connection.info.user
    if not catalog.reachable:
        schema = sql.Identifier(catalog.table.schema).as_string()
        yield CheckResult(
            "schema",
            _ERROR,
            f"user {user} may not use schema {catalog.table.schema}",
            f'Run `grant usage on schema {schema} to "{user}"`.',
            name,
        )
    if unreadable := [c for c in table.schema.names if c in catalog.unreadable]:
        yield CheckResult(
            "select",
            _ERROR,
            f"user {user} may not read column {unreadable[0]}",
            f'Run `grant select on {_sql(name)} to "{user}"`, or exclude the column in '
            "source.columns.",
            name,
        )
    if catalog.filtered:
        yield CheckResult(
            "row security",
            _ERROR,
            f"a row security policy hides rows from user {user}",
            f'Run `alter role "{user}" bypassrls` as a superuser.',
            name,
        )


def _conditions(
    connection: Connection, settings: PostgresSettings, selected: Sequence[SourceTable]
) -> Iterator[CheckResult]:
    """Try the row conditions on a publication that is rolled back."""
    for table in selected:
        if "rows" not in table.selection or table.append_only:
            continue
        refused = publication.tried_condition(connection, settings, table)
        if refused:
            yield CheckResult("rows", _ERROR, refused.what, refused.hint, table.table)


def _identity_remedy(name: TableId, catalog: CatalogTable) -> str:
    if weak := catalog.identity.weak_partition:
        identity = "default" if catalog.identity.primary else "full"
        return f"Run `alter table {_sql(weak)} replica identity {identity}`."
    if catalog.identity.identity in {"n", "i"} and catalog.identity.primary:
        return f"Run `alter table {_sql(name)} replica identity default`."
    if catalog.kind == "p":
        return (
            f"Run `alter table {_sql(name)} add primary key (...)`, or set replica identity full "
            "on the table and each partition, which logs every old row whole."
        )
    return (
        f"Run `alter table {_sql(name)} add primary key (...)`, `alter table {_sql(name)} replica "
        "identity using index ...` with a unique index on NOT NULL columns, or `alter table "
        f"{_sql(name)} replica identity full`, which logs every old row whole."
    )


def _sql(table: TableId) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in (table.schema, table.name))
