"""What a table has in the catalog that changes no row: defaults, constraints, collations, types.
Of types also what the text of all values depends on: names of enum values, parts of composites.

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
    lateral (
        select t.typbasetype union all
        select t.typelem where t.typcategory = 'A' union all
        select r.rngsubtype from pg_range r
        where t.typtype in ('r', 'm') and t.oid in (r.rngtypid, r.rngmultitypid) union all
        select a.atttypid from pg_attribute a
        where t.typtype = 'c' and a.attrelid = t.typrelid and a.attnum > 0) v(oid)
    where v.oid <> 0)
select attrelid::bigint, attnum, 'column', 0, label, '', 0::bigint from col
union all
select attrelid, attnum, 'not null', 0, 'NOT NULL of ' || label, '', 0 from col where attnotnull
union all
select attrelid, attnum, 'collation', 0, 'the collation of ' || label, attcollation::text, 0
from col where attcollation <> 0
union all
select attrelid, attnum, 'default', 0,
       case attgenerated when '' then 'the default of ' else 'the expression of generated ' end
       || label, hashtextextended(d.adbin::text, 0)::text, 0
from col join pg_attrdef d on d.adrelid = attrelid and d.adnum = abs(attnum)
union all
select r.conrelid, 0, 'constraint', r.oid::bigint, 'constraint ' || quote_ident(r.conname),
       hashtextextended(
           concat(r.conbin::text, r.conkey, r.confrelid, r.confkey, r.convalidated), 0)::text, 0
from chosen join pg_constraint r on r.conrelid = chosen.oid where r.contype in ('c', 'f', 'u', 'x')
union all
select u.rel, 0, 'value', e.oid::bigint,
       'value ' || quote_literal(e.enumlabel) || ' of enum type ' || quote_ident(t.typname), '',
       t.oid::bigint
from used u join pg_type t on t.oid = u.oid join pg_enum e on e.enumtypid = t.oid
union all
select u.rel, 0, 'domain', t.oid::bigint, 'domain ' || quote_ident(t.typname),
       hashtextextended(
           concat(t.typnotnull, t.typdefault, t.typbasetype, t.typtypmod, t.typcollation), 0)::text,
       t.oid::bigint
from used u join pg_type t on t.oid = u.oid where t.typtype = 'd'
union all
select u.rel, 0, 'constraint', r.oid::bigint,
       'constraint ' || quote_ident(r.conname) || ' of domain ' || quote_ident(t.typname),
       hashtextextended(concat(r.conbin::text, r.convalidated), 0)::text, t.oid::bigint
from used u join pg_type t on t.oid = u.oid
join pg_constraint r on r.contypid = t.oid and r.contype = 'c'
union all
select u.rel, 0, 'composite', t.oid::bigint, 'composite type ' || quote_ident(t.typname),
       (select hashtextextended(
           concat(string_agg(concat(a.attnum, ' ', a.atttypid), ',' order by a.attnum)), 0)::text
        from pg_attribute a
        where a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped),
       t.oid::bigint
from used u join pg_type t on t.oid = u.oid where t.typtype = 'c'
"""


def read(connection: Connection, tables: Sequence[int]) -> Mapping[int, Mapping[str, Attached]]:
    """Of tables by oid."""
    found: dict[int, dict[str, Attached]] = {oid: {} for oid in tables}
    for oid, column, kind, number, *facts in connection.execute(_ATTACHED, [list(tables)]):
        label, state, type_oid = facts
        found[oid][f"{kind} {number or column}"] = Attached(label, state, column, type_oid)
    return found
