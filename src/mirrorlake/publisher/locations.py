"""The location of a publisher's table in the landing zone, and of its files while they are
built."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from mirrorlake.delta.log.files import FOLDER
from mirrorlake.delta.log.names import is_version
from mirrorlake.landing.layout import folder_of
from mirrorlake.model.table import TableId
from mirrorlake.root import TABLES, escaped
from mirrorlake.storage.store import Store, UnsafePath

STAGING_FOLDER = "_scratchPad"
"""The folder of a landing zone that every mirror ignores (LZ-022)."""

_STAGED = re.compile(r"_([0-9]{20})[.-]")


class Built(StrEnum):
    """Where files are built and checked before they get their final names."""

    BESIDE = "beside"
    STAGING_FOLDER = "scratch_pad"


@dataclass(frozen=True, slots=True)
class Workshop:
    """The folder in which the files of one table are built. zone, table: folders, the second
    inside the first."""

    zone: str
    table: str
    built: Built = Built.BESIDE

    @property
    def folders(self) -> tuple[str, str]:
        """The folder in use, and the one that an earlier run may have used."""
        aside = f"{self.zone}/{STAGING_FOLDER}/{self.table.removeprefix(self.zone + '/')}"
        return (self.table, aside) if self.built is Built.BESIDE else (aside, self.table)

    def paths(self, name: str) -> tuple[str, str]:
        """The path at which the file that will be named `name` is built (LZ-131, LZ-132), and
        the one at which an earlier run may have built it."""
        use, earlier = self.folders
        return f"{use}/_{name}", f"{earlier}/_{name}"

    def clean_up(self, store: Store) -> None:
        """Delete the unpublished files in both folders."""
        for folder in self.folders:
            for entry in store.list(folder).files:
                if _STAGED.match(entry.name):
                    store.delete(f"{folder}/{entry.name}")


def folder_for(store: Store, zone: str, table: TableId) -> str:
    """The folder of a table, the same one for every call (LZ-006, LZ-013).

    Names that are not possible as folder names, such as one with `/`, are percent-encoded. A table
    whose name equals another except for case gets a folder that differs in more than case, because
    some storages ignore case.
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
    """Whether our mirror still has the Delta table, in its own schema or in any default schema."""
    if table.schema:
        locations = {f"{TABLES}/{schema}" for schema in (escaped(table.schema), table.schema)}
    else:
        locations = {TABLES, *(f"{TABLES}/{schema}" for schema in store.list(TABLES).folders)}
    names = (escaped(table.name), table.name)
    return any(_is_delta(store, f"{location}/{name}") for location in locations for name in names)


def _is_delta(store: Store, path: str) -> bool:
    try:
        return any(is_version(file.name) for file in store.list(f"{path}/{FOLDER}").files)
    except UnsafePath:
        return False
