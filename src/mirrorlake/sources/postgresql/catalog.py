"""What the catalog says: the selected tables, their columns, their keys."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from mirrorlake.errors import UnsupportedColumn
from mirrorlake.model.change import FEED_COLUMNS
from mirrorlake.model.table import Column, Schema, TableId
from mirrorlake.sources.postgresql.connect import Connection, connect, translated
from mirrorlake.sources.postgresql.types.mapping import TypeRow, Types
from mirrorlake.sources.selection import Selection
from mirrorlake.sources.table import SourceTable

_TYPES = """
select oid::bigint, typname, typtype::text, typcategory::text, typbasetype::bigint, typtypmod,
       typelem::bigint, typdelim::text
from pg_catalog.pg_type
"""

# An index that is checked late identifies nothing, for PostgreSQL and for us: until the end of the
# transaction two rows may have one key.
_INDEX_COLUMNS = """
       (select array_agg(a.attname::text order by k.place)
        from pg_index i, unnest(i.indkey) with ordinality k(number, place), pg_attribute a
        where i.indrelid = c.oid and i.indimmediate and {which}
          and a.attrelid = c.oid and a.attnum = k.number and k.place <= i.indnkeyatts)
"""
# Any other index that tells rows apart, for tables of which whole rows are logged: the one with the
# fewest columns, none of which can be NULL.
_UNIQUE = """
       (select array_agg(a.attname::text order by k.place)
        from unnest(u.indkey) with ordinality k(number, place), pg_attribute a
        where a.attrelid = c.oid and a.attnum = k.number and k.place <= u.indnkeyatts)
"""
_UNIQUE_INDEX = """
left join lateral (
    select i.indkey, i.indnkeyatts
    from pg_index i join pg_class named on named.oid = i.indexrelid
    where i.indrelid = c.oid and i.indisunique and i.indimmediate and i.indisvalid
      and i.indpred is null and i.indexprs is null
      and not exists (
          select from unnest(i.indkey) with ordinality k(number, place)
          left join pg_attribute a on a.attrelid = c.oid and a.attnum = k.number
          where k.place <= i.indnkeyatts and a.attnotnull is not true)
    order by i.indnkeyatts, named.relname
    limit 1) u on true
"""
# Also of transactions that were rolled back, and some seconds late.
_COUNTED = """
       coalesce((select sum(pg_stat_get_tuples_{what}(t.relid)) from pg_partition_tree(c.oid) t
                 where t.isleaf), pg_stat_get_tuples_{what}(c.oid), 0)::bigint"""
_PRIMARY = _INDEX_COLUMNS.format(which="i.indisprimary")
_IDENTITY_INDEX = _INDEX_COLUMNS.format(which="i.indisreplident")

# Partitions are published under the name of their root, so only roots count as tables.
_TABLES = f"""
select n.nspname, c.relname, c.oid::bigint, c.relreplident::text, c.relkind::text,
       c.reltuples::bigint,
       coalesce((select sum(pg_relation_size(t.relid)) from pg_partition_tree(c.oid) t
                 where t.isleaf), pg_relation_size(c.oid))::bigint,
       {_PRIMARY}, {_IDENTITY_INDEX},
       exists (select from pg_index i
               where i.indrelid = c.oid and i.indisprimary and not i.indimmediate),
       c.relpersistence::text, pg_get_userbyid(c.relowner)::text, pg_has_role(c.relowner, 'usage'),
       row_security_active(c.oid), {_UNIQUE},
       {_COUNTED.format(what="updated")}, {_COUNTED.format(what="deleted")}
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
{_UNIQUE_INDEX}
where c.relkind in ('r', 'p') and not c.relispartition
  and n.nspname not in ('pg_catalog', 'information_schema') and n.nspname !~ '^pg_(toast|temp)'
order by n.nspname, c.relname
"""  # noqa: S608

# What the log says of an old row is decided by the partition that the row was in.
_PARTITIONS = f"""
select root::bigint, n.nspname, c.relname, c.relreplident::text, {_PRIMARY}, {_IDENTITY_INDEX}
from unnest(%s::oid[]) root, pg_partition_tree(root) t, pg_class c, pg_namespace n
where t.isleaf and c.oid = t.relid and n.oid = c.relnamespace
order by n.nspname, c.relname
"""  # noqa: S608

_COLUMNS = """
select attrelid::bigint, attname::text, atttypid::bigint, atttypmod, attgenerated::text <> '',
       has_column_privilege(attrelid, attnum, 'select')
from pg_catalog.pg_attribute
where attrelid = any(%s::oid[]) and attnum > 0 and not attisdropped
order by attrelid, attnum
"""


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table as the catalog describes it, selected or not.

    unique: the columns of another index that tells its rows apart; deferrable: it has a primary key
    that is checked late; updates, deletes: how many PostgreSQL has counted; owned: our user may
    publish it; filtered: a policy hides rows of it from our user; generated: columns that the log
    does not carry and that are therefore left out; unreadable: columns that our user may not read;
    partitions: the leaves with the columns by which they identify their rows, None for all columns.
    """

    table: TableId
    oid: int
    identity: str  # relreplident: d default, i index, f full, n nothing
    kind: str  # relkind: r table, p partitioned
    rows: int | None
    size: int
    primary: tuple[str, ...]
    index: tuple[str, ...]
    unique: tuple[str, ...]
    updates: int
    deletes: int
    deferrable: bool
    logged: bool
    owner: str
    owned: bool
    filtered: bool
    columns: tuple[tuple[str, int, int], ...]  # name, type, modifier
    generated: tuple[str, ...]
    unreadable: frozenset[str]
    partitions: Mapping[TableId, frozenset[str] | None]

    @property
    def identifies(self) -> bool:
        """Whether the log can tell an old row of it: otherwise it cannot be updated while it is
        published with updates."""
        match self.identity:
            case "f":
                return True
            case "d":
                return bool(self.primary)
            case "i":
                return bool(self.index)
            case _:
                return False

    @property
    def weak_partition(self) -> TableId | None:
        """A partition whose old rows do not tell the key of the table."""
        key = set(self.primary or self.index)
        for name, identity in self.partitions.items():
            if identity is not None and not identity >= key:
                return name
        return None


