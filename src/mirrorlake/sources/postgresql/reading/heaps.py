"""Ranges of the pages of a table, in which a load reads it.

A heap is the file of a table, or of a leaf partition. A row stays at its place (ctid) in it as long
as it is not changed, unless the heap is written anew (VACUUM FULL, CLUSTER): then the file is
another one, and places that were known before say nothing. ALTER TABLE writes it anew as well, and
hides all rows from the snapshots before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from mirrorlake.errors import LOADED_LATER, AlteredWhileLoaded, RowsMoved
from mirrorlake.sources.postgresql.connect import Connection
from mirrorlake.sources.postgresql.reading import lock_waits
from mirrorlake.sources.postgresql.reading.copied_rows import CopiedColumn, tid_text
from mirrorlake.sources.table import SnapshotPart, SourceTable

_PAGE = 8192

# What changes with every ALTER TABLE that writes rows anew.
_DEFINITION = """
(select md5(concat_ws(' ', c.relam,
                      string_agg(concat(a.attnum, ' ', a.xmin), ',' order by a.attnum)))
 from pg_attribute a where a.attrelid = c.oid and a.attnum > 0)
"""

# A snapshot shows the catalog of its moment; the functions look at the present one.
# `pg_partition_tree` would lock all leaves until the transaction ends.
_HEAPS = f"""
with recursive tree(oid) as (
    select {{table}}::oid
    union all
    select i.inhrelid from tree t join pg_class p on p.oid = t.oid and p.relkind = 'p'
    join pg_inherits i on i.inhparent = t.oid and not i.inhdetachpending)
select n.nspname::text, c.relname::text, c.oid::bigint, pg_relation_filenode(c.oid)::bigint,
       coalesce(pg_relation_size(c.oid), 0) / current_setting('block_size')::int,
       (select jsonb_object_agg(a.attname, a.attnum) from pg_attribute a
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped),
       coalesce((select m.amname = 'heap' from pg_am m where m.oid = c.relam), false),
       has_table_privilege(c.oid, 'select'), nullif(c.relfilenode, 0)::bigint, {_DEFINITION}
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'f')
  and c.oid in (select oid from tree)
order by c.oid
"""  # noqa: S608


# What the text of a value depends on besides the value: names of enum values, parts of composites.
_MOMENT = """
select pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
       substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8),
       (select md5(coalesce(string_agg(concat_ws(' ', e.oid, e.enumlabel), ',' order by e.oid), ''))
        from pg_enum e),
       (select md5(coalesce(string_agg(concat_ws(' ', a.attrelid, a.attnum, a.atttypid,
                                                 a.attisdropped),
                                       ',' order by a.attrelid, a.attnum), ''))
        from pg_attribute a join pg_class c on c.oid = a.attrelid where c.relkind = 'c')
