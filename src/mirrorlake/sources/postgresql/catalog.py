"""Reads the catalog: the selected tables, their columns, their keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from psycopg import sql

from mirrorlake.errors import NotLogged, SelectionChanged, UnsupportedColumn
from mirrorlake.model.change import FEED_COLUMNS, RESERVED_PREFIX
from mirrorlake.model.table import Column, Schema, TableId
from mirrorlake.sources.postgresql.connect import Connection, connect
from mirrorlake.sources.postgresql.foreign_text import foreign_texts
from mirrorlake.sources.postgresql.recognition import row_identity, without_effect
from mirrorlake.sources.postgresql.recognition.row_identity import RowIdentity, leaves
from mirrorlake.sources.postgresql.refusals import translated
from mirrorlake.sources.postgresql.types.mapping import FIRST_OF_APPLICATIONS, TypeRow, Types
from mirrorlake.sources.selection import Selection
from mirrorlake.sources.table import Attached, Counted, SourceTable

_PARTITION_TREE = """
with recursive tree(oid) as (
    select %s::oid
    union all
    select i.inhrelid from tree t join pg_class p on p.oid = t.oid and p.relkind = 'p'
    join pg_inherits i on i.inhparent = t.oid)
"""
_TYPES = """
select oid::bigint, typname, typtype::text, typcategory::text, typbasetype::bigint, typtypmod,
       typelem::bigint, typdelim::text,
       -- as citext has them: functions of the server itself by another name
       exists (select from pg_catalog.pg_proc where oid = typsend and prolang = 12
                   and prosrc = 'textsend')
       and exists (select from pg_catalog.pg_proc where oid = typoutput and prolang = 12
                       and prosrc = 'textout')
from pg_catalog.pg_type where oid >= %s
"""

# Also of transactions that were rolled back, and some seconds late. Of each partition: the counters
# of one that is dropped are gone, and would look like counters that were reset.
_COUNTED = leaves(
    "c.oid",
    "coalesce(jsonb_object_agg(l.oid::text, jsonb_build_array(n.updated, n.deleted))"
    " filter (where n.updated + n.deleted > 0), '{}')",
    "cross join lateral (select pg_stat_get_tuples_updated(l.oid) as updated,"
    " pg_stat_get_tuples_deleted(l.oid) as deleted) n",
)
# PostgreSQL publishes a table whatever its partitions are.
_UNLOGGED = leaves(
    "c.oid",
    "min(array[s.nspname::text, l.relname::text, l.relkind::text])",
    "join pg_namespace s on s.oid = l.relnamespace"
    " and (l.relpersistence <> 'p' or l.relkind = 'f')",
)
# The exact size waits while the table is altered. As long as a table was not analyzed, its rows are
# taken for short ones, of which a page has 200.
_PAGES = leaves(
    "c.oid",
    "coalesce(sum(case when l.relpages > 0 then l.relpages "
    "else pg_stat_get_live_tuples(l.oid) / 200 end), 0)::bigint",
)

# Partitions are published under the name of their root, so only roots count as tables.
_TABLES = f"""
select n.nspname, c.relname, c.oid::bigint, c.relkind::text,
       c.reltuples::bigint,
       {_PAGES} * current_setting('block_size')::bigint,
       c.relpersistence::text, pg_get_userbyid(c.relowner)::text, pg_has_role(c.relowner, 'usage'),
       (select rolsuper from pg_roles r where r.oid = c.relowner),
       row_security_active(c.oid), has_schema_privilege(n.oid, 'usage'),
       {_COUNTED}, {_UNLOGGED}
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p') and not c.relispartition
  and n.nspname not in ('pg_catalog', 'information_schema') and n.nspname !~ '^pg_(toast|temp)'
order by n.nspname, c.relname
"""  # noqa: S608

_COLUMNS = """
select attrelid::bigint, attname::text, atttypid::bigint, atttypmod, attgenerated::text <> '',
       has_column_privilege(attrelid, attnum, 'select')
from pg_catalog.pg_attribute
where attrelid = any(%s::oid[]) and attnum > 0 and not attisdropped
order by attrelid, attnum
"""


def with_partition_tree(query: str) -> str:
    """A query that has `tree`: a table, whose oid is its parameter, and all partitions below it."""
    return _PARTITION_TREE + query


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table as the catalog describes it, selected or not.

    identity: what identifies its rows; counted: as of `SourceTable`; owned: our user may publish
    it; superuser: its owner is one; unlogged: why its changes are not in the log, None if they are;
    filtered: a policy hides rows of it from our user; reachable: our user may use its schema;
    generated: columns that the log does not carry and that are therefore left out;
    unreadable: columns that our user may not read; attached: as of `SourceTable`.
    """

    table: TableId
    oid: int
    identity: RowIdentity
    kind: str  # relkind: r table, p partitioned
    rows: int | None
    size: int
    counted: Counted
    unlogged: NotLogged | None
    owner: str
    owned: bool
    superuser: bool
    filtered: bool
    reachable: bool
    columns: tuple[tuple[str, int, int], ...]  # name, type, modifier
    generated: tuple[str, ...]
    unreadable: frozenset[str]
    attached: Mapping[str, Attached] = field(default_factory=dict)


