"""Columns that change how they are written, and not what they are called in a table.

A table cannot have `Price` and `price`, nor `unit-price` and `unit_price` (ST-245). Where a schema
has both, they are two columns, and the table stops. Where it has one of them, and another schema
the other, the column was renamed in the source: it stays the column that it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from mirrorlake.apply.events.columns import EventTableColumns, column_name
from mirrorlake.apply.events.reading import TableEvents


def spelled_alike(
    events: Sequence[TableEvents], columns: EventTableColumns, *, is_case_only: bool = False
) -> tuple[list[TableEvents], dict[str, str]]:
    """The same events, in which each column is written as in the table, or else as in the first of
    them; and the names that were replaced, with those that replace them.

    is_case_only: whether other names than those that differ in upper and lower case stay.
    """
    known = {column.name.casefold(): (column.source, column.name) for column in columns}
    found, replaced = list[TableEvents](), dict[str, str]()
    for one in events:
        names = dict[str, str]()
        own = {source: column_name(source) for source in one.columns}
        count = Counter(name.casefold() for name in own.values())
        for source, name in own.items():
            first, in_table = known.setdefault(name.casefold(), (source, name))
            is_other = first != source and count[name.casefold()] == 1
            if is_other and not (is_case_only and name == in_table):
                names[source] = first
        replaced |= names
        found.append(_renamed(one, names) if names else one)
    return found, replaced


def _renamed(events: TableEvents, names: Mapping[str, str]) -> TableEvents:
    return replace(
        events,
        keys=list(dict.fromkeys(frozenset(names.get(one, one) for one in k) for k in events.keys)),
        columns={names.get(name, name): kind for name, kind in events.columns.items()},
        payload=events.payload.rename_columns(
            [names.get(name, name) for name in events.payload.column_names]
        ),
    )