"""


@dataclass(frozen=True, slots=True)
class Heap:
    """A table or leaf partition: its name, and the numbers (attnum) of its columns by their names,
    as a snapshot shows them; its file as it was when its ranges were listed; whether its rows have
    versions; its file and its definition as the snapshot shows them."""

    schema: str
    name: str
    oid: int
    file: int | None
    columns: Mapping[str, int]
    is_recognised: bool
    seen: int | None
    definition: str

    @property
    def relation(self) -> sql.Composed:
        return sql.Composed([sql.SQL("only "), sql.Identifier(self.schema, self.name)])


@dataclass(frozen=True, slots=True)
class HeapRange:
    """Pages of a heap, from `start` to before `stop`, or to the end for None."""

    heap: Heap
    start: int = 0
    stop: int | None = None

    @property
    def is_whole(self) -> bool:
        return self.start == 0 and self.stop is None

    @property
    def condition(self) -> Sequence[sql.Composable]:
        found = []
        if self.start:
            found.append(sql.SQL("ctid >= {}::tid").format(sql.Literal(f"({self.start},0)")))
        if self.stop is not None:
            found.append(sql.SQL("ctid < {}::tid").format(sql.Literal(f"({self.stop},0)")))
        return found


def parts(connection: Connection, table: SourceTable, part_bytes: int) -> list[SnapshotPart]:
    """The ranges of a table that together contain each row once. Raises
    psycopg.errors.LockNotAvailable."""
    step = max(part_bytes // _PAGE, 1)
    found = []
    query = sql.SQL(_HEAPS).format(table=sql.Literal(table.identity))
    heaps = lock_waits.run(connection, table.identity, query).fetchall()
    for schema, name, oid, file, pages, columns, *facts in heaps:
        has_versions, has_places, seen, definition = facts
        is_recognised = has_versions and has_places
        heap = Heap(schema, name, oid, file, columns or {}, is_recognised, seen, definition)
        # The last range is open: pages may have been added since. Who may read columns only cannot
        # read where rows are.
        most = step if has_places else max(pages, 1)
        found += [
            SnapshotPart(
                table, HeapRange(heap, start, start + most if start + most < pages else None)
            )
            for start in range(0, max(pages, 1), most)
        ]
    return found or [SnapshotPart(table, None)]


def lock(
    connection: Connection,
    part: SnapshotPart,
    connect: Callable[[], Connection],
    *,
    by_ctid: bool,
) -> list[int]:
    """Keep the heap of a part as it is until the transaction ends, and check that its rows and
    columns are where they were. Returns the oids of the types of its columns, without domains.
    connect: to the same database, outside of the snapshot; by_ctid: whether places of rows that
    were known before are used.

    Raises psycopg.errors.LockNotAvailable; RowsMoved when its ranges have to be listed again;
    AlteredWhileLoaded when another snapshot can be read.
    """
    pages: HeapRange = part.range
    heap = pages.heap
    names = part.table.schema.names
    query = sql.SQL("select {} from {} limit 0").format(
        sql.SQL(", ").join(map(sql.Identifier, names)), heap.relation
    )
    cursor = lock_waits.run(connection, heap.oid, query)
    described = cursor.pgresult
    assert described is not None
    numbers = {name: described.ftablecol(index) for index, name in enumerate(names)}
    is_another = names and described.ftable(0) != heap.oid
    if is_another or any(heap.columns.get(name) != number for name, number in numbers.items()):
        raise AlteredWhileLoaded(
            "the table, a column or a partition was renamed or replaced while it was loaded",
            where=str(part.table.table),
            hint=LOADED_LATER,
        )
    ((file,),) = connection.execute(
        "select pg_relation_filenode(%s::oid)::bigint", [heap.oid]
    ).fetchall()
    if file != heap.seen and (_is_altered(heap, connect) or _hides_rows(heap, connection)):
        raise AlteredWhileLoaded(
            "the table was altered or filled anew while it was loaded",
            where=str(part.table.table),
            hint=LOADED_LATER,
        )
    is_anywhere = pages.is_whole and not by_ctid
    if not is_anywhere and file != heap.file:
        raise RowsMoved(
            f"{part.table.table} was rewritten during its load (VACUUM FULL, CLUSTER or TRUNCATE)",
            hint="Its load begins anew.",
        )
    return [described.ftype(index) for index in range(len(names))]


def _is_altered(heap: Heap, connect: Callable[[], Connection]) -> bool:
    """Whether ALTER TABLE wrote a heap anew since the snapshot, which shows no row then."""
    with closing(connect()) as now:
        found = now.execute(
            f"select {_DEFINITION} from pg_class c where c.oid = %s",  # noqa: S608
            [heap.oid],
        ).fetchone()
    return found is None or found[0] != heap.definition


def _hides_rows(heap: Heap, connection: Connection) -> bool:
    """Whether no row of another file is visible to the snapshot: it was truncated and filled again,
    or tools like pg_repack have copied its rows, which cannot be told apart."""
    ((is_empty, has_rows),) = connection.execute(
        sql.SQL("select pg_relation_size({}::oid) = 0, exists (select from {})").format(
            sql.Literal(heap.oid), heap.relation
        )
    ).fetchall()
    return not is_empty and not has_rows


def copy(
    part: SnapshotPart, columns: Sequence[CopiedColumn], places: Sequence[int] | None = None
) -> sql.Composed:
    """What reads columns of the rows of a part. places: only those that are there."""
    pages: HeapRange = part.range
    conditions: list[sql.Composable] = [*pages.condition]
    if places is not None:
        quoted = ",".join(f'"{tid_text(place)}"' for place in places)
        conditions = [sql.SQL("ctid = any({}::tid[])").format(sql.Literal(f"{{{quoted}}}"))]
    if condition := part.table.selection.get("rows"):
        conditions.append(sql.SQL("(") + sql.SQL(condition) + sql.SQL(")"))
    where = sql.SQL(" where ") + sql.SQL(" and ").join(conditions) if conditions else sql.SQL("")
    return sql.SQL("copy (select {} from {}{}) to stdout with (format binary)").format(
        sql.SQL(", ").join(column.selected for column in columns), pages.heap.relation, where
    )


def facts(part: SnapshotPart) -> dict[str, Any]:
    """As `Recognising.facts`, of what a part is."""
    pages: HeapRange = part.range
    heap, table = pages.heap, part.table
    return {
        "heap": heap.oid,
        "file": heap.file,
        "pages": [pages.start, pages.stop],
        "columns": [
            [column.name, heap.columns.get(column.name), str(table.source_types[column.name])]
            for column in table.schema.columns
        ],
        "becomes": [str(column.type) for column in table.schema.columns],
        "selection": dict(table.selection),
        "places": "numbers",
    }


def moment(connection: Connection) -> dict[str, Any]:
    """As `Recognising.facts`, of when a part is read: a number of a transaction is used again
    after 2^32 others, and after another server has taken over."""
    ((transaction, timeline, *types),) = connection.execute(_MOMENT).fetchall()
    return {"transactions": transaction >> 31, "timeline": timeline, "types": types}
