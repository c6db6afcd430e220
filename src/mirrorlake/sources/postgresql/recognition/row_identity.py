"""What identifies the rows of a table: its replica identity, and what can stand for a key."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from mirrorlake.model.table import TableId
from mirrorlake.sources.postgresql.connect import Connection


def leaves(root: str, what: str, joined: str = "") -> str:
    """A query of `what` of a table, or of its partitions that have rows, as `l`. PostgreSQL's own
    function waits while one of them is altered. joined: what else it is from."""
    return f"""
(with recursive tree(oid) as (
    select {root}
    union all
    select i.inhrelid from tree t join pg_class p on p.oid = t.oid and p.relkind = 'p'
    join pg_inherits i on i.inhparent = t.oid)
 select {what} from tree t join pg_class l on l.oid = t.oid {joined} where l.relkind <> 'p')"""  # noqa: S608


# An index that is checked late identifies nothing, for PostgreSQL and for us: until the end of the
# transaction two rows may have one key.
_INDEX_COLUMNS = """
       (select array_agg(a.attname::text order by k.place)
        from pg_index i, unnest(i.indkey) with ordinality k(number, place), pg_attribute a
        where i.indrelid = c.oid and i.indimmediate and {which}
          and a.attrelid = c.oid and a.attnum = k.number and k.place <= i.indnkeyatts)
"""
# Since version 18 a column counts as NOT NULL although its constraint was never validated.
_MAY_BE_NULL = """exists (
    select from pg_constraint n
    where n.conrelid = i.indrelid and n.contype = 'n' and not n.convalidated
      and n.conkey[1] = any((i.indkey::int2[])[0:i.indnkeyatts - 1]))
"""
_PRIMARY = _INDEX_COLUMNS.format(which="i.indisprimary")
_IDENTITY_INDEX = _INDEX_COLUMNS.format(which=f"i.indisreplident and not {_MAY_BE_NULL}")

# Any other index that identifies rows, for tables of which whole rows are logged: the one with the
# fewest columns, none of which can be NULL.
_IDENTITIES = f"""
select c.oid::bigint, c.relkind::text, c.relreplident::text, {_PRIMARY}, {_IDENTITY_INDEX},
       (select array_agg(a.attname::text order by k.place)
        from unnest(u.indkey) with ordinality k(number, place), pg_attribute a
        where a.attrelid = c.oid and a.attnum = k.number and k.place <= u.indnkeyatts),
       exists (select from pg_index i
               where i.indrelid = c.oid and i.indisprimary and not i.indimmediate),
       array(select i.indexrelid::bigint from pg_index i
             where i.indrelid = c.oid and (i.indisprimary or i.indexrelid = u.indexrelid))
from pg_catalog.pg_class c
left join lateral (
    select i.indexrelid, i.indkey, i.indnkeyatts
    from pg_index i join pg_class named on named.oid = i.indexrelid
    where i.indrelid = c.oid and i.indisunique and i.indimmediate and i.indisvalid
      and i.indpred is null and i.indexprs is null
      and not exists (
          select from unnest(i.indkey) with ordinality k(number, place)
          left join pg_attribute a on a.attrelid = c.oid and a.attnum = k.number
          where k.place <= i.indnkeyatts and a.attnotnull is not true)
      and not {_MAY_BE_NULL}
    order by i.indnkeyatts, named.relname
    limit 1) u on true
