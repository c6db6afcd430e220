"""Where a table of a publisher lies in the zone."""

from __future__ import annotations

from mirrorlake.landing.layout import TABLES, folder_of
from mirrorlake.landing.names import folder_name
from mirrorlake.model.table import TableId
from mirrorlake.storage.store import Store


def folder_for(store: Store, zone: str, table: TableId) -> str:
    """The folder of a table, the same one whenever it is asked for (LZ-006, LZ-013).

    Names that no folder can have, such as one with `/`, are percent-encoded. A table whose name
    equals another but for case gets a folder that differs in more, as some storages ignore case.
    """
    plain = folder_of(zone, table)
    apart = folder_of(zone, table, frozenset({table.name.casefold()}))
    parent, _, name = plain.rpartition("/")
    there = store.list(parent).folders
    if apart.rpartition("/")[2] in there:
        return apart
    twins = [other for other in there if other != name and other.casefold() == name.casefold()]
    return apart if twins and name not in there else plain


def is_mirrored(store: Store, table: TableId) -> bool:
    """Whether our mirror still has the Delta table, in its own schema or in any as a default."""
    if table.schema:
        return _is_delta(store, f"{TABLES}/{folder_name(table.schema)}/{folder_name(table.name)}")
    name = folder_name(table.name)
    places = [TABLES, *(f"{TABLES}/{schema}" for schema in store.list(TABLES).folders)]
    return any(_is_delta(store, f"{place}/{name}") for place in places)


def _is_delta(store: Store, path: str) -> bool:
    return bool(store.list(f"{path}/_delta_log").files)
