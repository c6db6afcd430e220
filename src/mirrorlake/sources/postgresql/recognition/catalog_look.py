"""The catalog as it is now, as far as a table is recognised by it. Waits for no lock, but for a
moment where the filter of a table in its publication is new."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import psycopg
from psycopg import sql

from mirrorlake.errors import SourceUnavailable
from mirrorlake.model.position import Lsn
from mirrorlake.model.table import TableId
from mirrorlake.sources.postgresql.connect import NAMES_ALIKE, Connection
from mirrorlake.sources.postgresql.foreign_text import foreign_texts
from mirrorlake.sources.postgresql.publishing import generated_columns, left_out, publication
from mirrorlake.sources.postgresql.publishing.left_out import LeftOut
from mirrorlake.sources.postgresql.recognition import row_identity
from mirrorlake.sources.postgresql.recognition.known import Attribute, Leaf, TableLook
from mirrorlake.sources.postgresql.recognition.partitions import bounds_of
from mirrorlake.sources.postgresql.refusals import translated
from mirrorlake.sources.postgresql.settings import PostgresSettings
from mirrorlake.sources.postgresql.types.mapping import Resolve
from mirrorlake.sources.table import SourceTable

# Of a column list only what is in it is published. Before version 15 there is none, and no schema.
_MEMBERS = """
select r.prrelid, 'table ' || r.oid, p.oid, p.xmin, p.pubname, {columns}, {filtered}
from pg_publication p join pg_publication_rel r on r.prpubid = p.oid
where p.pubname = any(%(names)s)
union all
select c.oid, 'all tables of ' || p.oid, p.oid, p.xmin, p.pubname, null, false
from pg_publication p, pg_class c where p.puballtables and p.pubname = any(%(names)s)
{schemas}
"""
_SCHEMAS = """
union all
select c.oid, 'schema ' || s.oid, p.oid, p.xmin, p.pubname, null, false
from pg_publication p join pg_publication_namespace s on s.pnpubid = p.oid
join pg_class c on c.relnamespace = s.pnnspid where p.pubname = any(%(names)s)
"""

_TABLES = """
with member(oid, name, number, written, publication, columns, filtered) as ({members})
select c.oid::bigint, c.relnatts, c.relfilenode::bigint, c.relkind = 'p',
       array(select distinct m.name from member m where m.oid = c.oid),
       array(select distinct array[m.number::bigint, m.written::text::bigint]
             from member m where m.oid = c.oid),
       (select array_agg(n) from member m, unnest(m.columns) n
        where m.oid = c.oid and m.publication = w.publication and not exists
          (select from member o where o.oid = c.oid and o.publication = w.publication
           and o.columns is null)),
       array(select array[a.attname::text, a.xmin::text] from pg_attribute a
             where a.attrelid = c.oid and a.attgenerated <> '' and not a.attisdropped),
       {generated}, {filtered}, w.publication, c.xmin::text::bigint, c.relispartition,
       n.nspname, c.relname
from unnest(%(tables)s::oid[], %(publications)s::text[]) w(oid, publication)
join pg_catalog.pg_class c on c.oid = w.oid join pg_namespace n on n.oid = c.relnamespace
"""

_TREE = """
with recursive tree(root, oid, link, top) as (
    select r, r, null::bigint, null::oid from unnest(%(tables)s::oid[]) r
    union all
    select t.root, i.inhrelid, i.xmin::text::bigint, coalesce(t.top, i.inhrelid)
    from tree t join pg_class p on p.oid = t.oid and p.relkind = 'p'
    join pg_inherits i on i.inhparent = t.oid and not i.inhdetachpending)
"""

# The value is the one element of an array. Where it is not quoted, it may contain commas: each type
# has a delimiter of its own, that of boxes is a semicolon.
_ATTRIBUTES = f"""{_TREE}, filled as (
    select t.root, a.attname,
           case when m.value like '{{"%%' then (m.value::text[])[1]
                else substr(m.value, 2, length(m.value) - 2) end as value
    from tree t join pg_attribute a on a.attrelid = t.oid,
    lateral (select a.attmissingval::text) m(value) where a.atthasmissing)
select a.attrelid::bigint, a.attnum, case when not a.attisdropped then a.attname::text end,
       a.xmin::text::bigint, a.atttypid::bigint, a.atttypmod,
       array(select distinct f.value from filled f
             where f.root = a.attrelid and f.attname = a.attname)
from pg_catalog.pg_attribute a
where a.attrelid = any(%(tables)s::oid[]) and a.attnum > 0 and a.attgenerated = ''
order by a.attrelid, a.attnum
"""  # noqa: S608

# Given the table of an expression, pg_get_expr waits for a lock on it; bounds depend on none.
_LEAVES = f"""{_TREE}
select t.root::bigint, c.oid::bigint, n.nspname, c.relname, c.relfilenode::bigint,
       c.xmin::text::bigint, t.link, c.relkind <> 'p', a.attname, k.typname,
       pg_get_expr(b.relpartbound, 0)