def read_types(connection: Connection, earlier: Types | None = None) -> Types:
    """The types of the database. earlier: of the same connection; those of the server itself, which
    are hundreds and never change, are not read again then."""
    known = earlier.builtin if earlier else {}
    first = FIRST_OF_APPLICATIONS if known else 0
    with foreign_texts(connection):
        rows = [TypeRow(*row) for row in connection.execute(_TYPES, [first])]
    return Types({**known, **{row.oid: row for row in rows}})


def read_tables(connection: Connection, selection: Selection) -> list[CatalogTable]:
    """The selected tables, by name."""
    with foreign_texts(connection):
        return _tables(connection, selection)


def _tables(connection: Connection, selection: Selection) -> list[CatalogTable]:
    found = [r for r in connection.execute(_TABLES) if selection.takes(TableId(r[0], r[1]))]
    columns: dict[int, list[Any]] = {row[2]: [] for row in found}
    for row in connection.execute(_COLUMNS, [list(columns)]):
        columns[row[0]].append(row[1:])
    identities = row_identity.read(connection, list(columns))
    attached = without_effect.read(connection, list(columns))
    return [
        replace(_table(row, columns[row[2]], identities[row[2]]), attached=attached[row[2]])
        for row in found
        if row[2] in identities
    ]


def _table(
    row: Sequence[Any], columns: Sequence[Sequence[Any]], identity: RowIdentity
) -> CatalogTable:
    schema, name, oid, kind, rows, size, *facts = row
    persistence, owner, owned, superuser, filtered, reachable, counted, unlogged = facts
    return CatalogTable(
        table=TableId(schema, name),
        oid=oid,
        identity=identity,
        kind=kind,
        rows=None if rows < 0 else rows,
        size=size,
        counted={leaf: (updates, deletes) for leaf, (updates, deletes) in counted.items()},
        unlogged=_unlogged(TableId(schema, name), kind, persistence, unlogged),
        owner=owner,
        owned=owned,
        superuser=superuser,
        filtered=filtered,
        reachable=reachable,
        columns=tuple((n, t, m) for n, t, m, generated, *_ in columns if not generated),
        generated=tuple(n for n, _, _, generated, *_ in columns if generated),
        unreadable=frozenset(n for n, *_, readable in columns if not readable),
    )


def _unlogged(
    table: TableId, kind: str, persistence: str, part: Sequence[str] | None
) -> NotLogged | None:
    """Why changes of a table are not in the log. part: of the first such part of it, the schema,
    the name and the kind."""
    what, remedy = "", ""
    if kind == "p" and persistence != "p":
        what, remedy = "the table is unlogged", "Create it again without UNLOGGED"
    elif part:
        leaf = TableId(part[0], part[1])
        named = "the table" if leaf == table else f"partition {leaf}"
        quoted = sql.Identifier(leaf.schema, leaf.name).as_string()
        what, remedy = f"{named} is unlogged", f"Run `alter table {quoted} set logged`"
        if part[2] == "f":
            what, remedy = f"{named} is a foreign table", "Detach it"
    if not what:
        return None
    return NotLogged(
        f"{what}: its changes are not in the WAL",
        table=str(table),
        hint=f"{remedy}, or remove {table} from source.tables.",
    )


def describe(
    table: CatalogTable, types: Types, selection: Selection, name: TableId | None = None
) -> SourceTable:
    """The table as it is captured. name: in the mirror, if it is another one there."""
    name = name or table.table
    chosen = selection.columns_of(table.table, [name for name, _, _ in table.columns])
    resolved = {n: types.resolve(t, m) for n, t, m in table.columns if n in chosen}
    key, reason = table.identity.key(resolved)
    schema = Schema.of([Column(name, kind.type) for name, kind in resolved.items()])
    return SourceTable(
        table=name,
        schema=schema,
        key=key,
        identity=str(table.oid),
        source_types=resolved,
        append_only=reason,
        whole_rows=not (key or reason),
        refused=table.unlogged
        or _other_selection(table.table, name, selection)
        or refusal(name, schema),
        rows=table.rows,
        size=table.size,
        counted=table.counted,
        selection=_selection_facts(table.table, selection),
        attached=table.attached,
        renamed=table.table if name != table.table else None,
    )