def read_types(connection: Connection) -> Types:
    rows = [TypeRow(*row) for row in connection.execute(_TYPES)]
    return Types({row.oid: row for row in rows})


def read_tables(connection: Connection, selection: Selection) -> list[CatalogTable]:
    """The selected tables, by name."""
    found = [r for r in connection.execute(_TABLES) if selection.takes(TableId(r[0], r[1]))]
    columns: dict[int, list[Any]] = {row[2]: [] for row in found}
    for row in connection.execute(_COLUMNS, [list(columns)]):
        columns[row[0]].append(row[1:])
    partitions: dict[int, dict[TableId, frozenset[str] | None]] = {oid: {} for oid in columns}
    for root, schema, name, *identity in connection.execute(_PARTITIONS, [list(columns)]):
        partitions[root][TableId(schema, name)] = _identity(*identity)
    return [_table(row, columns[row[2]], partitions[row[2]]) for row in found]


def _table(
    row: Sequence[Any],
    columns: Sequence[Sequence[Any]],
    partitions: Mapping[TableId, frozenset[str] | None],
) -> CatalogTable:
    schema, name, oid, identity, kind, rows, size, primary, index, *facts = row
    deferrable, persistence, owner, owned, filtered, unique, *counted = facts
    return CatalogTable(
        table=TableId(schema, name),
        oid=oid,
        identity=identity,
        kind=kind,
        rows=None if rows < 0 else rows,
        size=size,
        primary=tuple(primary or ()),
        index=tuple(index or ()),
        unique=tuple(unique or ()),
        updates=counted[0],
        deletes=counted[1],
        deferrable=deferrable,
        logged=persistence == "p",
        owner=owner,
        owned=owned,
        filtered=filtered,
        columns=tuple((n, t, m) for n, t, m, generated, *_ in columns if not generated),
        generated=tuple(n for n, _, _, generated, *_ in columns if generated),
        unreadable=frozenset(n for n, *_, readable in columns if not readable),
        partitions=partitions,
    )


def _identity(
    identity: str, primary: list[str] | None, index: list[str] | None
) -> frozenset[str] | None:
    """The columns that the log tells of an old row; None for all of them."""
    match identity:
        case "f":
            return None
        case "d":
            return frozenset(primary or ())
        case "i":
            return frozenset(index or ())
        case _:
            return frozenset()


def describe(table: CatalogTable, types: Types, selection: Selection) -> SourceTable:
    """The table as it is captured."""
    chosen = selection.columns_of(table.table, [name for name, _, _ in table.columns])
    resolved = {n: types.resolve(t, m) for n, t, m in table.columns if n in chosen}
    key, reason = _key(table, resolved)
    if not reason and (missing := [name for name in key if name not in resolved]):
        key, reason = (), f"key column {missing[0]} is not selected"
    schema = Schema.of([Column(name, kind.type) for name, kind in resolved.items()])
    return SourceTable(
        table=table.table,
        schema=schema,
        key=key,
        identity=str(table.oid),
        source_types=resolved,
        append_only=reason,
        whole_rows=not (key or reason),
        refused=refusal(table.table, schema),
        rows=table.rows,
        size=table.size,
        counted=(table.updates, table.deletes),
        selection=_selection_facts(table.table, selection),
    )


def _key(  # noqa: PLR0911  (one per identity)
    table: CatalogTable, selected: Collection[str]
) -> tuple[tuple[str, ...], str]:
    """The columns by which updates and deletions name their row, or why there are none; neither,
    where they name all columns of it."""
    if table.kind == "p" and (key := table.primary or table.index):
        if weak := table.weak_partition:
            return (), f"the replica identity of partition {weak} does not contain its key"
        return key, ""
    match table.identity:
        case "f" if table.kind == "p":
            # Each partition has an identity of its own, and one that is made later has none.
            return (), "it is partitioned and has no primary key"
        case "d" if table.primary:
            return table.primary, ""
        case "f" if table.kind == "p":
            # Each partition has an identity of its own, and one that is made later has none.
            return (), "it is partitioned and has no primary key"
        case "f":
            keys = [key for key in (table.primary, table.unique) if key and {*key} <= {*selected}]
            return keys[0] if keys else (), "" if selected else "it has no columns"
        case "d" if table.deferrable:
            return (), "its primary key is deferrable, so rows may temporarily share a key"
        case "d":
            return (), "it has no primary key"
        case "i" if table.index:
            return table.index, ""
        case "i":
            return (), "the index of its replica identity no longer exists"
        case _:
            return (), "its replica identity is NOTHING"


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
        if name.startswith("__") or name.casefold() in FEED_COLUMNS:
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
    asked = {"schema": schema, "table": table}
    with closing(connect(url)) as connection, translated():
        found: dict[str, dict[str, list[FoundColumn]]] = {
            row[0]: {} for row in connection.execute(_FOUND_SCHEMAS, asked)
        }
        for schema_name, table_name, column, *facts in connection.execute(_FOUND_COLUMNS, asked):
            columns = found.setdefault(schema_name, {}).setdefault(table_name, [])
            if column is not None:
                columns.append(FoundColumn(column, *facts))
    return found