from tree t join pg_class c on c.oid = t.oid join pg_namespace n on n.oid = c.relnamespace
left join pg_partitioned_table p on p.partrelid = t.root and p.partstrat = 'r' and p.partnatts = 1
left join pg_attribute a on a.attrelid = t.root and a.attnum = p.partattrs[0]
left join pg_type k on k.oid = a.atttypid and k.typnamespace = 'pg_catalog'::regnamespace
    and k.typname in ('int2', 'int4', 'int8', 'date', 'timestamp', 'timestamptz')
left join pg_class b on b.oid = t.top and k.oid is not null
where t.oid <> t.root order by c.oid
"""  # noqa: S608

# Attaching and detaching write all columns of a partition again.
_HAS_FIRST_COLUMN = """exists (
    select from pg_attribute a join pg_attribute made on made.attrelid = a.attrelid
    where a.attrelid = {table} and a.attnum > 0 and made.attnum = -1
    and a.xmin = made.xmin and a.cmin::text = made.cmin::text)
"""

_WAS_PARTITION = f"select not {_HAS_FIRST_COLUMN.format(table='%(table)s::oid')}"

# What was made as a partition came after what is above it, whatever the numbers of transactions.
_ABOVE = f"""
with recursive above(oid, link) as (
    select inhrelid, xmin::text::bigint from pg_inherits where inhrelid = %(leaf)s
    union all
    select i.inhrelid, i.xmin::text::bigint
    from above join pg_inherits h on h.inhrelid = above.oid
    join pg_inherits i on i.inhrelid = h.inhparent)