def _other_selection(
    table: TableId, loaded: TableId, selection: Selection
) -> SelectionChanged | None:
    """That a table was renamed, of which the settings name the rows or columns by its former name.
    They may leave out what nobody may see. Where they do not, they are compared with those with
    which it was loaded."""
    named, now = _selection_facts(loaded, selection), _selection_facts(table, selection)
    if not named or named == now:
        return None
    return SelectionChanged.of(
        f"the table was renamed to {table} in the source, and source.rows or source.columns "
        f"select other rows or columns of {table} than of {loaded}",
        now,
        table=str(loaded),
        hint=f"Select of {table} in the project file what was selected of {loaded}, and restart "
        "capture: the table is read again then.",
    )


def _selection_facts(table: TableId, selection: Selection) -> Mapping[str, Any]:
    facts: dict[str, Any] = {}
    for pattern, columns in selection.columns.items():
        if Selection(tables=(pattern,)).takes(table):
            facts["columns"] = list(columns)
            break
    if condition := selection.condition_of(table):
        facts["rows"] = condition
    return facts


def refusal(table: TableId, schema: Schema) -> UnsupportedColumn | None:
    """The first column that the zone or the feed cannot carry under its name, and why."""
    folded: dict[str, str] = {}
    for name in schema.names:
        alike = folded.setdefault(name.casefold(), name)
        is_ours = name.casefold().startswith(RESERVED_PREFIX)
        if name.startswith("__") or is_ours or name.casefold() in FEED_COLUMNS:
            reason = "has a reserved name"
        elif alike != name:
            reason = f"differs from column {alike} only in case"
        else:
            continue
        return UnsupportedColumn(
            f"column {name} {reason}",
            table=str(table),
            column=name,
            hint=f'Exclude it: source.columns: {{{table}: ["*", "!{name}"]}}.',
        )
    return None


# What a database holds, for who has not selected anything yet.
_FOUND_COLUMNS = """
select n.nspname::text, c.relname::text, a.attname::text,
       case when t.typtype = 'b' and t.typelem <> 0 and t.typlen = -1
            then format_type(a.atttypid, null) else t.typname::text end,
       information_schema._pg_char_max_length(t.oid, a.atttypmod)::int,
       information_schema._pg_numeric_precision(t.oid, a.atttypmod)::int,
       information_schema._pg_numeric_scale(t.oid, a.atttypmod)::int,
       coalesce(a.attnum = any(i.indkey), false), not a.attnotnull,
       row_number() over (partition by c.oid order by a.attnum)::int
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
left join pg_catalog.pg_attribute a
       on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
left join pg_catalog.pg_type t on t.oid = a.atttypid
left join pg_catalog.pg_index i on i.indrelid = c.oid and i.indisprimary
where c.relkind in ('r', 'p') and not c.relispartition
  and n.nspname not in ('pg_catalog', 'information_schema') and n.nspname !~ '^pg_(toast|temp)'
  and (%(schema)s = '' or n.nspname = %(schema)s) and (%(table)s = '' or c.relname = %(table)s)
order by n.nspname, c.relname, a.attnum
"""
_FOUND_SCHEMAS = """
select nspname::text from pg_catalog.pg_namespace
where nspname not in ('pg_catalog', 'information_schema') and nspname !~ '^pg_(toast|temp)'
  and (%(schema)s = '' or nspname = %(schema)s)
order by nspname
"""


@dataclass(frozen=True, slots=True)
class FoundColumn:
    """A column; length, precision and scale are None where its type has none."""

    name: str
    type: str
    length: int | None
    precision: int | None
    scale: int | None
    is_key: bool
    is_nullable: bool
    ordinal: int


def hierarchy(
    url: str, schema: str = "", table: str = ""
) -> dict[str, dict[str, list[FoundColumn]]]:
    """Schema to table to columns; schema, table: look at these only. Raises SourceUnavailable."""
    names = {"schema": schema, "table": table}
    with closing(connect(url)) as connection, translated(), foreign_texts(connection):
        found: dict[str, dict[str, list[FoundColumn]]] = {
            row[0]: {} for row in connection.execute(_FOUND_SCHEMAS, names)
        }
        for schema_name, table_name, column, *facts in connection.execute(_FOUND_COLUMNS, names):
            columns = found.setdefault(schema_name, {}).setdefault(table_name, [])
            if column is not None:
                columns.append(FoundColumn(column, *facts))
    return found