where c.oid = any(%s::oid[])
"""  # noqa: S608

# What the log contains of an old row depends on the partition that the row was in.
_PARTITIONS = f"""
select root::bigint, n.nspname, c.relname, c.relreplident::text, {_PRIMARY}, {_IDENTITY_INDEX}
from unnest(%s::oid[]) root, lateral {leaves("root", "l.oid")} leaf(oid), pg_class c, pg_namespace n
where c.oid = leaf.oid and c.oid <> root and n.oid = c.relnamespace
order by n.nspname, c.relname
"""  # noqa: S608

NO_KEY = {
    "d": "it has no primary key",
    "i": "the index of its replica identity no longer exists, or its columns may be NULL",
    "n": "its replica identity is NOTHING",
}
"""Why updates and deletions of a table cannot be captured, by its replica identity."""


@dataclass(frozen=True, slots=True)
class RowIdentity:
    """Of one table. identity: relreplident, as d default, i index, f full, n nothing; unique: the
    columns of another index that identifies its rows; deferrable: it has a primary key that is
    checked late; indexes: those of the primary key and of `unique`, by oid; partitions: the leaves
    with the columns by which they identify their rows, None for all columns."""

    identity: str
    is_partitioned: bool = False
    primary: tuple[str, ...] = ()
    index: tuple[str, ...] = ()
    unique: tuple[str, ...] = ()
    deferrable: bool = False
    indexes: tuple[int, ...] = ()
    partitions: Mapping[TableId, frozenset[str] | None] = field(default_factory=dict)

    @property
    def identifies(self) -> bool:
        """Whether the log identifies its old rows: otherwise it cannot be updated while it is
        published with updates."""
        logged = {"f": True, "d": bool(self.primary), "i": bool(self.index)}
        return logged.get(self.identity, False)

    @property
    def weak_partition(self) -> TableId | None:
        """A partition whose old rows are logged without the key of the table, or not whole where
        whole rows are the key."""
        key = set(self._partitioned_key)
        if not key and self.identity != "f":
            return None
        for name, identity in self.partitions.items():
            if identity is not None and not (key and identity >= key):
                return name
        return None

    @property
    def _partitioned_key(self) -> tuple[str, ...]:
        return self.primary or self.index or (self.unique if self.identity == "f" else ())

    def key(self, selected: Collection[str]) -> tuple[tuple[str, ...], str]:
        """The columns by which updates and deletions name their row, or why there are none;
        neither, where they name all columns of it. selected: the columns that are captured."""
        key, reason = self._key(selected)
        if missing := [name for name in key if name not in selected]:
            return (), f"key column {missing[0]} is not selected"
        return key, reason

    def _key(self, selected: Collection[str]) -> tuple[tuple[str, ...], str]:
        if self.is_partitioned and (key := self._partitioned_key):
            if weak := self.weak_partition:
                return (), f"the replica identity of partition {weak} does not contain its key"
            return key, ""
        if self.is_partitioned and (weak := self.weak_partition):
            return (), f"the replica identity of partition {weak} is not full"
        if self.identity == "f":
            keys = [key for key in (self.primary, self.unique) if key and {*key} <= {*selected}]
            return keys[0] if keys else (), "" if selected else "it has no columns"
        key = {"d": self.primary, "i": self.index}.get(self.identity, ())
        if not key and self.identity == "d" and self.deferrable:
            return (), "its primary key is deferrable, so rows may temporarily share a key"
        return key, "" if key else NO_KEY[self.identity]


def read(connection: Connection, tables: Sequence[int]) -> dict[int, RowIdentity]:
    """Of tables by oid, as far as they are there."""
    partitions: dict[int, dict[TableId, frozenset[str] | None]] = {oid: {} for oid in tables}
    for root, schema, name, *logged in connection.execute(_PARTITIONS, [list(tables)]):
        partitions[root][TableId(schema, name)] = _logged(*logged)
    found = connection.execute(_IDENTITIES, [list(tables)])
    return {
        oid: RowIdentity(
            identity,
            kind == "p",
            tuple(primary or ()),
            tuple(index or ()),
            tuple(unique or ()),
            deferrable,
            tuple(sorted(indexes)),
            partitions[oid],
        )
        for oid, kind, identity, primary, index, unique, deferrable, indexes in found
    }


def _logged(
    identity: str, primary: list[str] | None, index: list[str] | None
) -> frozenset[str] | None:
    """The columns of an old row that the log contains; None for all of them."""
    if identity == "f":
        return None
    return frozenset({"d": primary, "i": index}.get(identity) or ())