select oid::bigint, link, {_HAS_FIRST_COLUMN.format(table="above.oid")} from above
"""  # noqa: S608

_SIZE = "select pg_relation_size(%(table)s::oid)"


class CatalogLook:
    """Looks at tables by oid."""

    def __init__(
        self, connection: Callable[[], Connection], settings: PostgresSettings, resolve: Resolve
    ) -> None:
        self._connection, self._settings, self._resolve = connection, settings, resolve
        self._filters: dict[
            tuple[object, ...], bool
        ] = {}  # whether it is another, by what it is of

    def tables(self, tables: Sequence[SourceTable]) -> dict[int, TableLook]:
        """The tables that are there, as of one moment."""
        connection = self._connection()
        with translated(), foreign_texts(connection), connection.transaction():
            connection.execute("set transaction isolation level repeatable read, read only")
            connection.execute(NAMES_ALIKE)  # as of values of columns that were added
            ((end,),) = connection.execute("select pg_current_wal_insert_lsn()::text").fetchall()
            names = [publication.name_of(self._settings, table) for table in tables]
            values: dict[str, Any] = {
                "tables": [int(table.identity) for table in tables],
                "publications": names,
                # A table may have moved from one to the other since the stream began.
                "names": sorted({self._settings.publication, self._settings.append_publication}),
            }
            version = connection.info.server_version
            has_schemas = version >= _WITH_SCHEMAS
            members = _MEMBERS.format(
                columns="r.prattrs::int2[]" if has_schemas else "null::int2[]",
                filtered="r.prqual is not null" if has_schemas else "false",
                schemas=_SCHEMAS if has_schemas else "",
            )
            query = _TABLES.format(
                members=members,
                generated=generated_columns.published(version),
                filtered=left_out.IS_FILTERED,
            )
            found = connection.execute(query, values).fetchall()
            attributes = connection.execute(_ATTRIBUTES, values).fetchall()
            leaves = connection.execute(_LEAVES, values).fetchall()
            identities = row_identity.read(connection, values["tables"])
        columns: dict[int, list[Attribute]] = {}
        for oid, number, name, changed, kind, modifier, missing in attributes:
            resolved = None if name is None else self._resolve(kind, modifier)
            column_type, text = (str(resolved.type), resolved.text) if resolved else ("", 0)
            column_facts = column_type, kind, modifier, text
            column = Attribute(number, name, changed, (*missing,), *column_facts)
            columns.setdefault(oid, []).append(column)
        parts: dict[int, dict[int, Leaf]] = {}
        links: dict[int, dict[int, int]] = {}
        for oid, leaf, schema, name, node, changed, link, has_rows, *said in leaves:
            links.setdefault(oid, {})[leaf] = link
            if has_rows:
                bounds = bounds_of(*said) if all(said) else None
                found_leaf = Leaf(TableId(schema, name), node, changed, bounds)
                parts.setdefault(oid, {})[leaf] = found_leaf
        looks = {
            oid: TableLook(
                at=Lsn.parse(end),
                last=last,
                node=node,
                attributes=tuple(
                    column
                    for column in columns.get(oid, [])
                    if listed is None or column.name is None or column.number in listed
                ),
                leaves=parts.get(oid, {}) if is_split else None,
                published=frozenset(published),
                publications=dict(by),
                links=links.get(oid, {}),
                identity=identities[oid],
                is_listed=listed is not None,
                name=TableId(*name),
                generated={
                    column: int(by)
                    for column, by in (generated if version >= generated_columns.SINCE else ())
                },
                generated_published=tuple(map(tuple, sent)),
                left_out=LeftOut(
                    by_name,
                    is_filtered,
                    tuple(
                        column.name
                        for column in columns.get(oid, [])
                        if listed is not None and column.name and column.number not in listed
                    ),
                ),
                changed=changed,
                is_partition=is_partition,
            )
            for oid, last, node, is_split, published, by, listed, *more in found
            for generated, sent, is_filtered, by_name, changed, is_partition, *name in [more]
        }
        return {**looks, **self._filtered_otherwise(tables, looks)}

    def _filtered_otherwise(
        self, tables: Sequence[SourceTable], looks: Mapping[int, TableLook]
    ) -> dict[int, TableLook]:
        """The looks at those of the tables of which the publication filters other rows than the
        project selects. Each filter is compared once, under the names that its columns have."""
        found: dict[int, TableLook] = {}
        for table in tables:
            oid, condition = int(table.identity), table.selection.get("rows")
            look = looks.get(oid)
            if look is None or look.name is None or condition is None:
                continue
            if not look.left_out.is_filtered:
                continue
            key = oid, look.name, look.published, condition, *look.columns.items()
            if key not in self._filters:
                with translated():
                    is_other = left_out.is_filtered_otherwise(
                        self._connection(), look.left_out.publication, oid, look.name, condition
                    )
                if is_other is None:
                    continue
                self._filters[key] = is_other
            if self._filters[key]:
                left = replace(look.left_out, is_filtered_otherwise=True)
                found[oid] = replace(look, left_out=left)
        return found

    def await_visible(self, transactions: Collection[int]) -> None:
        """Wait until these transactions, which are in the log as committed, are visible: that is
        a moment later, and with synchronous replication when a standby has confirmed it. Raises
        SourceUnavailable when that takes long."""
        deadline = time.monotonic() + _PATIENCE
        with translated():
            while hidden := self._hidden(transactions):
                if time.monotonic() > deadline:
                    raise SourceUnavailable(
                        f"transaction {min(hidden)} is committed in the log, but not visible yet",
                        hint="Capture goes on when it is. With synchronous_standby_names, a "
                        "standby has to confirm it: look at pg_stat_replication.",
                    )
                time.sleep(_PAUSE)

    def _hidden(self, transactions: Collection[int]) -> list[int]:
        """Those of some transactions that are not visible yet."""
        row = self._connection().execute("select pg_current_snapshot()::text").fetchone()
        assert row is not None
        (snapshot,) = row
        return [number for number in transactions if not is_visible(number, snapshot)]

    def was_empty(
        self, oid: int, name: TableId, links: Mapping[int, int], *, has_rows: bool
    ) -> bool:
        """Whether a partition held nothing when it became one, or holds nothing now. That does not
        count where the server misses attachments, because it may have looked at the table before,
        and where the log `has_rows` of it: it may have been a partition before, and lost them in
        between. links: those that were there when the partition was not."""
        if self.was_made(oid, links):
            return True
        if has_rows or self.misses_attachments():
            return False
        with translated():
            ((size,),) = self._connection().execute(_SIZE, {"table": oid}).fetchall()
            return not size or self._has_no_row(name)

    def was_made(self, oid: int, links: Mapping[int, int]) -> bool:
        """Whether a table was made as a partition, rather than attached. links: as for
        `was_empty`."""
        with translated():
            above = self._connection().execute(_ABOVE, {"leaf": oid}).fetchall()
        made = (is_made or links.get(one) == link for one, link, is_made in above)
        return bool(above) and all(made)

    def loses_additions(self) -> bool:
        """Whether changes of a table that is put back into its publication may be lost for good."""
        return publication.loses_additions(self._connection().info.server_version)

    def misses_attachments(self) -> bool:
        """Whether changes of a partition may be missing after it was attached; see `Renewals`."""
        return self._connection().info.server_version < _NOTICES_ATTACHMENTS

    def was_partition(self, oid: int) -> bool:
        """Whether a table may have been a partition before: all its columns were written again."""
        with translated():
            row = self._connection().execute(_WAS_PARTITION, {"table": oid}).fetchone()
            assert row is not None
            (was_partition,) = row
            return bool(was_partition)

    def _has_no_row(self, name: TableId) -> bool:
        query = sql.SQL("select exists (select from only {})").format(
            sql.Identifier(name.schema, name.name)
        )
        try:
            ((found,),) = self._connection().execute(query).fetchall()
        except (
            psycopg.errors.InsufficientPrivilege,
            psycopg.errors.LockNotAvailable,
            psycopg.errors.UndefinedTable,
        ):
            return False  # as if it had rows: its table is read again
        return not found


def is_visible(transaction: int, snapshot: str) -> bool:
    """Whether a snapshot (`xmin:xmax:running`, of 64 bits each) shows what a committed transaction
    did, the number of which has the lower 32 of its bits and is at most 2 billion away."""
    _oldest, following, running = snapshot.split(":")
    if not 0 < (int(following) - transaction) & 0xFFFFFFFF < 1 << 31:
        return False
    return transaction not in {int(one) & 0xFFFFFFFF for one in running.split(",") if one}


_WITH_SCHEMAS = _NOTICES_ATTACHMENTS = 150_000
_PATIENCE, _PAUSE = 2.0, 0.02  # seconds
