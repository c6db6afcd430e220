"""What a table has in the catalog that changes no row: defaults, constraints, collations, types.

Definitions are compared as PostgreSQL stores them: its functions that print them lock the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirrorlake.sources.postgresql.connect import Connection
from mirrorlake.sources.table import Attached

_ATTACHED = """
with recursive chosen(oid) as (select unnest(%s::oid[])),
col as (
    select a.attrelid, a.atttypid, a.attnotnull, a.attcollation, a.attgenerated,
           case a.attgenerated when '' then a.attnum else -a.attnum end as attnum,
           'column ' || quote_ident(a.attname) as label
    from chosen join pg_attribute a on a.attrelid = chosen.oid
    where a.attnum > 0 and not a.attisdropped),
used(rel, oid) as (
    select attrelid, atttypid from col
    union
    select u.rel, v.oid from used u join pg_type t on t.oid = u.oid,
    lateral (values (t.typbasetype), (case t.typcategory when 'A' then t.typelem end)) v(oid)
    where v.oid <> 0)
select attrelid::bigint, attnum, 'column', 0, label, '' from col
union all
select attrelid, attnum, 'not null', 0, 'NOT NULL of ' || label, '' from col where attnotnull
union all
select attrelid, attnum, 'collation', 0, 'the collation of ' || label, attcollation::text
from col where attcollation <> 0
union all
select attrelid, attnum, 'default', 0,
       case attgenerated when '' then 'the default of ' else 'the expression of generated ' end
       || label, hashtextextended(d.adbin::text, 0)::text
from col join pg_attrdef d on d.adrelid = attrelid and d.adnum = abs(attnum)
union all
select r.conrelid, 0, 'constraint', r.oid::bigint, 'constraint ' || quote_ident(r.conname),
       hashtextextended(
           concat(r.conbin::text, r.conkey, r.confrelid, r.confkey, r.convalidated), 0)::text
from chosen join pg_constraint r on r.conrelid = chosen.oid where r.contype in ('c', 'f', 'u', 'x')
union all
select u.rel, 0, 'value', e.oid::bigint,
       'value ' || quote_literal(e.enumlabel) || ' of enum type ' || quote_ident(t.typname), ''
from used u join pg_type t on t.oid = u.oid join pg_enum e on e.enumtypid = t.oid
union all
select u.rel, 0, 'domain', t.oid::bigint, 'domain ' || quote_ident(t.typname),
       hashtextextended(
           concat(t.typnotnull, t.typdefault, t.typbasetype, t.typtypmod, t.typcollation), 0)::text
from used u join pg_type t on t.oid = u.oid where t.typtype = 'd'
union all
select u.rel, 0, 'constraint', r.oid::bigint,
       'constraint ' || quote_ident(r.conname) || ' of domain ' || quote_ident(t.typname),
       hashtextextended(concat(r.conbin::text, r.convalidated), 0)::text
from used u join pg_type t on t.oid = u.oid
join pg_constraint r on r.contypid = t.oid and r.contype = 'c'
"""


def read(connection: Connection, tables: Sequence[int]) -> Mapping[int, Mapping[str, Attached]]:
    """Of tables by oid."""
    found: dict[int, dict[str, Attached]] = {oid: {} for oid in tables}
    for oid, column, kind, number, label, state in connection.execute(_ATTACHED, [list(tables)]):
        found[oid][f"{kind} {number or column}"] = Attached(label, state, column)
    return found
