"""Finds the table of an object whose events name it with a schema and without one (ST-092)."""

from __future__ import annotations

from collections.abc import Iterator

from mirrorlake.apply.events.remembered.state import created, newest_state
from mirrorlake.apply.events.settings import EventInput
from mirrorlake.model.table import TableId
from mirrorlake.storage.store import Store


def namesake(store: Store, settings: EventInput, table: TableId, name: str, rule: str) -> str:
    """The name of the object of another table whose events may be of the same one as those of a new
    table; "" if there is none. name, rule: as in the state of a table."""
    for other in _candidates(store, settings, table, name):
        found = newest_state(store, other) if other != table else None
        if found is not None and found.rule == rule:
            short, long = sorted((name, found.name), key=len)
            if _is_of(settings, long, short, {table, other}):
                return found.name
    return ""


def _candidates(store: Store, settings: EventInput, table: TableId, name: str) -> Iterator[TableId]:
    for at, letter in enumerate(name):
        if letter == ".":
            yield settings.table("", name[at + 1 :])
    if table == settings.table("", name):  # it may have no schema, and another one may
        yield from (one for one in created(store) if one.name.endswith(table.name))


def _is_of(settings: EventInput, long: str, short: str, tables: set[TableId]) -> bool:
    """Whether the longer name is the shorter one with a schema, and both are of these tables."""
    if not long.endswith(f".{short}"):
        return False
    namespace = long.removesuffix(f".{short}").strip('"')
    return tables == {settings.table("", short), settings.table(namespace, short)}
