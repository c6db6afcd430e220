"""From the include and exclude lists of a stream to the selection of its mirror (ST-312)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mirrorlake.control.shapes import hierarchies as shape
from mirrorlake.errors import NotOffered
from mirrorlake.sources.selection import Selection

_ANY = "*"

_Tables = tuple[str, str]
"""A pattern of schemas and one of tables: of one name, or of any."""
_Named = tuple[_Tables, Sequence[str]]
"""Tables, with the patterns of columns that are named of them; none for all."""


def selection(
    include: shape.PostgresqlRdbms | None, exclude: shape.PostgresqlRdbms | None
) -> Selection:
    """What is mirrored. A level that is not given means everything below it. Raises NotOffered."""
    taken, refused = [*_named(include)] or [((_ANY, _ANY), [])], [*_named(exclude)]
    out = [f"!{_pattern(tables)}" for tables, columns in refused if not columns]
    tables = [_pattern(tables) for tables, _columns_of in taken]
    named = [(_pattern(there), columns) for there, columns in taken if columns]
    named += [(_pattern(there), [f"!{one}" for one in columns]) for there, columns in refused]
    return Selection(
        (*dict.fromkeys(tables), *out),
        _columns(taken, refused),
        named=[(pattern, columns) for pattern, columns in named if columns],
    )


def tables_of(objects: shape.PostgresqlRdbms | None) -> list[str]:
    """The patterns of the tables that are named as a whole, without columns. Raises NotOffered."""
    return [_pattern(tables) for tables, columns in _named(objects) if not columns]


def _columns(taken: Sequence[_Named], refused: Sequence[_Named]) -> dict[str, list[str]]:
    """Patterns of columns by pattern of tables. The first one that matches a table counts, so it
    has all that is said of its tables: in lists for more tables, and in several entries."""
    named = {tables for tables, columns in (*taken, *refused) if columns}
    named |= {_both(one, other) for one in named for other in named if _meet(one, other)}
    found: dict[_Tables, list[str]] = {}
    for tables in sorted(named, key=lambda one: (one.count(_ANY), one)):
        met = [one for one, _columns_of in taken if _meet(one, tables)]
        if met and all(any(_covers(known, one) for known in found) for one in met):
            continue  # nothing is left that it could concern
        columns = _said_of(tables, taken)
        # A list for more tables takes away nothing where the columns are named without it.
        own = _said_of(tables, [one for one in refused if one[0] == tables])
        out = [one for one in _said_of(tables, refused) if not columns or one in {*columns, *own}]
        found[tables] = [*(columns or [_ANY]), *(f"!{one}" for one in out)]
    return {_pattern(tables): columns for tables, columns in found.items()}


def _said_of(tables: _Tables, objects: Sequence[_Named]) -> list[str]:
    """The columns that are named of these tables, each once."""
    found = (column for there, columns in objects if _covers(there, tables) for column in columns)
    return list(dict.fromkeys(found))


def _covers(one: _Tables, other: _Tables) -> bool:
    """Whether all tables of the other are among the tables of one."""
    return all(a in (_ANY, b) for a, b in zip(one, other, strict=True))


def _meet(one: _Tables, other: _Tables) -> bool:
    """Whether a table may be one of both."""
    return all(_ANY in (a, b) or a == b for a, b in zip(one, other, strict=True))


def _both(one: _Tables, other: _Tables) -> _Tables:
    """What two that meet have in common."""
    schema, table = (a if b == _ANY else b for a, b in zip(one, other, strict=True))
    return schema, table


def _named(objects: shape.PostgresqlRdbms | None) -> Iterator[_Named]:
    """Raises NotOffered."""
    for schema in objects.postgresql_schemas if objects else ():
        name = _literal(schema.schema_) if schema.schema_ else _ANY
        if not schema.postgresql_tables:
            yield (name, _ANY), []
        for table in schema.postgresql_tables:
            columns = [one.column for one in table.postgresql_columns if one.column]
            tables = _literal(table.table) if table.table else _ANY
            yield (name, tables), [_literal(column) for column in columns]


def _pattern(tables: _Tables) -> str:
    return ".".join(tables)


def _literal(name: str) -> str:
    """A pattern that matches this name alone. Raises NotOffered."""
    if name.startswith("!"):
        raise NotOffered(
            "a name that begins with ! cannot be selected",
            where=name,
            hint="Select its schema as a whole.",
        )
    return "".join(f"[{one}]" if one in "*?[" else one for one in name)
